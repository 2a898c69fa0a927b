//! Master, replica, sentinels, and what can be done to their data.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dropgate_testkit::redis::{
    DISCOVERY_PASSWORD, DISCOVERY_USER, GATEWAY_PASSWORD, OPERATOR_PASSWORD, REPLICATION_PASSWORD,
};
use dropgate_testkit::wait::{self, Seen};
use dropgate_testkit::{Redis, RedisTrio, RespConnection, Value};

/// How long an answer may take of a server that is not paused.
const ANSWER: Duration = Duration::from_secs(2);

/// Where a server keeps its data, and where a copy of it is kept.
const LIVE: &str = "appendonlydir";
const OLD: &str = "appendonlydir-old";

/// The servers of Redis.
#[derive(Debug)]
pub struct Servers {
    trio: RedisTrio,
    /// Servers that run, and do not stand still.
    standing: Vec<bool>,
    down: Vec<bool>,
    sentinels_down: Vec<bool>,
}

impl Servers {
    pub(super) fn new(trio: RedisTrio) -> Self {
        Self {
            standing: vec![true; trio.servers().len()],
            down: vec![false; trio.servers().len()],
            sentinels_down: vec![false; trio.sentinels().len()],
            trio,
        }
    }

    pub(super) fn first(&self) -> &Redis {
        self.trio.server(0)
    }

    /// The lines of `[redis]` for gateways and for operators.
    pub(super) fn config_lines(&self) -> (String, String) {
        let nodes = self.trio.sentinel_addresses().join("\", \"");
        let lines = |user: &str, password: &str| {
            format!(
                "topology = \"sentinel\"\nnodes = [\"{nodes}\"]\nusername = \"{user}\"\n\
                 password = \"{password}\"\nsentinel = {{ service = \"{}\", username = \
                 \"{DISCOVERY_USER}\", password = \"{DISCOVERY_PASSWORD}\" }}",
                RedisTrio::SERVICE
            )
        };
        (
            lines("gateway", GATEWAY_PASSWORD),
            lines("operator", OPERATOR_PASSWORD),
        )
    }

    /// Master and replica, by what the servers say of themselves; by the sentinels where that is not
    /// clear. (A sentinel or server that stands still costs a question its whole time limit, and
    /// faults are not to wait for that.)
    ///
    /// # Errors
    /// When there is no master.
    pub fn roles(&self) -> Result<(usize, usize)> {
        let stands = |at: &usize| self.standing.get(*at).copied().unwrap_or(false);
        let mut masters = (0..self.trio.servers().len())
            .filter(stands)
            .filter(|&at| self.says_master(at));
        let master = match (masters.next(), masters.next()) {
            (Some(master), None) => master,
            _ => self.trio.master()?,
        };
        Ok((master, self.other(master)))
    }

    fn other(&self, server: usize) -> usize {
        (server + 1) % self.trio.servers().len()
    }

    /// Whether a server says of itself that it is the master.
    #[must_use]
    pub fn says_master(&self, at: usize) -> bool {
        let role = self.ask(at, &["ROLE"]).ok();
        let word = role.and_then(|role| role.items()?.first()?.text());
        word.as_deref() == Some("master")
    }

    /// Whether a majority of the sentinels names this server as the master.
    #[must_use]
    pub fn is_named(&self, at: usize) -> bool {
        self.trio.master().is_ok_and(|named| named == at)
    }

    /// The master's URL, for whoever may do everything.
    ///
    /// # Errors
    /// When there is no master.
    pub fn master_url(&self) -> Result<String> {
        Ok(self.trio.server(self.roles()?.0).url())
    }

    /// One server.
    #[must_use]
    pub fn server(&self, at: usize) -> &Redis {
        self.trio.server(at)
    }

    /// The number of the last event that a server has given out for a sale, in any generation that
    /// it holds; 0 when it holds none.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn last_seq(&self, at: usize, sale: &str) -> Result<u64> {
        let pattern = format!("dropgate:{{{sale}}}:*:state");
        let keys = self.ask(at, &["KEYS", &pattern])?;
        let mut last = 0;
        for key in keys.items().unwrap_or_default() {
            let key = key.text().unwrap_or_default();
            let seq = self.ask(at, &["HGET", &key, "seq"])?;
            let seq = seq.int().and_then(|seq| u64::try_from(seq).ok());
            last = last.max(seq.unwrap_or(0));
        }
        Ok(last)
    }

    /// One command to a server as the user who may do everything.
    ///
    /// # Errors
    /// When it does not answer, or with an error.
    pub fn ask(&self, at: usize, args: &[&str]) -> Result<Value> {
        let port = self.trio.server(at).port();
        match RespConnection::connect_within(port, ANSWER)?.command(args)? {
            Value::Error(error) => bail!("{args:?}: {error}"),
            value => Ok(value),
        }
    }

    /// Kills a server and leaves it down.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill9(&mut self, at: usize) -> Result<()> {
        self.mark(at, true, false);
        self.trio.server_mut(at).kill9()
    }

    fn mark(&mut self, at: usize, down: bool, standing: bool) {
        if let (Some(is_down), Some(stands)) = (self.down.get_mut(at), self.standing.get_mut(at)) {
            (*is_down, *stands) = (down, standing);
        }
    }

    /// Ends a server in order, with all that it has on disk, and leaves it down.
    ///
    /// # Errors
    /// When it does not end.
    pub fn shut_down(&mut self, at: usize) -> Result<()> {
        self.mark(at, true, false);
        // It answers by closing the connection.
        let _ = self.ask(at, &["SHUTDOWN"]);
        self.trio.server_mut(at).kill9()
    }

    /// Starts a server again that is down.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn start_again(&mut self, at: usize) -> Result<()> {
        self.trio.server_mut(at).restart()?;
        self.mark(at, false, true);
        Ok(())
    }

    /// Takes the disk from a server that is down: it comes back with nothing.
    ///
    /// # Errors
    /// When the files cannot be removed.
    pub fn lose_disk(&self, at: usize) -> Result<()> {
        remove(&self.disk(at, LIVE))
    }

    /// Keeps a copy of what a server has on its disk now.
    ///
    /// # Errors
    /// When the files cannot be copied.
    pub fn keep_disk(&self, at: usize) -> Result<()> {
        let (from, to) = (self.disk(at, LIVE), self.disk(at, OLD));
        remove(&to)?;
        std::fs::create_dir(&to)?;
        for file in std::fs::read_dir(&from)? {
            let file = file?;
            std::fs::copy(file.path(), to.join(file.file_name()))?;
        }
        Ok(())
    }

    /// Gives a server that is down the disk of which a copy was kept.
    ///
    /// # Errors
    /// When the files cannot be moved.
    pub fn restore_disk(&self, at: usize) -> Result<()> {
        self.lose_disk(at)?;
        std::fs::rename(self.disk(at, OLD), self.disk(at, LIVE)).context("restoring a disk")
    }

    fn disk(&self, at: usize, name: &str) -> PathBuf {
        self.trio.server(at).folder().join(name)
    }

    /// Stops a server where it is.
    ///
    /// # Errors
    /// When it has ended.
    pub fn pause(&mut self, at: usize) -> Result<()> {
        self.mark(at, false, false);
        self.trio.server_mut(at).pause()
    }

    /// Lets a server go on.
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&mut self, at: usize) -> Result<()> {
        self.trio.server_mut(at).resume()?;
        self.mark(at, false, true);
        Ok(())
    }

    /// One sentinel, to do something to it.
    pub fn sentinel(&mut self, at: usize, what: Hurt) -> Result<()> {
        let sentinel = self.trio.sentinel_mut(at);
        match what {
            Hurt::Kill => sentinel.kill9()?,
            Hurt::StartAgain => sentinel.restart()?,
            Hurt::Pause => sentinel.pause()?,
            Hurt::Resume => sentinel.resume()?,
        }
        if let Some(down) = self.sentinels_down.get_mut(at) {
            *down = what == Hurt::Kill;
        }
        Ok(())
    }

    /// Cuts a replica off from its master's writes. Pausing it would not do: what the master sent
    /// meanwhile would be in the kernel's buffers.
    ///
    /// # Errors
    /// When the replica does not answer.
    pub fn lag(&self, replica: usize) -> Result<()> {
        self.ask(replica, &["CONFIG", "SET", "masterauth", "not this"])?;
        self.ask(replica, &["CLIENT", "KILL", "TYPE", "MASTER"])
            .map(drop)
    }

    /// Ends what [`Servers::lag`] began.
    ///
    /// # Errors
    /// When the server does not answer.
    pub fn follow(&self, server: usize) -> Result<()> {
        self.ask(
            server,
            &["CONFIG", "SET", "masterauth", REPLICATION_PASSWORD],
        )?;
        self.ask(server, &["CONFIG", "REWRITE"]).map(drop)
    }

    /// Tells the sentinels to promote the replica.
    ///
    /// # Errors
    /// When none takes the order.
    pub fn failover(&self) -> Result<()> {
        self.trio.failover()
    }

    /// A to B to A: the master takes the data of its replica, which may lag, and is the master
    /// again, with the scripts that it had.
    ///
    /// # Errors
    /// When a server does not answer, or the data is not taken over.
    pub fn there_and_back(&self, master: usize, replica: usize) -> Result<()> {
        let port = |at: usize| self.trio.server(at).client_port().to_string();
        self.ask(replica, &["REPLICAOF", "NO", "ONE"])?;
        self.ask(master, &["REPLICAOF", "127.0.0.1", &port(replica)])?;
        wait::until(
            "the old master to have the replica's data",
            wait::START,
            || {
                let info = self.ask(master, &["INFO", "replication"])?.to_string();
                Ok(match info.contains("master_link_status:up") {
                    true => Seen::Done(()),
                    false => Seen::NotYet(info),
                })
            },
        )?;
        self.ask(master, &["REPLICAOF", "NO", "ONE"])?;
        self.follow(replica)?;
        self.ask(replica, &["REPLICAOF", "127.0.0.1", &port(master)])
            .map(drop)
    }

    pub(super) fn heal(&mut self) -> Result<()> {
        for at in 0..self.sentinels_down.len() {
            let down = self.sentinels_down.get(at).copied().unwrap_or(false);
            let what = if down { Hurt::StartAgain } else { Hurt::Resume };
            self.sentinel(at, what)?;
        }
        for at in 0..self.down.len() {
            if self.down.get(at).copied().unwrap_or(false) {
                self.start_again(at)?;
            } else {
                self.resume(at)?;
            }
            if let Some(proxy) = self.trio.server(at).proxy() {
                proxy.heal()?;
            }
            self.follow(at)?;
        }
        Ok(())
    }

    pub(super) fn wait_healthy(&self) -> Result<()> {
        self.trio.wait_healthy().map(drop)
    }
}

fn remove(folder: &Path) -> Result<()> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// What is done to a sentinel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hurt {
    /// SIGKILL.
    Kill,
    /// Started again.
    StartAgain,
    /// SIGSTOP.
    Pause,
    /// SIGCONT.
    Resume,
}
