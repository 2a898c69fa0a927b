//! Runs the binary and reads what it wrote.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

pub const SECRET: &str = "a secret of at least thirty-two bytes";
/// A run of these tests takes seconds; one that takes so long hangs.
const HANGS_AFTER: Duration = Duration::from_secs(240);

pub struct Run {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// The report, null when there is none.
    pub report: Value,
    /// The lines of the transcript.
    pub told: Vec<Value>,
}

impl Run {
    pub fn count(&self, field: &str) -> u64 {
        let value = field
            .split('.')
            .fold(&self.report, |value, name| &value[name]);
        value
            .as_u64()
            .unwrap_or_else(|| panic!("no number {field} in {:#}\n{}", self.report, self.stderr))
    }

    pub fn number(&self, field: &str) -> f64 {
        let value = field
            .split('.')
            .fold(&self.report, |value, name| &value[name]);
        value
            .as_f64()
            .unwrap_or_else(|| panic!("no number {field} in {:#}\n{}", self.report, self.stderr))
    }

    pub fn told(&self, status: &str) -> impl Iterator<Item = &Value> {
        self.told
            .iter()
            .filter(move |line| line["status"] == status)
    }

    /// Every click has one outcome, and its last line in the transcript says so.
    pub fn adds_up(&self) {
        let outcomes = ["won", "again", "sold_out", "other_4xx", "pending", "errors"];
        let sum: u64 = outcomes.iter().map(|name| self.count(name)).sum();
        assert_eq!(sum, self.count("attempts"), "{:#}", self.report);
        assert_eq!(self.count("users") + self.count("repeats"), sum);
        let voids = self.told("void").count() as u64;
        assert_eq!(self.told.len() as u64 - voids, sum);
    }
}

pub struct Started {
    child: Child,
    folder: TempDir,
}

/// Starts the generator for `targets` with more arguments.
pub fn start(targets: &str, more: &[&str]) -> Started {
    start_by(
        Command::new(env!("CARGO_BIN_EXE_dropgate-loadtest")),
        targets,
        more,
    )
}

/// The same by a command that runs the generator with what it is given.
pub fn start_by(mut command: Command, targets: &str, more: &[&str]) -> Started {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("secret"), format!("{SECRET}\n")).unwrap();
    command
        .args(["--target", targets, "--sale", "s1", "--token-secret-file"])
        .arg(at("secret"))
        .arg("--report")
        .arg(at("load.json"));
    if !more.contains(&"--probe-seconds") {
        command.arg("--transcript").arg(at("told.jsonl"));
    }
    let child = command
        .args(more)
        .stdin(Stdio::null())
        .stdout(File::create(at("stdout")).unwrap())
        .stderr(File::create(at("stderr")).unwrap())
        .spawn()
        .unwrap();
    Started { child, folder }
}

impl Started {
    /// Waits for the end.
    pub fn finish(mut self) -> Run {
        let since = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if since.elapsed() > HANGS_AFTER => {
                    self.child.kill().unwrap();
                    self.child.wait().unwrap();
                    panic!("the generator hangs; it wrote:\n{}", self.read("stderr"));
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        let told = self.read("told.jsonl");
        Run {
            code: status.code(),
            stdout: self.read("stdout"),
            stderr: self.read("stderr"),
            report: serde_json::from_str(&self.read("load.json")).unwrap_or(Value::Null),
            told: told
                .lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
        }
    }

    fn read(&self, name: &str) -> String {
        let path: PathBuf = self.folder.path().join(name);
        fs::read_to_string(path).unwrap_or_default()
    }
}

/// Starts the generator and waits for its end.
pub fn run(targets: &str, more: &[&str]) -> Run {
    start(targets, more).finish()
}
