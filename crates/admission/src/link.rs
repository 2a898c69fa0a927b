//! Redis, whatever stands behind it: one server, the master that sentinels name, or the masters
//! of a cluster.
//!
//! A call is sent once. In a cluster it may be redirected once, within the same time: a command
//! that was answered with MOVED did not run. What else a cluster answers while a slot is on its
//! way (ASK, TRYAGAIN) is not followed: the scripts of a sale are not there yet, so the answer
//! could only be that they are missing.

mod cluster;
mod dial;
mod item;
mod lane;
mod sentinel;

pub(crate) use item::Item;

use crate::config::{RedisConfig, Topology};
use crate::error::{CallError, ConnectError, Outage};
use crate::facts::ServerFacts;
use cluster::Cluster;
use dial::{Address, Dial};
use dropgate_domain::{SaleId, TimeMs};
use fred::types::Value;
use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use lane::{Connection, Lane, Sent};
use sentinel::Sentinels;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};

pub(crate) use lane::Connection as Server;

/// A hash slot: all keys of a sale are in one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(u16);

impl Slot {
    /// The slot of a sale's keys, which have its id for their hash tag.
    pub(crate) fn of(sale: &SaleId) -> Self {
        Self(fred::util::redis_keyslot(sale.as_str().as_bytes()))
    }

    /// The slot of a key, as Redis computes it.
    #[cfg(test)]
    pub(crate) fn of_key(key: &str) -> Self {
        Self(fred::util::redis_keyslot(key.as_bytes()))
    }
}

/// The connections to Redis. They are kept up until this value is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    behind: Behind,
    dial: Arc<Dial>,
    topology: Topology,
    permits: Arc<Semaphore>,
    permits_max: u32,
}

#[derive(Debug)]
enum Behind {
    Single(Lane),
    Sentinels(Lane, Sentinels),
    Cluster(Arc<Cluster>),
}

impl Link {
    /// Connects, waiting for it up to `connect_timeout`. If Redis cannot be reached by then, goes
    /// on in the background; if it answers and refuses the user, or its certificate cannot be
    /// verified, that is an error.
    pub(crate) async fn open(config: &RedisConfig) -> Result<Self, ConnectError> {
        let problems = config.problems();
        if !problems.is_empty() {
            let all: Vec<_> = problems.iter().map(ToString::to_string).collect();
            return Err(ConnectError::Invalid(all.join("; ")));
        }
        let dial = Arc::new(Dial::new(config).await?);
        let addresses = dial::addresses(config)?;
        let behind = match config.topology {
            Topology::Single => single(&dial, addresses).await?,
            Topology::Sentinel => behind_sentinels(&dial, addresses, config).await?,
            Topology::Cluster => in_cluster(&dial, addresses, config).await?,
        };
        let permits_max = u32::try_from(config.calls_in_flight_max).unwrap_or(u32::MAX);
        Ok(Self {
            behind,
            dial,
            topology: config.topology,
            permits: Arc::new(Semaphore::new(config.calls_in_flight_max)),
            permits_max,
        })
    }

    /// Sends one command, once, to the master of a slot, and waits for its reply up to the
    /// command time-out. Dropping the future does not undo what was sent.
    pub(crate) async fn call(
        &self,
        command: &'static str,
        slot: Slot,
        args: Vec<Value>,
    ) -> Result<Item, CallError> {
        let begun = Instant::now();
        let permit = self.permit()?;
        let connection = self.server(slot)?;
        let place = Place {
            permit: Some(permit),
            command_timeout: self.dial.command_timeout,
        };
        let result = match &self.behind {
            Behind::Single(_) | Behind::Sentinels(..) => {
                connection.send(command, args).await.answer()
            }
            Behind::Cluster(cluster) => {
                let deadline = begun + self.dial.command_timeout;
                followed(cluster, &connection, deadline, command, args).await
            }
        };
        if result.as_ref().is_err_and(is_suspicious) {
            self.look_again();
        }
        place.answered();
        result
    }

    fn check_open(&self) -> Result<(), CallError> {
        if self.permits.is_closed() {
            return Err(CallError::Unavailable(Outage::NotConnected));
        }
        Ok(())
    }

    fn permit(&self) -> Result<OwnedSemaphorePermit, CallError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        permit.map_err(|error| {
            CallError::Unavailable(match error {
                TryAcquireError::NoPermits => Outage::TooMany,
                TryAcquireError::Closed => Outage::NotConnected,
            })
        })
    }

    /// The server that is the master of a slot now, for who must ask one and the same several
    /// things.
    pub(crate) fn server(&self, slot: Slot) -> Result<Arc<Server>, CallError> {
        self.check_open()?;
        match &self.behind {
            Behind::Single(lane) | Behind::Sentinels(lane, _) => lane.connection(),
            Behind::Cluster(cluster) => cluster.owner(slot.0),
        }
    }

    /// Any server that is connected.
    pub(crate) fn any(&self) -> Result<Arc<Server>, CallError> {
        self.check_open()?;
        match &self.behind {
            Behind::Single(lane) | Behind::Sentinels(lane, _) => lane.connection(),
            Behind::Cluster(cluster) => cluster.any(),
        }
    }

    /// Why no sale must run on the masters, each with what to do about it. Of a cluster, those
    /// that answer are asked.
    pub(crate) async fn problems(&self) -> Result<Vec<String>, CallError> {
        if let Behind::Sentinels(_, sentinels) = &self.behind
            && let Some(trouble) = sentinels.trouble()
        {
            return Ok(vec![trouble]);
        }
        let Behind::Cluster(cluster) = &self.behind else {
            let server = self.any()?;
            return Ok(self.facts(&server).await?.problems());
        };
        let masters = cluster.masters();
        let asked = join_all(masters.iter().map(|lane| async {
            let server = lane.connection()?;
            let facts = self.facts(&server).await?;
            let named = |problem| format!("{}: {problem}", server.address);
            Ok(facts.problems().into_iter().map(named).collect::<Vec<_>>())
        }));
        let mut problems = Vec::new();
        let (mut answered, mut last) = (false, CallError::Unavailable(Outage::NotConnected));
        for answer in asked.await {
            match answer {
                Ok(found) => {
                    answered = true;
                    problems.extend(found);
                }
                Err(error) => last = error,
            }
        }
        if answered {
            return Ok(problems);
        }
        // A server that is no cluster names no masters: it says so itself.
        let server = self.any().map_err(|_| last)?;
        Ok(self.facts(&server).await?.problems())
    }

    /// What INFO of a server says.
    pub(crate) async fn facts(&self, server: &Server) -> Result<ServerFacts, CallError> {
        match server.ask("INFO", &[]).await? {
            Item::Bytes(text) => {
                let info = String::from_utf8_lossy(&text);
                Ok(ServerFacts::from_info(&info, self.topology))
            }
            _ => Err(unreadable("INFO")),
        }
    }

    /// The time in the Redis of a slot, in ms.
    pub(crate) async fn time(&self, slot: Slot) -> Result<TimeMs, CallError> {
        let _permit = self.permit()?;
        time(&*self.server(slot)?).await
    }

    /// Why this server is not the one that all agree to be the master of a slot. Empty: it is.
    pub(crate) async fn disagreements(
        &self,
        slot: Slot,
        server: &Server,
        run_id: &str,
    ) -> Result<Vec<String>, CallError> {
        let mut problems = match &self.behind {
            Behind::Single(_) => Vec::new(),
            Behind::Sentinels(_, sentinels) => sentinels.agree_on(&server.address).await,
            Behind::Cluster(_) => owns(server, slot).await?,
        };
        // An old connection may lead to a server whose name another one has by now.
        let fresh = lane::connect(&self.dial, &server.address).await;
        let fresh = match fresh {
            Ok(Some((connection, _tasks))) => self.facts(&connection).await?.run_id,
            Ok(None) => return Err(CallError::Unavailable(Outage::NotConnected)),
            Err(error) => return Err(CallError::Denied(error.to_string())),
        };
        if fresh != run_id {
            problems.push(format!(
                "a new connection to {} reaches another server; the old one is given up",
                server.address
            ));
            server.give_up();
        }
        Ok(problems)
    }

    /// Asks who is master now: something is not as it should be.
    pub(crate) fn look_again(&self) {
        match &self.behind {
            Behind::Single(_) => {}
            Behind::Sentinels(_, sentinels) => sentinels.hurry(),
            Behind::Cluster(cluster) => cluster.hurry(),
        }
    }

    /// Refuses new calls, waits for those in flight up to the command time-out, and ends the
    /// connections. Called again it does nothing.
    pub(crate) async fn close(&self) {
        let all = self.permits.acquire_many(self.permits_max);
        // Not all in time: they end with the connection.
        let _ = tokio::time::timeout(self.dial.command_timeout, all).await;
        self.permits.close();
        match &self.behind {
            Behind::Single(lane) => lane.close(),
            Behind::Sentinels(lane, sentinels) => {
                lane.close();
                sentinels.close();
            }
            Behind::Cluster(cluster) => cluster.close(),
        }
    }
}

async fn single(dial: &Arc<Dial>, addresses: Vec<Address>) -> Result<Behind, ConnectError> {
    let Some(address) = addresses.into_iter().next() else {
        return Err(ConnectError::Invalid("url: names no server".to_owned()));
    };
    let first = lane::connect(dial, &address).await?;
    let target = lane::fixed(address);
    Ok(Behind::Single(Lane::supervised(
        Arc::clone(dial),
        target,
        first,
    )))
}

async fn behind_sentinels(
    dial: &Arc<Dial>,
    addresses: Vec<Address>,
    config: &RedisConfig,
) -> Result<Behind, ConnectError> {
    let to_sentinels = Arc::new(dial.to_sentinels(config));
    refused_by_all(&to_sentinels, &addresses).await?;
    let service = &config.sentinel.service;
    let sentinels = Sentinels::start(&to_sentinels, addresses, service, config.discovery_interval);
    let mut target = sentinels.target();
    let known = tokio::time::timeout(config.connect_timeout, lane::known(&mut target)).await;
    let master = known.ok().flatten();
    let first = match master {
        Some(master) => lane::connect(dial, &master).await?,
        None => None,
    };
    let lane = Lane::supervised(Arc::clone(dial), target, first);
    Ok(Behind::Sentinels(lane, sentinels))
}

async fn in_cluster(
    dial: &Arc<Dial>,
    addresses: Vec<Address>,
    config: &RedisConfig,
) -> Result<Behind, ConnectError> {
    refused_by_all(dial, &addresses).await?;
    let cluster = Cluster::start(Arc::clone(dial), addresses, config.discovery_interval);
    // Not in time: it goes on in the background.
    let _ = tokio::time::timeout(config.connect_timeout, cluster.wait()).await;
    Ok(Behind::Cluster(cluster))
}

/// A refusal, when none of these takes the user. Does not wait for all when one does.
async fn refused_by_all(dial: &Dial, addresses: &[Address]) -> Result<(), ConnectError> {
    let connect = |at| lane::connect(dial, at);
    let mut answers: FuturesUnordered<_> = addresses.iter().map(connect).collect();
    let mut refusal = Ok(());
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(Some(_)) => return Ok(()),
            Ok(None) => {}
            Err(error) => refusal = Err(error),
        }
    }
    refusal
}

/// Sends to the owner of a slot, and follows it once if the slot has moved.
async fn followed(
    cluster: &Arc<Cluster>,
    connection: &Connection,
    deadline: Instant,
    command: &'static str,
    args: Vec<Value>,
) -> Result<Item, CallError> {
    // The arguments are shared, not copied.
    let to = match connection.send(command, args.clone()).await {
        Sent::Redirected(to) => to,
        sent => return sent.answer(),
    };
    cluster.hurry();
    let not_sent = || CallError::Unavailable(Outage::NotConnected);
    let owner = Address::read(&to.address).ok_or_else(not_sent)?;
    let lane = cluster.lane(&owner).ok_or_else(not_sent)?;
    let deadline = tokio::time::Instant::from_std(deadline);
    let up = tokio::time::timeout_at(deadline, lane.wait()).await;
    let connection = up.map_err(|_| not_sent())??;
    let sent = tokio::time::timeout_at(deadline, connection.send(command, args)).await;
    sent.map_err(|_| CallError::Unavailable(Outage::TimedOut))?
        .answer()
}

/// Whether an error may mean that another server is master by now.
fn is_suspicious(error: &CallError) -> bool {
    match error {
        CallError::NotWritable(_) => true,
        CallError::Unavailable(outage) => *outage != Outage::TooMany,
        _ => false,
    }
}

/// Whether a node takes itself for the owner of a slot in a cluster that is up, and why not.
async fn owns(server: &Server, slot: Slot) -> Result<Vec<String>, CallError> {
    let mut problems = Vec::new();
    let info = server.ask("CLUSTER", &["INFO"]).await?;
    if !info
        .text()
        .is_some_and(|info| info.contains("cluster_state:ok"))
    {
        problems.push(format!(
            "the cluster is down as {} sees it; wait until it is up",
            server.address
        ));
    }
    let id = server.ask("CLUSTER", &["MYID"]).await?;
    let slots = server.ask("CLUSTER", &["SLOTS"]).await?;
    if id.text().is_none() || cluster::owner_id(&slots, slot.0) != id.text() {
        problems.push(format!(
            "{} does not own the sale's slot {}; wait until the cluster agrees on who does",
            server.address, slot.0
        ));
    }
    Ok(problems)
}

/// The time of a server, in ms.
pub(crate) async fn time(server: &Server) -> Result<TimeMs, CallError> {
    let reply = server.ask("TIME", &[]).await?;
    let parts = reply.items().ok_or_else(|| unreadable("TIME"))?;
    let numbers: Vec<u64> = parts.iter().filter_map(Item::number).collect();
    match numbers[..] {
        [seconds, micros] => Ok(TimeMs(seconds * 1000 + micros / 1000)),
        _ => Err(unreadable("TIME")),
    }
}

fn unreadable(command: &str) -> CallError {
    CallError::Protocol(format!("{command} gave a reply of another type"))
}

/// A command that the driver holds, and its place among those in flight.
struct Place {
    permit: Option<OwnedSemaphorePermit>,
    command_timeout: Duration,
}

impl Place {
    fn answered(mut self) {
        self.permit = None;
    }
}

impl Drop for Place {
    /// The caller went away. The driver still holds the command until it is answered or timed
    /// out, so its place is kept as long: or clients that go away would fill the driver's queue.
    fn drop(&mut self) {
        if let (Some(permit), Ok(runtime)) = (self.permit.take(), Handle::try_current()) {
            let command_timeout = self.command_timeout;
            runtime.spawn(async move {
                tokio::time::sleep(command_timeout).await;
                drop(permit);
            });
        }
    }
}
