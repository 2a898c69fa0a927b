//! Our own binaries as processes that can be killed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::child::{Child, RunAs};
use crate::http;
use crate::tools;
use crate::wait::{self, Seen};

/// How to tell that a process is up.
#[derive(Clone, Debug)]
pub enum Ready {
    /// A GET of this path on this port is answered with 200.
    Http(u16, String),
    /// Its output contains this text.
    Line(String),
    /// It has been started, no more.
    AtOnce,
}

/// A process to be started.
#[derive(Clone, Debug)]
pub struct ProcessOptions {
    program: PathBuf,
    name: String,
    args: Vec<String>,
    envs: Vec<(String, String)>,
    log: Option<PathBuf>,
    ready: Ready,
}

/// A running process. What it prints goes to a file; it ends with this value.
#[derive(Debug)]
pub struct Process {
    child: Child,
    options: ProcessOptions,
    log: PathBuf,
    _folder: Option<TempDir>,
}

impl ProcessOptions {
    /// One of our own binaries, for example `dropgate-gateway`, from the folder that the running
    /// test was built in.
    ///
    /// # Errors
    /// When it has not been built.
    pub fn of_ours(binary: &str) -> Result<Self> {
        let folder = tools::profile_dir()?;
        let program = folder.join(binary);
        if !program.is_file() {
            bail!(
                "{binary} is not in {}: run `cargo build --workspace --bins` first",
                folder.display()
            );
        }
        Ok(Self::program(&program))
    }

    /// Any program.
    #[must_use]
    pub fn program(program: &Path) -> Self {
        let name = program.file_name().unwrap_or_default();
        Self {
            program: program.to_owned(),
            name: name.to_string_lossy().into_owned(),
            args: Vec::new(),
            envs: Vec::new(),
            log: None,
            ready: Ready::AtOnce,
        }
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable. The rest of the environment is inherited, less whatever begins
    /// with `DROPGATE_`.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.envs.push((name.to_owned(), value.into()));
        self
    }

    /// Where its output goes; a temporary file by default.
    #[must_use]
    pub fn log(mut self, file: &Path) -> Self {
        self.log = Some(file.to_owned());
        self
    }

    /// How to tell that it is up.
    #[must_use]
    pub fn ready(mut self, ready: Ready) -> Self {
        self.ready = ready;
        self
    }

    /// Starts it and waits until it is up.
    ///
    /// # Errors
    /// When it cannot be started, ends, or is not up within [`wait::START`]; with its output.
    pub fn start(self) -> Result<Process> {
        let (folder, log) = match &self.log {
            Some(log) => (None, log.clone()),
            None => {
                let folder = tempfile::Builder::new()
                    .prefix("dropgate-process-")
                    .tempdir()?;
                let log = folder.path().join("output.log");
                (Some(folder), log)
            }
        };
        let child = self.run(&log)?;
        Ok(Process {
            child,
            options: self,
            log,
            _folder: folder,
        })
    }

    fn run(&self, log: &Path) -> Result<Child> {
        let from = std::fs::metadata(log).map_or(0, |file| file.len());
        // Variables of the surrounding shell must not leak into a test: an empty value is not the
        // same as none, so they are unset by `env -u`.
        let mut args: Vec<String> = std::env::vars_os()
            .filter_map(|(name, _)| name.into_string().ok())
            .filter(|name| name.starts_with("DROPGATE_"))
            .flat_map(|name| ["-u".to_owned(), name])
            .collect();
        args.extend(self.envs.iter().map(|(k, v)| format!("{k}={v}")));
        args.push(self.program.display().to_string());
        args.extend(self.args.iter().cloned());
        let env = tools::find("env", &[])?;
        let mut child = Child::start(&self.name, &env, &args, &[], log, RunAs::Me)?;
        wait::until(&format!("{} to be ready", self.name), wait::START, || {
            child.check_alive()?;
            Ok(match self.seen(log, from) {
                Ok(()) => Seen::Done(()),
                Err(error) => Seen::NotYet(format!("{error:#}\n{}", tools::tail_of(log))),
            })
        })?;
        Ok(child)
    }

    fn seen(&self, log: &Path, from: u64) -> Result<()> {
        match &self.ready {
            Ready::AtOnce => Ok(()),
            Ready::Http(port, path) => match http::get(*port, path)? {
                answer if answer.status == 200 => Ok(()),
                answer => bail!("{path} answers {}: {}", answer.status, answer.body),
            },
            Ready::Line(text) => {
                let output = std::fs::read(log)?;
                let new = output.get(usize::try_from(from)?..).unwrap_or_default();
                let found = String::from_utf8_lossy(new).contains(text);
                found
                    .then_some(())
                    .with_context(|| format!("{text:?} has not been printed"))
            }
        }
    }
}

impl Process {
    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Whether it runs.
    pub fn alive(&mut self) -> bool {
        self.child.alive()
    }

    /// What it has printed so far, by all its runs.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn output(&self) -> Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(&self.log)?).into_owned())
    }

    /// The file that its output goes to.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// The most memory that this run has had so far, in bytes; `None` when it has ended.
    #[must_use]
    pub fn peak_rss_bytes(&self) -> Option<u64> {
        self.child.peak_rss_bytes()
    }

    /// The processor time that this run has used so far; `None` when it has ended.
    #[must_use]
    pub fn cpu_time(&self) -> Option<Duration> {
        self.child.cpu_time()
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill9(&mut self) -> Result<()> {
        self.child.kill9()
    }

    /// Stops it where it is (SIGSTOP).
    ///
    /// # Errors
    /// When it has ended.
    pub fn pause(&mut self) -> Result<()> {
        self.child.pause()
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&mut self) -> Result<()> {
        self.child.resume()
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it has ended.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        self.child.signal(signal)
    }

    /// Asks it to end (SIGTERM) and waits for that; its exit code, or `None` when a signal ended it.
    ///
    /// # Errors
    /// When it has not ended within the bound.
    pub fn terminate(&mut self, bound: Duration) -> Result<Option<i32>> {
        Ok(self.child.terminate(bound)?.code())
    }

    /// Waits until it ends by itself; its exit code, or `None` when a signal ended it.
    ///
    /// # Errors
    /// When it has not ended within the bound.
    pub fn wait(&mut self, bound: Duration) -> Result<Option<i32>> {
        Ok(self.child.wait(bound)?.code())
    }

    /// Starts it again as it was started, after killing it if it still runs.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn restart(&mut self) -> Result<()> {
        self.kill9()?;
        self.child = self.options.run(&self.log)?;
        Ok(())
    }
}
