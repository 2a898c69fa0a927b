//! A real Redis: one server, a master with replicas and sentinels, a cluster.

mod cluster;
mod sentinel;
mod tls;
mod trio;

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;

use crate::child::{Child, RunAs};
use crate::ports::Port;
use crate::proxy::Proxy;
use crate::resp::{RespConnection, Value};
use crate::tools;
use crate::wait::{self, Seen};

pub use cluster::{ClusterOptions, RedisCluster};
pub use sentinel::Sentinel;
pub use tls::Authority;
pub use trio::{RedisTrio, TrioOptions};

/// The users files that are shipped, with the passwords left open.
const USERS: &str = concat!(
    include_str!("../../../deploy/redis/users.acl"),
    include_str!("../../../deploy/redis/users-replicated.acl"),
);

/// The password of the test user `gateway`.
pub const GATEWAY_PASSWORD: &str = "gateway-test-password";

/// The password of the test user `operator`.
pub const OPERATOR_PASSWORD: &str = "operator-test-password";

/// The password of the user by whom replicas follow their master.
pub const REPLICATION_PASSWORD: &str = "replication-test-password";

/// The password of the user by whom sentinels watch servers and talk to each other.
pub const SENTINEL_PASSWORD: &str = "sentinel-test-password";

/// The user by whom clients ask the sentinels for the master.
pub const DISCOVERY_USER: &str = "dropgate";

/// The password of [`DISCOVERY_USER`].
pub const DISCOVERY_PASSWORD: &str = "discovery-test-password";

/// Where the connections of servers to one another come from, when there is more than one server:
/// not from where clients come, so that a [`Proxy`] can spare them.
pub const SERVERS: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

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
    /// Whether it stands behind a [`Proxy`] whose port it announces as its own, so that sentinels
    /// and the nodes of a cluster name that port to everybody. The connections of servers to one
    /// another pass through it untouched; a test may cut or delay those of the clients.
    pub proxied: bool,
    /// Who signs its certificate, if it listens on a port with TLS too.
    pub tls: Option<Arc<Authority>>,
    /// Further lines of `redis.conf`.
    pub extra: Vec<String>,
}

impl Default for RedisOptions {
    fn default() -> Self {
        Self {
            append_only: AppendOnly::Off,
            maxmemory_policy: "noeviction".into(),
            replica_of: None,
            proxied: false,
            tls: None,
            extra: Vec::new(),
        }
    }
}

/// A running Redis with the users `gateway` and `operator` of `deploy/redis/users.acl`, and, for
/// the tests themselves, a `default` user that may do everything.
#[derive(Debug)]
pub struct Redis {
    child: Child,
    proxy: Option<Proxy>,
    port: Port,
    tls_port: Option<Port>,
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
            let proxied = options.proxied;
            let proxy = proxied.then(|| Proxy::start_sparing(port.number(), SERVERS));
            let proxy = proxy.transpose()?;
            let announced = proxy.as_ref().map_or(port.number(), Proxy::port);
            let mut conf = config(options, port.number(), announced, folder.path())?;
            let tls_port = match &options.tls {
                Some(authority) => {
                    let tls_port = Port::reserve()?;
                    conf += &authority.config(tls_port.number(), folder.path())?;
                    Some(tls_port)
                }
                None => None,
            };
            for line in &options.extra {
                writeln!(conf, "{line}")?;
            }
            std::fs::write(folder.path().join("redis.conf"), conf)?;
            match run(port.number(), folder.path()) {
                Ok(child) => {
                    return Ok(Self {
                        child,
                        proxy,
                        port,
                        tls_port,
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

    /// The proxy that its clients go through, if it has one.
    #[must_use]
    pub fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// The port with TLS, if it has one.
    #[must_use]
    pub fn tls_port(&self) -> Option<u16> {
        self.tls_port.as_ref().map(Port::number)
    }

    /// The port that clients are told: the proxy's, if it has one.
    #[must_use]
    pub fn client_port(&self) -> u16 {
        self.proxy.as_ref().map_or(self.port(), Proxy::port)
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
        .replace("${DROPGATE_REPLICATION_PASSWORD}", REPLICATION_PASSWORD)
        .replace("${DROPGATE_SENTINEL_PASSWORD}", SENTINEL_PASSWORD)
        .replace("${DROPGATE_DISCOVERY_PASSWORD}", DISCOVERY_PASSWORD)
        .replace("user default off", "user default on nopass ~* &* +@all");
    if users.contains("${") || !users.contains("nopass") {
        bail!("a users file of deploy/redis is not as the tests expect it");
    }
    Ok(users)
}

fn config(options: &RedisOptions, port: u16, announced: u16, folder: &Path) -> Result<String> {
    let folder = folder.display();
    let mut conf = format!(
        "bind 127.0.0.1\nprotected-mode no\nport {port}\ndir {folder}\naclfile {folder}/users.acl\nsave \"\"\n\
         daemonize no\nloglevel notice\ntcp-backlog 4096\nmaxmemory-policy {}\n\
         repl-diskless-sync-delay 0\nenable-debug-command local\n\
         masteruser replication\nmasterauth {REPLICATION_PASSWORD}\nbind-source-addr {SERVERS}\n\
         replica-announce-ip 127.0.0.1\nreplica-announce-port {announced}\n\
         cluster-announce-ip 127.0.0.1\ncluster-announce-port {announced}\n",
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
    Ok(conf)
}

fn run(port: u16, folder: &Path) -> Result<Child> {
    run_as(port, folder, &[])
}

/// Starts the program on the `redis.conf` of a folder, and waits until it answers on its port.
fn run_as(port: u16, folder: &Path, options: &[String]) -> Result<Child> {
    let program = tools::find(
        "redis-server",
        &["/usr/local/bin".into(), "/usr/sbin".into()],
    )?;
    let mut args = vec![folder.join("redis.conf").display().to_string()];
    args.extend_from_slice(options);
    let log = folder.join("redis.log");
    let mut child = Child::start("redis", &program, &args, &[], &log, RunAs::Me)?;
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
        if mine && !info.contains("\nloading:1") {
            return Ok(Seen::Done(()));
        }
        Ok(Seen::NotYet(info.lines().take(3).collect()))
    })
    .context("starting Redis")?;
    Ok(child)
}
