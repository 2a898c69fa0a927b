//! The generator proves itself: it is faster than what it measures, and it
//! tells of a server that stood still.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::net::TcpState;
use serde_json::Value;

use crate::generator::{run, start};

/// These tests load the machine: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// The static handler as a process of its own.
struct StaticTarget {
    child: Child,
    url: String,
}

impl StaticTarget {
    fn start() -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_static-target"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut url)
            .unwrap();
        let url = url.trim().to_owned();
        Self { child, url }
    }

    /// Waits until somebody has connected, by the kernel's table.
    fn wait_for_a_client(&self) {
        let port: u16 = self.url.rsplit(':').next().unwrap().parse().unwrap();
        let since = Instant::now();
        let connected = || {
            let table = procfs::net::tcp().unwrap();
            table.iter().any(|entry| {
                entry.remote_address.port() == port && entry.state == TcpState::Established
            })
        };
        while !connected() {
            assert!(since.elapsed() < Duration::from_secs(60), "nobody connects");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        kill(pid, signal).unwrap();
    }
}

impl Drop for StaticTarget {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A second of a server that stands still hits all who came in it, whatever
/// the generator's connections were doing. A closed loop would have sent next
/// to nothing in that second and called its p99.9 fine.
#[test]
fn a_server_that_stands_still_for_a_second_shows_in_p999_and_stops_no_arrival() {
    const RATE: u64 = 400;
    const USERS: u64 = 1600;
    let _alone = ALONE.lock();
    let server = StaticTarget::start();
    let users = USERS.to_string();
    let rate = RATE.to_string();
    let started = start(
        &server.url,
        &["--users", &users, "--rate", &rate, "--connections", "8"],
    );
    server.wait_for_a_client();
    // Somewhere in the run; where does not matter.
    std::thread::sleep(Duration::from_millis(500));
    server.signal(Signal::SIGSTOP);
    std::thread::sleep(Duration::from_secs(1));
    server.signal(Signal::SIGCONT);
    let run = started.finish();
    run.adds_up();
    assert_eq!(
        (run.code, run.count("sold_out")),
        (Some(0), USERS),
        "{}",
        run.stderr
    );
    let p999 = run.number("latency_ms.sold_out.p999");
    assert!(
        p999 >= 900.0,
        "p99.9 is {p999} ms after a pause of 1 s: {:#}",
        run.report
    );
    // All those who came in the second waited, half of them half a second.
    let waited = run.told.iter().filter(|line| wait_ms(line) >= 450).count() as u64;
    assert!(waited >= RATE * 2 / 5, "only {waited} clicks waited");
    // The model is open: in every tenth of a second, the pause too, as many
    // clicks were made as the rate says (a click at an edge counts to either).
    let start = run.told.iter().filter_map(intended_ms).min().unwrap();
    for tenth in 0..USERS * 10 / RATE {
        let from = start + tenth * 100;
        let clicks = run
            .told
            .iter()
            .filter_map(intended_ms)
            .filter(|at| (from..from + 100).contains(at))
            .count() as u64;
        assert!(
            clicks.abs_diff(RATE / 10) <= 1,
            "{clicks} clicks in tenth {tenth}"
        );
    }
}

fn intended_ms(line: &Value) -> Option<u64> {
    line["intended_ms"].as_u64()
}

fn wait_ms(line: &Value) -> u64 {
    line["done_ms"].as_u64().unwrap() - line["intended_ms"].as_u64().unwrap()
}

/// The generator must not be what a run measures: side by side in one run, on
/// the same processors, it reaches against a static handler at least 1.5 times
/// the rate at which it then drives an open run, and it keeps that rate.
///
/// The rate of the run is three tenths of what a probe just found, so the ratio
/// is above 3 on a quiet machine, and what is asserted leaves room for one whose
/// processors were taken away in between. The demo's own run proves the same of
/// itself, by `--headroom-seconds`.
#[test]
fn the_generator_reaches_one_and_a_half_times_the_rate_it_drives() {
    let _alone = ALONE.lock();
    let server = StaticTarget::start();
    let probe = run(&server.url, &["--probe-seconds", "2"]);
    assert_eq!(probe.code, Some(0), "{}", probe.stderr);
    let top = probe.number("claims_per_second");
    let rate = (top * 0.3).round();
    let args =
        |more: &[&str]| -> Vec<String> { more.iter().map(|arg| (*arg).to_owned()).collect() };
    let mut all = args(&["--repeat-share", "0.1", "--headroom-seconds", "2"]);
    all.extend([
        "--rate".to_owned(),
        rate.to_string(),
        "--users".to_owned(),
        (rate * 2.0).to_string(),
    ]);
    let all: Vec<_> = all.iter().map(String::as_str).collect();
    let run = run(&server.url, &all);
    assert_eq!(run.code, Some(0), "{}\n{}", run.stdout, run.stderr);
    assert!(run.number("headroom.times_the_rate") >= 1.5);
    let achieved = run.number("rate.achieved_per_second");
    assert!(
        achieved >= 0.8 * rate,
        "offered {rate}, achieved {achieved}, probed {top}: {:#}",
        run.report
    );
}

#[test]
fn a_rate_beyond_the_generator_is_refused() {
    let _alone = ALONE.lock();
    let server = StaticTarget::start();
    let run = run(
        &server.url,
        &["--rate", "5000000", "--headroom-seconds", "0.5"],
    );
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains("too slow for this rate"),
        "{}",
        run.stderr
    );
    assert!(run.told.is_empty());
}

#[test]
fn a_probe_tells_a_rate_and_that_a_target_answers_badly() {
    let _alone = ALONE.lock();
    let server = StaticTarget::start();
    let good = run(&server.url, &["--probe-seconds", "1"]);
    assert_eq!(good.code, Some(0), "{}", good.stderr);
    let printed: Value = serde_json::from_str(&good.stdout).unwrap();
    assert_eq!(printed, good.report);
    assert!(good.number("claims_per_second") > 0.0);
    drop(server);
    let bad = crate::server::Server::start(|_: &crate::server::Asked| {
        crate::server::answer(401, r#"{"code":"token_invalid"}"#)
    });
    let bad = run(&bad.url(), &["--probe-seconds", "0.5"]);
    assert_eq!((bad.code, bad.number("claims_per_second")), (Some(1), 0.0));
    assert!(bad.count("codes.token_invalid") > 0);
}
