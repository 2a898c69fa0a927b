//! The kit stops what it started, and nothing else, whatever happens to it.

use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use dropgate_testkit::wait::{self, Seen};
use dropgate_testkit::{ProcessOptions, Ready, Redis, RedisOptions};

const BOUND: Duration = Duration::from_secs(60);
/// Set in the child process that this file's tests start: the test of this name then plays it.
const ROLE: &str = "TESTKIT_ROLE";

fn wait_until_gone(pid: u32) -> Result<()> {
    wait::until(&format!("process {pid} to go"), BOUND, || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        Ok(match stat {
            Err(_) => Seen::Done(()),
            Ok(stat) if stat.contains(") Z ") => Seen::Done(()),
            Ok(stat) => Seen::NotYet(stat),
        })
    })
}

#[test]
fn a_killed_test_process_takes_its_servers_with_it() -> Result<()> {
    if std::env::var_os(ROLE).is_some() {
        // On a thread that ends at once: the server must live as long as the process all the same.
        let redis = std::thread::spawn(|| Redis::start(&RedisOptions::default()))
            .join()
            .ok()
            .context("the thread")??;
        redis.cli(&["PING"])?;
        println!("\nREDIS {} {}.", redis.pid(), redis.port());
        std::thread::park();
    }
    let me = std::env::current_exe()?;
    let test = "ownership::a_killed_test_process_takes_its_servers_with_it";
    let mut process = ProcessOptions::program(&me)
        .args(["--exact", test, "--nocapture"])
        .env(ROLE, "1")
        .ready(Ready::Line(".\n".into()))
        .start()?;
    let output = process.output()?;
    let line = output.lines().find_map(|line| line.strip_prefix("REDIS "));
    let (pid, port) = line
        .and_then(|line| line.trim_end_matches('.').split_once(' '))
        .with_context(|| output.clone())?;
    let (pid, port): (u32, u16) = (pid.parse()?, port.parse()?);
    let mut connection = dropgate_testkit::RespConnection::connect(port)?;
    assert_eq!(connection.command(&["PING"])?.to_string(), "PONG");

    process.kill9()?;
    wait_until_gone(pid)?;
    // Its first thread may be gone a moment before the others let go of the port.
    wait::until("the port to be closed", BOUND, || {
        Ok(match dropgate_testkit::RespConnection::connect(port) {
            Err(_) => Seen::Done(()),
            Ok(_) => Seen::NotYet("it answers".into()),
        })
    })
}

#[test]
fn what_it_did_not_start_runs_on() -> Result<()> {
    // A stranger's Redis, started without the kit.
    let folder = tempfile::tempdir()?;
    let port = dropgate_testkit::ports::Port::reserve()?;
    let mut stranger = Command::new("redis-server")
        .args(["--port", &port.number().to_string(), "--save", ""])
        .current_dir(folder.path())
        .stdout(Stdio::null())
        .spawn()?;
    let answers = || {
        let connection = dropgate_testkit::RespConnection::connect(port.number());
        connection.and_then(|mut connection| connection.command(&["PING"]))
    };
    wait::until("the stranger's Redis", BOUND, || {
        Ok(match answers() {
            Ok(_) => Seen::Done(()),
            Err(error) => Seen::NotYet(format!("{error:#}")),
        })
    })?;

    let mut ours = Redis::start(&RedisOptions::default())?;
    ours.kill9()?;
    // Twice, and after it has gone: its id may be somebody else's by now.
    ours.kill9()?;
    assert!(
        ours.pause().is_err(),
        "a signal went to a process that has ended"
    );
    drop(ours);

    let survived = stranger.try_wait()?.is_none() && answers().is_ok();
    stranger.kill()?;
    stranger.wait()?;
    assert!(survived, "the stranger's Redis is gone");
    Ok(())
}

#[test]
fn two_reservations_never_share_a_port() -> Result<()> {
    let ports = (0..50)
        .map(|_| dropgate_testkit::ports::Port::reserve())
        .collect::<Result<Vec<_>>>()?;
    let numbers: std::collections::BTreeSet<u16> = ports.iter().map(|port| port.number()).collect();
    assert_eq!(numbers.len(), ports.len());
    assert!(
        numbers
            .iter()
            .all(|&number| (11_000..22_000).contains(&number))
    );
    Ok(())
}
