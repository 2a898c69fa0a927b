//! A master, its replicas, and three sentinels that watch over them.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::sentinel::Watch;
use super::{AppendOnly, Redis, RedisOptions, Sentinel};
use crate::resp::Value;
use crate::wait::{self, Seen};

/// How many sentinels there are, and how many of them are a majority.
const SENTINELS: usize = 3;
const MAJORITY: usize = 2;

/// How a [`RedisTrio`] is started.
#[derive(Clone, Debug)]
pub struct TrioOptions {
    /// How many replicas the master has; 1 by default.
    pub replicas: usize,
    /// Whether the servers write to disk; off by default.
    pub append_only: AppendOnly,
    /// Whether each server stands behind a proxy; see [`RedisOptions::proxied`].
    pub proxied: bool,
    /// After how many ms of silence a sentinel takes a server for down; 700 by default.
    pub down_after_ms: u32,
    /// `failover-timeout`: a failover that is not through by then is given up, and the next one
    /// begins after twice this time; 2,000 ms by default.
    pub failover_timeout_ms: u32,
    /// Further lines of every server's `redis.conf`.
    pub extra: Vec<String>,
}

impl Default for TrioOptions {
    fn default() -> Self {
        Self {
            replicas: 1,
            append_only: AppendOnly::Off,
            proxied: false,
            down_after_ms: 700,
            failover_timeout_ms: 2000,
            extra: Vec::new(),
        }
    }
}

/// A master with replicas and three sentinels, all of them processes of their own. A server is
/// named by its index; which of them is the master changes.
///
/// ```no_run
/// # fn main() -> anyhow::Result<()> {
/// use dropgate_testkit::{RedisTrio, TrioOptions};
/// let mut trio = RedisTrio::start(&TrioOptions::default())?;
/// let old = trio.master()?;
/// trio.server_mut(old).kill9()?;
/// let new = trio.wait_for_new_master(old)?;
/// trio.server_mut(old).restart()?;
/// assert_eq!(trio.wait_healthy()?, new);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RedisTrio {
    // Before the servers, so that they do not see them end.
    sentinels: Vec<Sentinel>,
    servers: Vec<Redis>,
}

impl RedisTrio {
    /// The name by which sentinels know the master.
    pub const SERVICE: &'static str = "dropgate";

    /// Starts everything and waits until it is [healthy](Self::wait_healthy). The first server is
    /// the master.
    ///
    /// # Errors
    /// When Redis is not installed or something does not come up.
    pub fn start(options: &TrioOptions) -> Result<Self> {
        let mut servers: Vec<Redis> = Vec::new();
        for _ in 0..=options.replicas {
            servers.push(Redis::start(&RedisOptions {
                append_only: options.append_only,
                replica_of: servers.first().map(Redis::client_port),
                proxied: options.proxied,
                extra: options.extra.clone(),
                ..RedisOptions::default()
            })?);
        }
        let watch = Watch {
            service: Self::SERVICE,
            master_port: servers[0].client_port(),
            quorum: MAJORITY,
            down_after_ms: options.down_after_ms,
            failover_timeout_ms: options.failover_timeout_ms,
        };
        let sentinels = (0..SENTINELS).map(|_| Sentinel::start(&watch));
        let trio = Self {
            sentinels: sentinels.collect::<Result<_>>()?,
            servers,
        };
        trio.wait_healthy()?;
        Ok(trio)
    }

    /// Where the sentinels listen, as `host:port`.
    #[must_use]
    pub fn sentinel_addresses(&self) -> Vec<String> {
        let address = |sentinel: &Sentinel| format!("127.0.0.1:{}", sentinel.port());
        self.sentinels.iter().map(address).collect()
    }

    /// The servers.
    #[must_use]
    pub fn servers(&self) -> &[Redis] {
        &self.servers
    }

    /// One server.
    #[must_use]
    pub fn server(&self, index: usize) -> &Redis {
        &self.servers[index]
    }

    /// One server, to do something to it.
    pub fn server_mut(&mut self, index: usize) -> &mut Redis {
        &mut self.servers[index]
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Sentinel] {
        &self.sentinels
    }

    /// One sentinel, to do something to it.
    pub fn sentinel_mut(&mut self, index: usize) -> &mut Sentinel {
        &mut self.sentinels[index]
    }

    /// The server that a majority of the sentinels names as the master now.
    ///
    /// # Errors
    /// When there is none.
    pub fn master(&self) -> Result<usize> {
        match self.named()? {
            (Some(master), _) => Ok(master),
            (None, seen) => bail!("no master that two sentinels agree on:{seen}"),
        }
    }

    /// What a majority of the sentinels names, and what each of them said.
    fn named(&self) -> Result<(Option<usize>, String)> {
        let mut votes = vec![0; self.servers.len()];
        let mut seen = String::new();
        for sentinel in &self.sentinels {
            let ask = ["SENTINEL", "GET-MASTER-ADDR-BY-NAME", Self::SERVICE];
            // One that is paused or killed has no vote.
            let port = sentinel.command(&ask).ok().and_then(|reply| {
                let port = reply.items()?.get(1)?.int()?;
                u16::try_from(port).ok()
            });
            let server = port.and_then(|port| self.by_client_port(port));
            write!(seen, " {port:?} = {server:?}")?;
            if let Some(server) = server {
                votes[server] += 1;
            }
        }
        Ok((votes.iter().position(|votes| *votes >= MAJORITY), seen))
    }

    fn by_client_port(&self, port: u16) -> Option<usize> {
        self.servers.iter().position(|s| s.client_port() == port)
    }

    /// Asks a sentinel to make a replica the master now (`SENTINEL FAILOVER`), without asking the
    /// others. The old master lives and is made a replica.
    ///
    /// # Errors
    /// When no sentinel takes the order within the bound, for example since there is no replica.
    pub fn failover(&self) -> Result<()> {
        wait::until("a sentinel to begin a failover", wait::START, || {
            let mut seen = String::new();
            for sentinel in &self.sentinels {
                match sentinel.command(&["SENTINEL", "FAILOVER", Self::SERVICE]) {
                    Ok(Value::Status(_)) => return Ok(Seen::Done(())),
                    other => write!(seen, " {other:?}")?,
                }
            }
            Ok(Seen::NotYet(seen))
        })
    }

    /// Waits until a majority of the sentinels names another master than `old`, and that server
    /// says of itself that it is one.
    ///
    /// # Errors
    /// When that does not happen within the bound.
    pub fn wait_for_new_master(&self, old: usize) -> Result<usize> {
        wait::until("another master", wait::START, || {
            let (named, seen) = self.named()?;
            match named {
                Some(master) if master != old && self.says_master(master) => Ok(Seen::Done(master)),
                _ => Ok(Seen::NotYet(seen)),
            }
        })
    }

    fn says_master(&self, index: usize) -> bool {
        let role = self.servers[index].command(&["ROLE"]);
        let role = role.ok().and_then(|reply| reply.items()?.first()?.text());
        role.as_deref() == Some("master")
    }

    /// Waits until all is well: every server and every sentinel answers, all sentinels know each
    /// other and name the same master, it is the only one, and each of its replicas is in sync.
    /// Gives the master.
    ///
    /// # Errors
    /// When that does not happen within the bound.
    pub fn wait_healthy(&self) -> Result<usize> {
        wait::until("a healthy master with its replicas", wait::START, || {
            Ok(match self.look() {
                Ok(master) => Seen::Done(master),
                Err(error) => Seen::NotYet(format!("{error:#}")),
            })
        })
    }

    /// The master, if all is well.
    fn look(&self) -> Result<usize> {
        let mut named = Vec::new();
        for (i, sentinel) in self.sentinels.iter().enumerate() {
            let master = sentinel.master(Self::SERVICE)?;
            let is = |name: &str, value: &str| match master.get(name) {
                Some(found) if found == value => Ok(()),
                found => bail!("sentinel {i} says of the master: {name} {found:?}"),
            };
            is("flags", "master")?;
            is("num-other-sentinels", &(SENTINELS - 1).to_string())?;
            is("num-slaves", &(self.servers.len() - 1).to_string())?;
            for replica in sentinel.replicas(Self::SERVICE)? {
                let state = (
                    replica.get("flags").map(String::as_str),
                    replica.get("master-link-status").map(String::as_str),
                );
                if state != (Some("slave"), Some("ok")) {
                    bail!("sentinel {i} says of a replica: {state:?}");
                }
            }
            if sentinel.cli(&["INFO", "sentinel"])?.contains("tilt:1") {
                bail!("sentinel {i} does not trust its clock");
            }
            let port = master.get("port").context("no port")?.parse()?;
            named.push(self.by_client_port(port).context("an unknown port")?);
        }
        let master = named[0];
        if named.iter().any(|other| *other != master) {
            bail!("the sentinels name {named:?}");
        }
        self.look_at_servers(master)?;
        Ok(master)
    }

    fn look_at_servers(&self, master: usize) -> Result<()> {
        let info = |server: &Redis| -> Result<String> {
            let bound = Duration::from_secs(2);
            let mut connection = crate::RespConnection::connect_within(server.port(), bound)?;
            Ok(connection.command(&["INFO", "replication"])?.to_string())
        };
        let of_master = info(&self.servers[master])?;
        let written = field(&of_master, "master_repl_offset").unwrap_or("0");
        let written: u64 = written.parse()?;
        let replicas = (self.servers.len() - 1).to_string();
        let online = of_master.matches("state=online").count().to_string();
        if field(&of_master, "role") != Some("master") || online != replicas {
            bail!("server {master}, the master: {of_master}");
        }
        let port = self.servers[master].client_port().to_string();
        for (i, server) in self.servers.iter().enumerate() {
            if i == master {
                continue;
            }
            let its = info(server)?;
            let read: u64 = field(&its, "slave_repl_offset").unwrap_or("0").parse()?;
            let up = field(&its, "role") == Some("slave")
                && field(&its, "master_port") == Some(&port)
                && field(&its, "master_link_status") == Some("up");
            if !up || read < written {
                bail!("server {i}, a replica, of {written} bytes: {its}");
            }
        }
        Ok(())
    }
}

/// A field of INFO.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    let value = |line: &'a str| line.strip_prefix(name)?.strip_prefix(':');
    info.lines().find_map(value).map(str::trim)
}
