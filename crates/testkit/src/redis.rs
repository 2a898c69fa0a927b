//! A real Redis.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::child::{Child, RunAs};
use crate::ports::Port;
use crate::resp::{RespConnection, Value};
use crate::tools;
use crate::wait::{self, Seen};

/// The users file that is shipped, with the passwords left open.
const USERS: &str = include_str!("../../../deploy/redis/users.acl");

/// The password of the test user `gateway`.
pub const GATEWAY_PASSWORD: &str = "gateway-test-password";

/// The password of the test user `operator`.
pub const OPERATOR_PASSWORD: &str = "operator-test-password";

/// Whether and how Redis writes its commands to disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AppendOnly {
    /// Nothing is written: a restart forgets everything.
    #[default]
    Off,
    /// Flushed once a second: `kill -9` may lose the last second.
    Everysec,
    /// Flushed before every reply.
    Always,
}

/// How a Redis is started.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// Whether it writes to disk; off by default.
    pub append_only: AppendOnly,
    /// The eviction policy; `noeviction` by default.
    pub maxmemory_policy: String,
    /// The port of a master on this machine to replicate from.
    pub replica_of: Option<u16>,
    /// Further lines of `redis.conf`.
    pub extra: Vec<String>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            append_only: AppendOnly::Off,
            maxmemory_policy: "noeviction".into(),
            replica_of: None,
            extra: Vec::new(),
        }
    }
}

/// A running Redis with the users `gateway` and `operator` of `deploy/redis/users.acl`, and, for
/// the tests themselves, a `default` user that may do everything.
#[derive(Debug)]
pub struct Redis {
    child: Child,
    port: Port,
    folder: TempDir,
}

impl Redis {
    /// Starts a Redis and waits until it answers.
    ///
    /// # Errors
    /// When Redis is not installed or does not come up.
    pub fn start(options: &RedisOptions) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("dropgate-redis-")
            .tempdir()?;
        let users = users_file(USERS)?;
        std::fs::write(folder.path().join("users.acl"), users)?;
        let mut tries = 0;
        loop {
            let port = Port::reserve()?;
            let conf = config(options, port.number(), folder.path())?;
            std::fs::write(folder.path().join("redis.conf"), conf)?;
            match run(port.number(), folder.path()) {
                Ok(child) => {
                    return Ok(Self {
                        child,
                        port,
                        folder,
                    });
                }
                // Somebody else may have bound the port between our look and Redis' own.
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

    /// The folder with its configuration, log and data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The URL of the all-powerful default user.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// The URL of the restricted user that gateways have.
    #[must_use]
    pub fn gateway_url(&self) -> String {
        Self::gateway_url_at(self.port())
    }

    /// The gateways' URL by way of another port, for example a proxy's.
    #[must_use]
    pub fn gateway_url_at(port: u16) -> String {
        format!("redis://gateway:{GATEWAY_PASSWORD}@127.0.0.1:{port}")
    }

    /// The URL of the user who may load scripts.
    #[must_use]
    pub fn operator_url(&self) -> String {
        Self::operator_url_at(self.port())
    }

    /// The operators' URL by way of another port, for example a proxy's.
    #[must_use]
    pub fn operator_url_at(port: u16) -> String {
        format!("redis://operator:{OPERATOR_PASSWORD}@127.0.0.1:{port}")
    }

    /// A connection as the all-powerful default user.
    ///
    /// # Errors
    /// When Redis does not listen.
    pub fn connect(&self) -> Result<RespConnection> {
        RespConnection::connect(self.port())
    }

    /// A connection as the user of this name and password.
    ///
    /// # Errors
    /// When Redis does not listen or refuses the user.
    pub fn connect_as(&self, user: &str, password: &str) -> Result<RespConnection> {
        let mut connection = self.connect()?;
        match connection.command(&["AUTH", user, password])? {
            Value::Status(_) => Ok(connection),
            other => bail!("Redis refuses {user}: {other}"),
        }
    }

    /// Runs one command as the default user, on a connection of its own.
    ///
    /// # Errors
    /// When the connection fails. An error of Redis is a [`Value::Error`].
    pub fn command<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<Value> {
        self.connect()?.command(args)
    }

    /// Runs one command as the default user and gives its reply as text, one item a line.
    ///
    /// # Errors
    /// When the connection fails, or Redis answers with an error.
    pub fn cli<A: AsRef<[u8]>>(&self, args: &[A]) -> Result<String> {
        match self.command(args)? {
            Value::Error(error) => bail!("Redis says: {error}"),
            value => Ok(value.to_string()),
        }
    }

    /// Makes this Redis a master (`REPLICAOF NO ONE`), as a failover does.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn promote(&self) -> Result<()> {
        self.cli(&["REPLICAOF", "NO", "ONE"]).map(drop)
    }

    /// Waits until this Redis is a replica that has a link to its master and all its data.
    ///
    /// # Errors
    /// When it has not within the bound.
    pub fn wait_for_replication(&self) -> Result<()> {
        wait::until("a replica in sync", wait::START, || {
            let info = self.cli(&["INFO", "replication"])?;
            Ok(if info.contains("master_link_status:up") {
                Seen::Done(())
            } else {
                Seen::NotYet(info)
            })
        })
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill9(&mut self) -> Result<()> {
        self.child.kill9()
    }

    /// Stops it where it is (SIGSTOP): connections stay, nothing answers.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pause(&mut self) -> Result<()> {
        self.child.pause()
    }

    /// Lets it go on (SIGCONT): it runs everything that has come in meanwhile.
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&mut self) -> Result<()> {
        self.child.resume()
    }

    /// Starts it again on the same port and folder, after killing it if it still runs.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn restart(&mut self) -> Result<()> {
        self.kill9()?;
        self.child = run(self.port(), self.folder.path())?;
        Ok(())
    }
}

/// The shipped users file with the tests' passwords, and with a default user.
fn users_file(shipped: &str) -> Result<String> {
    let users = shipped
        .replace("${DROPGATE_GATEWAY_PASSWORD}", GATEWAY_PASSWORD)
        .replace("${DROPGATE_OPERATOR_PASSWORD}", OPERATOR_PASSWORD)
        .replace("user default off", "user default on nopass ~* &* +@all");
    if users.contains("${") || !users.contains("nopass") {
        bail!("deploy/redis/users.acl is not as the tests expect it");
    }
    Ok(users)
}

fn config(options: &RedisOptions, port: u16, folder: &Path) -> Result<String> {
    let folder = folder.display();
    let mut conf = format!(
        "bind 127.0.0.1\nport {port}\ndir {folder}\naclfile {folder}/users.acl\nsave \"\"\n\
         daemonize no\nloglevel notice\ntcp-backlog 4096\nmaxmemory-policy {}\n\
         repl-diskless-sync-delay 0\nenable-debug-command local\n",
        options.maxmemory_policy
    );
    match options.append_only {
        AppendOnly::Off => conf.push_str("appendonly no\n"),
        AppendOnly::Everysec => conf.push_str("appendonly yes\nappendfsync everysec\n"),
        AppendOnly::Always => conf.push_str("appendonly yes\nappendfsync always\n"),
    }
    if let Some(master) = options.replica_of {
        writeln!(conf, "replicaof 127.0.0.1 {master}")?;
    }
    for line in &options.extra {
        writeln!(conf, "{line}")?;
    }
    Ok(conf)
}

fn run(port: u16, folder: &Path) -> Result<Child> {
    let program = tools::find(
        "redis-server",
        &["/usr/local/bin".into(), "/usr/sbin".into()],
    )?;
    let conf = folder.join("redis.conf").display().to_string();
    let log = folder.join("redis.log");
    let mut child = Child::start("redis", &program, &[conf], &[], &log, RunAs::Me)?;
    let pid = child.pid();
    wait::until("Redis to answer", wait::START, || {
        child.check_alive()?;
        // INFO also tells the answers of our Redis from those of a stranger on the same port.
        let info = RespConnection::connect(port).and_then(|mut c| c.command(&["INFO", "all"]));
        let info = match info {
            Ok(info) => info.to_string(),
            Err(error) => return Ok(Seen::NotYet(format!("{error:#}"))),
        };
        let mine = info
            .lines()
            .any(|line| line.trim() == format!("process_id:{pid}"));
        if mine && info.contains("\nloading:0") {
            return Ok(Seen::Done(()));
        }
        Ok(Seen::NotYet(info.lines().take(3).collect()))
    })
    .context("starting Redis")?;
    Ok(child)
}
