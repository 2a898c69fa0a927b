//! A Redis Cluster of three masters, each with a replica.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::trio::field;
use super::{AppendOnly, Redis, RedisOptions};
use crate::resp::{RespConnection, Value};
use crate::wait::{self, Seen};

const MASTERS: usize = 3;
const NODES: usize = 2 * MASTERS;
const SLOTS: usize = 16_384;

/// How long a question to a node may take: some may be paused.
const ANSWER: Duration = Duration::from_secs(2);

/// How a [`RedisCluster`] is started.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Whether the nodes write to disk; off by default.
    pub append_only: AppendOnly,
    /// Whether each node stands behind a proxy; see [`RedisOptions::proxied`].
    pub proxied: bool,
    /// After how many ms of silence a node is taken for down; 1,000 by default.
    pub node_timeout_ms: u32,
    /// Further lines of every node's `redis.conf`.
    pub extra: Vec<String>,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            append_only: AppendOnly::Off,
            proxied: false,
            node_timeout_ms: 1000,
            extra: Vec::new(),
        }
    }
}

/// A cluster of six processes: three masters, each with a replica. A node is named by its index;
/// which of them are masters changes.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<Redis>,
}

impl RedisCluster {
    /// Starts the nodes, makes them a cluster, and waits until it is
    /// [healthy](Self::wait_healthy). The first three are the masters.
    ///
    /// # Errors
    /// When Redis is not installed or something does not come up.
    pub fn start(options: &ClusterOptions) -> Result<Self> {
        let mut extra = vec![
            "cluster-enabled yes".to_owned(),
            format!("cluster-node-timeout {}", options.node_timeout_ms),
            // One master that is gone does not stop the sales of the others.
            "cluster-require-full-coverage no".to_owned(),
            // However long it had no link: these are tests of a cluster that fails over.
            "cluster-replica-validity-factor 0".to_owned(),
            "cluster-allow-replica-migration no".to_owned(),
        ];
        extra.extend_from_slice(&options.extra);
        let node = |_| {
            Redis::start(&RedisOptions {
                append_only: options.append_only,
                proxied: options.proxied,
                extra: extra.clone(),
                ..RedisOptions::default()
            })
        };
        let cluster = Self {
            nodes: (0..NODES).map(node).collect::<Result<_>>()?,
        };
        cluster.form()?;
        cluster.wait_healthy()?;
        Ok(cluster)
    }

    fn form(&self) -> Result<()> {
        for (i, node) in self.nodes.iter().enumerate() {
            node.cli(&["CLUSTER", "SET-CONFIG-EPOCH", &(i + 1).to_string()])?;
            if i < MASTERS {
                let (first, end) = (i * SLOTS / MASTERS, (i + 1) * SLOTS / MASTERS);
                let (first, last) = (first.to_string(), (end - 1).to_string());
                node.cli(&["CLUSTER", "ADDSLOTSRANGE", &first, &last])?;
            }
        }
        // Only now: a node that knows another takes no epoch any more.
        for (i, node) in self.nodes.iter().enumerate() {
            for other in &self.nodes[i + 1..] {
                node.cli(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()])?;
            }
        }
        for (i, replica) in self.nodes[MASTERS..].iter().enumerate() {
            let id = self.nodes[i].cli(&["CLUSTER", "MYID"])?;
            wait::until("a node to know its master", wait::START, || {
                Ok(match replica.cli(&["CLUSTER", "REPLICATE", &id]) {
                    Ok(_) => Seen::Done(()),
                    Err(error) => Seen::NotYet(error.to_string()),
                })
            })?;
        }
        Ok(())
    }

    /// Where the nodes listen for clients, as `host:port`.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        let address = |node: &Redis| format!("127.0.0.1:{}", node.client_port());
        self.nodes.iter().map(address).collect()
    }

    /// The nodes.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// One node.
    #[must_use]
    pub fn node(&self, index: usize) -> &Redis {
        &self.nodes[index]
    }

    /// One node, to do something to it.
    pub fn node_mut(&mut self, index: usize) -> &mut Redis {
        &mut self.nodes[index]
    }

    /// The slot of a key.
    ///
    /// # Errors
    /// When no node answers.
    pub fn slot_of(&self, key: &str) -> Result<u16> {
        let slot = |node| ask(node, &["CLUSTER", "KEYSLOT", key]).ok()?.int();
        let slot = self
            .nodes
            .iter()
            .find_map(slot)
            .context("no node answers")?;
        Ok(u16::try_from(slot)?)
    }

    /// The node that most nodes take for the master of a key's slot.
    ///
    /// # Errors
    /// When there is none.
    pub fn master_of(&self, key: &str) -> Result<usize> {
        match self.named(self.slot_of(key)?)? {
            (Some(master), _) => Ok(master),
            (None, seen) => bail!("no master of {key} that most nodes agree on:{seen}"),
        }
    }

    /// The node that most of them take for the master of a slot, and what each of them said.
    fn named(&self, slot: u16) -> Result<(Option<usize>, String)> {
        let mut votes = [0; NODES];
        let mut seen = String::new();
        for node in &self.nodes {
            let ranges = ask(node, &["CLUSTER", "SLOTS"]).ok();
            let port = ranges.and_then(|ranges| owner(&ranges, slot));
            let at = |port| self.nodes.iter().position(|n| n.client_port() == port);
            let master = port.and_then(at);
            write!(seen, " {master:?}")?;
            if let Some(master) = master {
                votes[master] += 1;
            }
        }
        Ok((votes.iter().position(|votes| *votes > NODES / 2), seen))
    }

    /// Waits until most nodes take another than `old` for the master of a key's slot, and that
    /// one says that the cluster is up.
    ///
    /// # Errors
    /// When that does not happen within the bound.
    pub fn wait_for_new_master(&self, key: &str, old: usize) -> Result<usize> {
        let slot = self.slot_of(key)?;
        wait::until("another master of the slot", wait::START, || {
            let (named, seen) = self.named(slot)?;
            let up = |node: usize| {
                let info = ask(&self.nodes[node], &["CLUSTER", "INFO"]);
                info.is_ok_and(|info| info.to_string().contains("cluster_state:ok"))
            };
            match named {
                Some(master) if master != old && up(master) => Ok(Seen::Done(master)),
                _ => Ok(Seen::NotYet(seen)),
            }
        })
    }

    /// Has the replica of a key's master take its place, with the master's consent (`CLUSTER
    /// FAILOVER`): both live on. Gives the new master.
    ///
    /// # Errors
    /// When the master has no replica that does.
    pub fn failover(&self, key: &str) -> Result<usize> {
        let old = self.master_of(key)?;
        let slot = self.slot_of(key)?;
        let id = self.nodes[old].cli(&["CLUSTER", "MYID"])?;
        // A request that gets no votes, or whose master is busy, is over after five seconds.
        let mut asked: Option<Instant> = None;
        wait::until("the replica to take over", wait::START, || {
            if asked.is_none_or(|asked| asked.elapsed() > Duration::from_secs(6)) {
                self.ask_replica(id.trim())?;
                asked = Some(Instant::now());
            }
            let (named, seen) = self.named(slot)?;
            Ok(match named {
                Some(master) if master != old => Seen::Done(master),
                _ => Seen::NotYet(seen),
            })
        })
    }

    fn ask_replica(&self, master_id: &str) -> Result<()> {
        for node in &self.nodes {
            let nodes = ask(node, &["CLUSTER", "NODES"]).map(|nodes| nodes.to_string());
            let nodes = nodes.unwrap_or_default();
            let own = nodes.lines().find(|line| line.contains("myself,slave"));
            if own.is_some_and(|own| own.contains(master_id)) {
                return node.cli(&["CLUSTER", "FAILOVER"]).map(drop);
            }
        }
        bail!("node {master_id} has no replica that answers")
    }

    /// Waits until all is well: every node answers, knows all others and says that the cluster is
    /// up, there are three masters, all agree which, and each has a replica in sync.
    ///
    /// # Errors
    /// When that does not happen within the bound.
    pub fn wait_healthy(&self) -> Result<()> {
        wait::until("a healthy cluster", wait::START, || {
            Ok(match self.look() {
                Ok(()) => Seen::Done(()),
                Err(error) => Seen::NotYet(format!("{error:#}")),
            })
        })
    }

    fn look(&self) -> Result<()> {
        let mut views = BTreeSet::new();
        let mut masters = 0;
        for (i, node) in self.nodes.iter().enumerate() {
            let info = ask(node, &["CLUSTER", "INFO"])?.to_string();
            let is = |name: &str, value: usize| match field(&info, name) {
                Some(found) if found == value.to_string() => Ok(()),
                found => bail!("node {i}: {name} {found:?}"),
            };
            if field(&info, "cluster_state") != Some("ok") {
                bail!("node {i}: {info}");
            }
            is("cluster_known_nodes", NODES)?;
            is("cluster_size", MASTERS)?;
            is("cluster_slots_ok", SLOTS)?;
            let nodes = ask(node, &["CLUSTER", "NODES"])?.to_string();
            if nodes.contains("fail") || nodes.contains("handshake") {
                bail!("node {i}: {nodes}");
            }
            let slots = ask(node, &["CLUSTER", "SLOTS"])?;
            let owners = (0..MASTERS).map(|part| {
                let slot = u16::try_from(part * SLOTS / MASTERS).ok()?;
                owner(&slots, slot)
            });
            views.insert(owners.collect::<Vec<_>>());
            let replication = ask(node, &["INFO", "replication"])?.to_string();
            let in_sync = match field(&replication, "role") {
                Some("master") => {
                    masters += 1;
                    replication.contains("state=online")
                }
                _ => field(&replication, "master_link_status") == Some("up"),
            };
            if !in_sync {
                bail!("node {i}: {replication}");
            }
        }
        if masters != MASTERS || views.len() != 1 {
            bail!("{masters} masters; the owners of slots: {views:?}");
        }
        Ok(())
    }
}

/// One command as the default user, whose answer does not take long.
fn ask(node: &Redis, args: &[&str]) -> Result<Value> {
    match RespConnection::connect_within(node.port(), ANSWER)?.command(args)? {
        Value::Error(error) => bail!("Redis says: {error}"),
        value => Ok(value),
    }
}

/// The port of a slot's master in a reply of `CLUSTER SLOTS`.
fn owner(ranges: &Value, slot: u16) -> Option<u16> {
    let of = |range: &Value| {
        let range = range.items()?;
        let (first, last) = (range.first()?.int()?, range.get(1)?.int()?);
        let port = range.get(2)?.items()?.get(1)?.int()?;
        (first..=last)
            .contains(&i64::from(slot))
            .then(|| u16::try_from(port).ok())?
    };
    ranges.items()?.iter().find_map(of)
}
