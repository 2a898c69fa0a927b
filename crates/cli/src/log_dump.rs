//! `dropgate log dump`: every record of the log as it is, for whoever wants to judge by itself.

use crate::config::Config;
use anyhow::{Context, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dropgate_domain::{Offset, PartitionId};
use dropgate_stream::{Item, Lane, Log};
use serde::Serialize;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How many records one read brings at most.
const READ_MAX: usize = 2_000;
/// How long the log may bring nothing before the dump is given up.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// What `log.close` may take: nothing was written.
const CLOSE_DEADLINE: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Line<'a> {
    topic: &'a str,
    partition: u32,
    offset: u64,
    value: &'a str,
}

pub async fn run(config: &Config, out: &Path) -> anyhow::Result<ExitCode> {
    let log = Log::open_read_only(&config.log()).await?;
    let to_stdout = out == Path::new("-");
    let records = if to_stdout {
        dump(&log, &mut BufWriter::new(io::stdout().lock())).await?
    } else {
        to_file(&log, out).await?
    };
    log.close(CLOSE_DEADLINE).await;
    if !to_stdout {
        crate::output::line(&format!("{records} records in {}", out.display()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Under another name until it is complete.
async fn to_file(log: &Log, out: &Path) -> anyhow::Result<u64> {
    let name = out.file_name().context("--out: the path of a file")?;
    let mut draft = name.to_owned();
    draft.push(".part");
    let draft = out.with_file_name(draft);
    let cannot_write = || format!("cannot write {}", draft.display());
    let file = File::create(&draft).with_context(cannot_write)?;
    let mut writer = BufWriter::new(file);
    let records = dump(log, &mut writer).await?;
    let file = writer.into_inner().map_err(io::IntoInnerError::into_error);
    file.and_then(|file| file.sync_all())
        .with_context(cannot_write)?;
    std::fs::rename(&draft, out).with_context(|| format!("cannot write {}", out.display()))?;
    Ok(records)
}

/// Writes every record that is there now; returns how many they are.
async fn dump(log: &Log, out: &mut impl Write) -> anyhow::Result<u64> {
    // The index last: a sale is in the index before its first record is in the log, so the index
    // as it is then names every sale of the records.
    let lanes = (0..log.partitions()).map(|p| Lane::Claims(PartitionId(p)));
    let mut bounds = Vec::new();
    for lane in lanes.chain([Lane::Index]) {
        let probe = log.probe(lane).await?;
        bounds.push((lane, probe.low, probe.end));
    }
    bounds.rotate_right(1);
    let mut records = 0;
    for (lane, low, end) in bounds {
        records += dump_lane(log, out, lane, low, end).await?;
    }
    out.flush()?;
    Ok(records)
}

async fn dump_lane(
    log: &Log,
    out: &mut impl Write,
    lane: Lane,
    low: Offset,
    end: Offset,
) -> anyhow::Result<u64> {
    let mut next = low;
    if next >= end {
        return Ok(0);
    }
    let mut tail = log.tail(&[(lane, low)]).await?;
    let mut heard = Instant::now();
    let mut line = Buffer::default();
    while next < end {
        let items = match tail.next(READ_MAX, Duration::from_secs(1)).await {
            Err(error) if !error.is_transient() => return Err(error.into()),
            items => items.unwrap_or_default(),
        };
        if !items.is_empty() {
            heard = Instant::now();
        } else if heard.elapsed() > SILENCE_MAX {
            bail!("{lane} brings nothing more: read to offset {next} of {end}");
        }
        for item in items.iter().take_while(|item| item.offset < end) {
            line.write(out, item)?;
            next = item.offset.next();
        }
    }
    Ok(end.0 - low.0)
}

/// Keeps its memory from record to record.
#[derive(Default)]
struct Buffer {
    base64: String,
}

impl Buffer {
    fn write(&mut self, out: &mut impl Write, item: &Item) -> anyhow::Result<()> {
        self.base64.clear();
        STANDARD.encode_string(&item.value, &mut self.base64);
        let line = Line {
            // By their meaning, whatever the topics are called here.
            topic: match item.lane {
                Lane::Index => "dropgate-sales",
                Lane::Claims(_) => "dropgate-claims",
            },
            partition: item.lane.partition().0,
            offset: item.offset.0,
            value: &self.base64,
        };
        serde_json::to_writer(&mut *out, &line)?;
        out.write_all(b"\n")?;
        Ok(())
    }
}
