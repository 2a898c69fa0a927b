//! A child process that cannot outlive its owner.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{LazyLock, Mutex, PoisonError};

use anyhow::{Context, Result, anyhow, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::tools;
use crate::wait::{self, Seen};

/// Who a child runs as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunAs {
    /// The user of this process.
    Me,
    /// An unprivileged user if this process is root's; else the user of this process. For servers
    /// that refuse to be root.
    NotRoot,
}

/// A child process. It is killed (SIGKILL) and waited for when this value is dropped, and by the
/// kernel when this process ends in any way, so that no test leaves a server behind.
#[derive(Debug)]
pub struct Child {
    name: String,
    inner: std::process::Child,
    log: PathBuf,
    paused: bool,
}

type Request = (Command, Sender<std::io::Result<std::process::Child>>);

/// The kernel's "signal when the parent dies" means the parent's *thread*. Tests start servers from
/// threads that end before the process does, so one thread that never ends starts all children.
static SPAWNER: LazyLock<Mutex<Sender<Request>>> = LazyLock::new(|| {
    let (sender, requests): (Sender<Request>, Receiver<Request>) = channel();
    let run = move || {
        for (mut command, reply) in requests {
            let _ = reply.send(command.spawn());
        }
    };
    // If the thread cannot be started, `spawn` below reports that nobody took its request.
    let _ = std::thread::Builder::new()
        .name("testkit-spawner".into())
        .spawn(run);
    Mutex::new(sender)
});

impl Child {
    /// Starts `program` with its output going to the end of `log` and nothing on its input.
    ///
    /// # Errors
    /// When the program or `setpriv` is not there, or cannot be started.
    pub fn start(
        name: &str,
        program: &Path,
        args: &[String],
        envs: &[(String, String)],
        log: &Path,
        user: RunAs,
    ) -> Result<Self> {
        Self::start_with(name, program, args, envs, log, user, Signal::SIGKILL)
    }

    /// Like [`Child::start`], with the signal that the kernel sends it when this process is gone.
    ///
    /// # Errors
    /// When the program or `setpriv` is not there, or cannot be started.
    pub fn start_with(
        name: &str,
        program: &Path,
        args: &[String],
        envs: &[(String, String)],
        log: &Path,
        user: RunAs,
        orphaned: Signal,
    ) -> Result<Self> {
        let mut command = Command::new(tools::find("setpriv", &[])?);
        if let Some(unprivileged) = unprivileged(user)? {
            command.args([
                &format!("--reuid={}", unprivileged.uid),
                &format!("--regid={}", unprivileged.gid),
                "--clear-groups",
            ]);
        }
        let out = File::options().create(true).append(true).open(log);
        let out = out.with_context(|| format!("opening {}", log.display()))?;
        command
            .args([
                "--pdeathsig",
                orphaned.as_str().trim_start_matches("SIG"),
                "--",
            ])
            .arg(program)
            .args(args)
            .envs(envs.iter().map(|(k, v)| (k, v)))
            .stdin(Stdio::null())
            .stdout(out.try_clone()?)
            .stderr(out);
        let (sender, reply) = channel();
        SPAWNER
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .send((command, sender))
            .map_err(|_| anyhow!("the thread that starts children is gone"))?;
        let inner = reply
            .recv()
            .context("the thread that starts children is gone")?
            .with_context(|| format!("starting {name}"))?;
        Ok(Self {
            name: name.to_owned(),
            inner,
            log: log.to_owned(),
            paused: false,
        })
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.inner.id()
    }

    /// The file that its output goes to.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Whether it runs (a paused process does).
    pub fn alive(&mut self) -> bool {
        matches!(self.inner.try_wait(), Ok(None))
    }

    /// Fails with the end of its output if it has ended.
    ///
    /// # Errors
    /// When it has ended.
    pub fn check_alive(&mut self) -> Result<()> {
        match self.inner.try_wait()? {
            None => Ok(()),
            Some(status) => bail!(
                "{} ended with {status}:\n{}",
                self.name,
                tools::tail_of(&self.log)
            ),
        }
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When it has ended, or the kernel refuses.
    pub fn signal(&mut self, signal: Signal) -> Result<()> {
        // Not reaped means that the id is still ours: it cannot hit a process that took it over.
        self.check_alive()?;
        let pid = Pid::from_raw(i32::try_from(self.pid()).context("a pid has 31 bits")?);
        kill(pid, signal).with_context(|| format!("sending {signal} to {}", self.name))
    }

    /// Stops it where it is (SIGSTOP).
    ///
    /// # Errors
    /// When it has ended.
    pub fn pause(&mut self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        self.paused = true;
        Ok(())
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&mut self) -> Result<()> {
        self.signal(Signal::SIGCONT)?;
        self.paused = false;
        Ok(())
    }

    /// Kills it as a power cut would (SIGKILL) and waits until it is gone. Nothing happens when it
    /// has ended already.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill9(&mut self) -> Result<()> {
        if self.alive() {
            self.inner
                .kill()
                .with_context(|| format!("killing {}", self.name))?;
        }
        self.inner.wait()?;
        Ok(())
    }

    /// Asks it to end (SIGTERM) and waits for that.
    ///
    /// # Errors
    /// When it has not ended within the bound.
    pub fn terminate(&mut self, bound: std::time::Duration) -> Result<ExitStatus> {
        if self.paused {
            self.resume()?;
        }
        self.signal(Signal::SIGTERM)?;
        self.wait(bound)
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When it has not ended within the bound.
    pub fn wait(&mut self, bound: std::time::Duration) -> Result<ExitStatus> {
        let what = format!("the end of {}", self.name);
        wait::until(&what, bound, || match self.inner.try_wait()? {
            Some(status) => Ok(Seen::Done(status)),
            None => Ok(Seen::NotYet(tools::tail_of(&self.log))),
        })
    }

    /// The processor time it has used so far, in user and kernel; `None` when it has ended.
    #[must_use]
    pub fn cpu_time(&self) -> Option<std::time::Duration> {
        let pid = i32::try_from(self.pid()).ok()?;
        let stat = procfs::process::Process::new(pid).ok()?.stat().ok()?;
        let micros = (stat.utime + stat.stime) * 1_000_000 / procfs::ticks_per_second();
        Some(std::time::Duration::from_micros(micros))
    }

    /// The most memory it has had so far, in bytes (`VmHWM`); `None` when it has ended.
    #[must_use]
    pub fn peak_rss_bytes(&self) -> Option<u64> {
        let pid = i32::try_from(self.pid()).ok()?;
        let status = procfs::process::Process::new(pid).ok()?.status().ok()?;
        Some(status.vmhwm? * 1024)
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if let Err(error) = self.kill9() {
            tracing::error!(child = self.name, %error, "a child could not be ended");
        }
    }
}

/// The user that servers run as which refuse to be root: `postgres`, else `nobody`. `None` when
/// this process is not root's.
///
/// # Errors
/// When this process is root's and neither user exists.
pub fn unprivileged(user: RunAs) -> Result<Option<nix::unistd::User>> {
    if user == RunAs::Me || !nix::unistd::geteuid().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Some(user) = nix::unistd::User::from_name(name)? {
            return Ok(Some(user));
        }
    }
    bail!("this process is root's, and there is neither a user postgres nor nobody")
}
