//! The same keys, loaded by redis-cli in its pipe mode, with nothing between.

use crate::wins::{attempt, user};
use anyhow::{Context, Result, ensure};
use dropgate_testkit::Redis;
use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const KEY: &str = "dropgate:{bare}:claims";

/// Loads one hash with a field for each win, and deletes it again. Tells how long the load took.
pub fn load(redis: &Redis, wins: u64) -> Result<Duration> {
    // Made beforehand, so that only the load is measured.
    let file = tempfile::NamedTempFile::new()?;
    let mut out = BufWriter::new(file.reopen()?);
    for unit in 1..=wins {
        let mut value = unit.to_le_bytes().to_vec();
        value.extend(unit.to_le_bytes());
        value.extend(attempt(unit));
        value.push(0);
        let user = user(unit);
        let args: [&[u8]; 4] = [b"HSET", KEY.as_bytes(), user.as_bytes(), &value];
        write!(out, "*{}\r\n", args.len())?;
        for arg in args {
            write!(out, "${}\r\n", arg.len())?;
            out.write_all(arg)?;
            out.write_all(b"\r\n")?;
        }
    }
    out.flush()?;
    let begun = Instant::now();
    let done = Command::new("redis-cli")
        .args(["-p", &redis.port().to_string(), "--pipe"])
        .stdin(file.reopen()?)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .output()
        .context("redis-cli")?;
    let took = begun.elapsed();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    ensure!(
        done.status.success() && said.contains("errors: 0"),
        "{said}"
    );
    let count = redis.cli(&["HLEN", KEY])?;
    ensure!(count.trim() == wins.to_string(), "{count} of {wins}");
    redis.cli(&["DEL", KEY])?;
    Ok(took)
}
