//! `up`, `down`, and the process between them.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use dropgate_testkit::stack::{Backing, Services, Settings, Shape};
use dropgate_testkit::wait::{self, Seen};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::output::say;

/// How many gateways the stack has.
const GATEWAYS: usize = 2;

/// Where the stack keeps its files; there is at most one stack in a folder.
#[derive(Debug, Args)]
pub struct Place {
    /// The folder for configuration, secrets and logs; `.dropgate` of the working copy by default
    #[arg(long)]
    folder: Option<PathBuf>,
}

/// What is written down about a running stack.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    pid: i32,
    /// When the process started, in clock ticks since boot: with it the id names one process.
    started_ticks: u64,
    lines: Vec<String>,
}

/// Starts the full stack as a process of its own and waits until it is up.
///
/// # Errors
/// When it runs already, or does not come up.
pub fn up(place: &Place) -> Result<()> {
    let folder = place.folder()?;
    if let Some(record) = running(&folder) {
        say("the stack runs already:");
        record.lines.iter().for_each(|line| say(line));
        return Ok(());
    }
    let record = folder.join("stack.json");
    let _ = std::fs::remove_file(&record);
    let log = folder.join("stack.log");
    let out = File::create(&log)?;
    let mut hold = Command::new(dropgate_testkit::tools::find("setsid", &[])?)
        .arg(std::env::current_exe()?)
        .args(["hold", "--folder"])
        .arg(&folder)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()?;
    say("starting Redis, Kafka, Postgres, two gateways and an order-writer");
    let lines = wait::until("the stack", wait::START * 3, || {
        if let Some(status) = hold.try_wait()? {
            bail!(
                "the stack ended with {status}:\n{}",
                dropgate_testkit::tools::tail_of(&log)
            );
        }
        Ok(match running(&folder) {
            Some(record) => Seen::Done(record.lines),
            None => Seen::NotYet(dropgate_testkit::tools::tail_of(&log)),
        })
    })?;
    lines.iter().for_each(|line| say(line));
    Ok(())
}

/// Stops the stack that `up` started, and waits until it is gone.
///
/// # Errors
/// When it does not end.
pub fn down(place: &Place) -> Result<()> {
    let folder = place.folder()?;
    let Some(record) = running(&folder) else {
        say("no stack is running");
        return Ok(());
    };
    kill(Pid::from_raw(record.pid), Signal::SIGTERM)?;
    wait::until("the stack to end", wait::START, || {
        Ok(match running(&folder) {
            None => Seen::Done(()),
            Some(_) => Seen::NotYet("it runs".into()),
        })
    })?;
    std::fs::remove_file(folder.join("stack.json"))?;
    say("stopped the stack");
    Ok(())
}

/// Runs the full stack until SIGTERM or SIGINT.
///
/// # Errors
/// When it does not come up.
pub fn hold(place: &Place) -> Result<()> {
    let folder = place.folder()?;
    let backing = Backing::start(Shape::Full)?;
    let settings = Settings::new(&folder, &backing)?;
    let mut services = Services::full(&settings, &folder, GATEWAYS)?;
    let record = Record {
        pid: i32::try_from(std::process::id())?,
        started_ticks: procfs::process::Process::myself()?.stat()?.starttime,
        lines: lines(&folder, &backing, &services),
    };
    // Whole or not at all: `up` reads it as soon as it is there.
    let draft = folder.join("stack.json.draft");
    std::fs::write(&draft, serde_json::to_vec_pretty(&record)?)?;
    std::fs::rename(&draft, folder.join("stack.json"))?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(end_of_work())?;
    for (name, process) in services.processes.iter_mut().rev() {
        if let Err(error) = process.terminate(wait::END) {
            say(&format!("{name} did not end in order: {error:#}"));
        }
    }
    Ok(())
}

async fn end_of_work() -> Result<()> {
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        interrupted = tokio::signal::ctrl_c() => interrupted.context("waiting for SIGINT"),
    }
}

fn lines(folder: &Path, backing: &Backing, services: &Services) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, ports) in (1..).zip(&services.gateways) {
        lines.push(format!(
            "  gateway {number}     http://127.0.0.1:{}   admin http://127.0.0.1:{}",
            ports.public, ports.admin
        ));
    }
    lines.push(format!("  redis         {}", backing.redis.url()));
    if let Some(durable) = &backing.durable {
        lines.push(format!("  kafka         {}", durable.kafka.brokers()));
        let (port, name) = (durable.database.port(), durable.database.name());
        lines.push(format!(
            "  database      postgres://dropgate@127.0.0.1:{port}/{name}"
        ));
    }
    lines.push(format!(
        "  admin key, secret of tokens, configuration and logs: {}",
        folder.display()
    ));
    lines.push("  stop it with `make down`".to_owned());
    lines
}

fn running(folder: &Path) -> Option<Record> {
    let record = std::fs::read(folder.join("stack.json")).ok()?;
    let record: Record = serde_json::from_slice(&record).ok()?;
    let stat = procfs::process::Process::new(record.pid)
        .ok()?
        .stat()
        .ok()?;
    (stat.starttime == record.started_ticks && stat.state != 'Z').then_some(record)
}

impl Place {
    fn folder(&self) -> Result<PathBuf> {
        let folder = self
            .folder
            .clone()
            .unwrap_or_else(|| root().join(".dropgate"));
        std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
        Ok(std::path::absolute(folder)?)
    }
}

/// The root of the working copy that this program was built from.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_owned()
}
