//! Servers that the ordinary tests share.
//!
//! Every test is a process of its own, and starting a broker costs seconds. So the first test that
//! needs one starts it *detached*, writes down where it is, and later tests find it there. Each use
//! touches a lease file; a small supervisor ends the server and removes its folder when the lease
//! has not been touched for ten minutes, when [`stop_all`] asks it to, and the kernel ends the
//! server when the supervisor is gone. Fault tests start servers of their own.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::tools;
use crate::wait::{self, Seen};

/// How long a shared server lives after its last use, in seconds.
const IDLE_SECONDS_MAX: u32 = 600;

/// Runs the server as a child, and ends it when told, when the lease is old, or with itself.
const SUPERVISOR: &str = r#"
lease=$1 idle=$2 folder=$3 signal=$4; shift 4
setpriv --pdeathsig "$signal" -- "$@" &
server=$!
trap 'kill -"$signal" $server' TERM
while kill -0 $server 2>/dev/null; do
  sleep 2 & wait $!
  touched=$(stat -c %Y "$lease" 2>/dev/null || echo 0)
  [ $(($(date +%s) - touched)) -le "$idle" ] || kill -"$signal" $server
done
wait $server
rm -rf "$folder"
"#;

/// What is written down about a shared server.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    /// The supervisor's process id.
    pid: i32,
    /// When the supervisor started, in clock ticks since boot: with it the id names one process.
    started_ticks: u64,
    port: u16,
}

/// A server to be started: its folder is made, and everything in it is in place.
pub(crate) struct Prepared {
    /// Removed when the server has ended.
    pub(crate) folder: PathBuf,
    /// Program and arguments.
    pub(crate) command: Vec<String>,
    /// The signal that ends it, without `SIG`.
    pub(crate) signal: &'static str,
    /// Where it will listen.
    pub(crate) port: u16,
}

/// The port of the shared server of this name, started now if it does not run.
///
/// `prepare` makes everything that the server needs; `ready` asks whether it answers on its port.
///
/// # Errors
/// When it cannot be started.
pub(crate) fn lease(
    name: &str,
    prepare: impl Fn() -> Result<Prepared>,
    ready: impl Fn(u16) -> Result<()>,
) -> Result<u16> {
    let folder = folder()?;
    let _lock = lock(&folder, name)?;
    let lease = folder.join(format!("{name}.lease"));
    File::create(&lease)?.set_modified(SystemTime::now())?;
    if let Some(record) = running(&folder, name)
        && ready(record.port).is_ok()
    {
        return Ok(record.port);
    }
    stop_locked(&folder, name)?;
    let mut tries = 0;
    loop {
        let prepared = prepare()?;
        match start(&folder, name, &lease, &prepared, &ready) {
            Ok(()) => return Ok(prepared.port),
            Err(error) if tries == 2 => return Err(error),
            Err(_) => tries += 1,
        }
    }
}

fn start(
    folder: &Path,
    name: &str,
    lease: &Path,
    prepared: &Prepared,
    ready: &impl Fn(u16) -> Result<()>,
) -> Result<()> {
    let log = folder.join(format!("{name}.log"));
    let out = File::create(&log)?;
    let mut supervisor = Command::new(tools::find("setsid", &[])?)
        .args(["sh", "-c", SUPERVISOR, name])
        .arg(lease)
        .arg(IDLE_SECONDS_MAX.to_string())
        .arg(&prepared.folder)
        .arg(prepared.signal)
        .args(&prepared.command)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .spawn()
        .with_context(|| format!("starting the shared {name}"))?;
    let pid = i32::try_from(supervisor.id())?;
    let record = Record {
        pid,
        started_ticks: started_ticks(pid).context("a process that just started")?,
        port: prepared.port,
    };
    std::fs::write(
        folder.join(format!("{name}.json")),
        serde_json::to_vec(&record)?,
    )?;
    let up = wait::until(&format!("the shared {name}"), wait::START, || {
        if let Some(status) = supervisor.try_wait()? {
            bail!(
                "the shared {name} ended with {status}:\n{}",
                tools::tail_of(&log)
            );
        }
        Ok(match ready(prepared.port) {
            Ok(()) => Seen::Done(()),
            Err(error) => Seen::NotYet(format!("{error:#}\n{}", tools::tail_of(&log))),
        })
    });
    if up.is_err() {
        stop_locked(folder, name)?;
        let _ = supervisor.wait();
    }
    up
}

/// Ends the shared servers of this target directory, and says which there were.
///
/// # Errors
/// When one does not end.
pub fn stop_all() -> Result<Vec<String>> {
    let folder = folder()?;
    let mut stopped = Vec::new();
    for entry in std::fs::read_dir(&folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let Some(name) = path.file_stem().and_then(|stem| stem.to_str()) else {
            continue;
        };
        let _lock = lock(&folder, name)?;
        if stop_locked(&folder, name)? {
            stopped.push(name.to_owned());
        }
    }
    Ok(stopped)
}

fn stop_locked(folder: &Path, name: &str) -> Result<bool> {
    let Some(record) = running(folder, name) else {
        return Ok(false);
    };
    kill(Pid::from_raw(record.pid), Signal::SIGTERM)?;
    let bound = Duration::from_secs(60);
    wait::until(&format!("the end of the shared {name}"), bound, || {
        Ok(match running(folder, name) {
            None => Seen::Done(()),
            Some(_) => Seen::NotYet("it runs".into()),
        })
    })?;
    std::fs::remove_file(folder.join(format!("{name}.json")))?;
    Ok(true)
}

/// The record of this name, if the very process that it names still runs.
fn running(folder: &Path, name: &str) -> Option<Record> {
    let text = std::fs::read(folder.join(format!("{name}.json"))).ok()?;
    let record: Record = serde_json::from_slice(&text).ok()?;
    (started_ticks(record.pid)? == record.started_ticks).then_some(record)
}

/// When a process started; `None` when there is none of this id, or only its remains.
fn started_ticks(pid: i32) -> Option<u64> {
    let stat = procfs::process::Process::new(pid).ok()?.stat().ok()?;
    (stat.state != 'Z').then_some(stat.starttime)
}

fn folder() -> Result<PathBuf> {
    let folder = tools::cache_dir()?.join("shared");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn lock(folder: &Path, name: &str) -> Result<Flock<File>> {
    let file = File::create(folder.join(format!("{name}.lock")))?;
    // It waits at most as long as another test takes to start the server, which is bounded.
    Flock::lock(file, FlockArg::LockExclusive)
        .map_err(|(_, errno)| errno)
        .context("locking the record of a shared server")
}
