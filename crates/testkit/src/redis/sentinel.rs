//! One sentinel.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use super::{SENTINEL_PASSWORD, SERVERS, run_as, users_file};
use crate::child::Child;
use crate::ports::Port;
use crate::resp::{RespConnection, Value};

/// The users file of sentinels that is shipped.
const USERS: &str = include_str!("../../../../deploy/redis/users-of-sentinels.acl");

/// How long a question to a sentinel may take: some may be paused.
const ANSWER: Duration = Duration::from_secs(2);

/// What a sentinel is to watch.
#[derive(Debug)]
pub(super) struct Watch<'a> {
    pub(super) service: &'a str,
    pub(super) master_port: u16,
    pub(super) quorum: usize,
    pub(super) down_after_ms: u32,
    pub(super) failover_timeout_ms: u32,
}

/// A sentinel: `redis-server --sentinel`, with the users of `deploy/redis/users-of-sentinels.acl`
/// and, for the tests themselves, a `default` user that may do everything.
#[derive(Debug)]
pub struct Sentinel {
    child: Child,
    port: Port,
    folder: TempDir,
}

impl Sentinel {
    pub(super) fn start(watch: &Watch<'_>) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("dropgate-sentinel-")
            .tempdir()?;
        std::fs::write(folder.path().join("users.acl"), users_file(USERS)?)?;
        let mut tries = 0;
        loop {
            let port = Port::reserve()?;
            let conf = config(watch, port.number(), folder.path());
            std::fs::write(folder.path().join("redis.conf"), conf)?;
            match run(port.number(), folder.path()) {
                Ok(child) => {
                    return Ok(Self {
                        child,
                        port,
                        folder,
                    });
                }
                Err(error) if tries == 4 => return Err(error),
                Err(_) => tries += 1,
            }
        }
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// The folder with its configuration, which it rewrites itself, and its log.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs one command as the default user, on a connection of its own.
    ///
    /// # Errors
    /// When the connection fails or it does not answer within two seconds. An error of the
    /// sentinel is a [`Value::Error`].
    pub fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Value> {
        RespConnection::connect_within(self.port(), ANSWER)?.command(args)
    }

    /// Runs one command as the default user and gives its reply as text, one item a line.
    ///
    /// # Errors
    /// When the connection fails, or the sentinel answers with an error.
    pub fn cli<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<String> {
        match self.command(args)? {
            Value::Error(error) => bail!("the sentinel says: {error}"),
            value => Ok(value.to_string()),
        }
    }

    /// What it knows of the master of a service: the fields of `SENTINEL MASTER`.
    ///
    /// # Errors
    /// As [`Sentinel::cli`].
    pub fn master(&self, service: &str) -> Result<BTreeMap<String, String>> {
        let reply = self.command(&["SENTINEL", "MASTER", service])?;
        fields(&reply).with_context(|| format!("the reply {reply:?}"))
    }

    /// What it knows of the replicas of a service: for each the fields of `SENTINEL REPLICAS`.
    ///
    /// # Errors
    /// As [`Sentinel::cli`].
    pub fn replicas(&self, service: &str) -> Result<Vec<BTreeMap<String, String>>> {
        let reply = self.command(&["SENTINEL", "REPLICAS", service])?;
        let all = reply
            .items()
            .with_context(|| format!("the reply {reply:?}"))?;
        let one = |reply| fields(reply).with_context(|| format!("the reply {reply:?}"));
        all.iter().map(one).collect()
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill9(&mut self) -> Result<()> {
        self.child.kill9()
    }

    /// Stops it where it is (SIGSTOP). Continued, it does not trust its clock for a few seconds
    /// ("tilt") and takes no part in failovers meanwhile.
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

    /// Starts it again on the same port with what it last wrote down, after killing it if it runs.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn restart(&mut self) -> Result<()> {
        self.kill9()?;
        self.child = run(self.port(), self.folder.path())?;
        Ok(())
    }
}

/// A reply that alternates names and values.
fn fields(reply: &Value) -> Option<BTreeMap<String, String>> {
    let items = reply.items()?;
    let pair = |pair: &[Value]| Some((pair.first()?.text()?, pair.get(1)?.text()?));
    items.chunks(2).map(pair).collect()
}

fn config(watch: &Watch<'_>, port: u16, folder: &Path) -> String {
    let folder = folder.display();
    let Watch {
        service,
        master_port,
        quorum,
        down_after_ms,
        failover_timeout_ms,
    } = watch;
    format!(
        "bind 127.0.0.1\nprotected-mode no\nport {port}\ndir {folder}\naclfile {folder}/users.acl\ndaemonize no\n\
         bind-source-addr {SERVERS}\nsentinel announce-ip 127.0.0.1\n\
         sentinel sentinel-user sentinel\nsentinel sentinel-pass {SENTINEL_PASSWORD}\n\
         sentinel monitor {service} 127.0.0.1 {master_port} {quorum}\n\
         sentinel auth-user {service} sentinel\nsentinel auth-pass {service} {SENTINEL_PASSWORD}\n\
         sentinel down-after-milliseconds {service} {down_after_ms}\n\
         sentinel failover-timeout {service} {failover_timeout_ms}\n\
         sentinel parallel-syncs {service} 4\n"
    )
}

/// The periods of a sentinel's own work, in ms. As they come they are made for days: a second
/// between two pings, two until it has greeted the others, ten until it has asked a server who
/// its replicas are, thirty of distrust after its clock has jumped.
const PERIODS: [(&str, u32); 6] = [
    ("PING-PERIOD", 200),
    ("ASK-PERIOD", 200),
    ("PUBLISH-PERIOD", 300),
    ("INFO-PERIOD", 1000),
    ("MIN-LINK-RECONNECT-PERIOD", 1000),
    ("TILT-PERIOD", 5000),
];

fn run(port: u16, folder: &Path) -> Result<Child> {
    let child = run_as(port, folder, &["--sentinel".to_owned()])?;
    for (name, ms) in PERIODS {
        let set = ["SENTINEL", "DEBUG", name, &ms.to_string()];
        let reply = RespConnection::connect(port)?.command(&set)?;
        if let Value::Error(error) = reply {
            bail!("SENTINEL DEBUG {name}: {error}");
        }
    }
    Ok(child)
}
