//! Append-to-tail latency and appends per second of both logs, side by side.
//!
//! `cargo run --release -p dropgate-stream --example stream_bench -- [host:port]`: with the
//! address of a broker, Kafka too. Prints medians; asserts nothing.
#![expect(clippy::print_stdout, reason = "the figures are what it is run for")]

use std::time::{Duration, Instant};

use bytes::Bytes;
use dropgate_domain::{Offset, PartitionId};
use dropgate_stream::{Backend, Lane, Log, LogConfig};

const LANE: Lane = Lane::Claims(PartitionId(0));
/// The size of a win's record, more or less.
const BYTES: usize = 200;
const ONE_BY_ONE: usize = 1000;
const IN_FLIGHT: usize = 64;
const TOGETHER: usize = 50_000;
const WAIT: Duration = Duration::from_secs(30);

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut embedded = LogConfig::default();
    embedded.embedded.path = folder.path().join("log.db");
    let mut cases = vec![("embedded", embedded)];
    if let Some(brokers) = std::env::args().nth(1) {
        for linger_ms in [0, 1] {
            let mut kafka = LogConfig {
                backend: Backend::Kafka,
                ..LogConfig::default()
            };
            let run = format!("{}-{linger_ms}", std::process::id());
            kafka.kafka.brokers.clone_from(&brokers);
            kafka.kafka.topic_index = format!("bench-sales-{run}");
            kafka.kafka.topic_claims = format!("bench-claims-{run}");
            kafka.kafka.create = true;
            kafka.kafka.replication_factor = 1;
            kafka.kafka.linger = Duration::from_millis(linger_ms);
            cases.push((
                ["kafka, linger 0", "kafka, linger 1 ms"][linger_ms as usize],
                kafka,
            ));
        }
    }
    println!("{BYTES} bytes a record, medians of {ONE_BY_ONE}, {IN_FLIGHT} in flight");
    for (name, config) in cases {
        measure(name, &config).await?;
    }
    Ok(())
}

async fn measure(name: &str, config: &LogConfig) -> Result<()> {
    let log = Log::open(config).await?;
    let mut tail = log.tail(&[(LANE, Offset(0))]).await?;
    let value = Bytes::from(vec![7; BYTES]);
    let (mut acknowledged, mut read) = (Vec::new(), Vec::new());
    for _ in 0..ONE_BY_ONE {
        let begun = Instant::now();
        let append = async {
            log.append(LANE, value.clone()).await?;
            Result::Ok(begun.elapsed())
        };
        let came = async {
            while tail.next(1, WAIT).await?.is_empty() {}
            Result::Ok(begun.elapsed())
        };
        let (append, came) = tokio::join!(append, came);
        acknowledged.push(append?);
        read.push(came?);
    }
    let mut probes = Vec::new();
    for _ in 0..200 {
        let begun = Instant::now();
        log.probe(LANE).await?;
        probes.push(begun.elapsed());
    }
    let begun = Instant::now();
    let writers: Vec<_> = (0..IN_FLIGHT)
        .map(|_| {
            let (log, value) = (log.clone(), value.clone());
            tokio::spawn(async move {
                for _ in 0..TOGETHER / IN_FLIGHT {
                    log.append(LANE, value.clone()).await?;
                }
                Result::Ok(())
            })
        })
        .collect();
    let mut left = TOGETHER / IN_FLIGHT * IN_FLIGHT;
    while left > 0 {
        left -= tail.next(1000, WAIT).await?.len();
    }
    let all = begun.elapsed();
    for writer in writers {
        writer.await??;
    }
    println!(
        "{name:<20} acknowledged {:>7.3} ms, read {:>7.3} ms (p99 {:>7.3}), probe {:>7.3} ms, {:>7.0} appended and read a second",
        at(&mut acknowledged, 0.5),
        at(&mut read, 0.5),
        at(&mut read, 0.99),
        at(&mut probes, 0.5),
        (TOGETHER / IN_FLIGHT * IN_FLIGHT) as f64 / all.as_secs_f64(),
    );
    log.close(WAIT).await;
    Ok(())
}

/// The quantile in milliseconds.
fn at(durations: &mut [Duration], quantile: f64) -> f64 {
    durations.sort_unstable();
    let index = (durations.len() as f64 * quantile) as usize;
    durations[index.min(durations.len() - 1)].as_secs_f64() * 1000.0
}
