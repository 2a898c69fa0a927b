//! A connection to one server at a time, and the watchdog that replaces it. The only module that
//! sends.
//!
//! What fred does by default and must not do here (each was seen to bite):
//! - it sends a command again whose reply did not come: one attempt per command;
//! - it waits for ever: a time-out for every command, set on the client, because the options of a
//!   single call are ignored by some commands;
//! - its queue is unbounded. With a bound of its own it counts a refused command as queued for
//!   ever, and then no longer flushes: so calls are counted here, and its bound is never reached;
//! - on READONLY and LOADING it drops the connection and gives that error to every call in
//!   flight, also to one that ran: such an error belongs to its own call only;
//! - under steady traffic it does not notice that the other side is dead, and while it waits for a
//!   full socket it takes no orders, not even to reconnect: so the watchdog takes a new client;
//! - its clients of sentinels trust the first one that answers, and its clients of clusters share
//!   one task among all nodes, which waits for the dead one: so each lane is a client of a single
//!   server, and who is asked what is decided above.

use super::dial::{Address, Dial};
use super::item::{Item, item};
use crate::error::{CallError, ConnectError, Outage, Redirect, classify, redirect};
use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::{ClientLike, EventInterface};
use fred::types::{ClusterHash, CustomCommand, Value};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

/// A connection that is kept up until this value is dropped, to a server that may change.
#[derive(Debug)]
pub(crate) struct Lane {
    current: watch::Receiver<Option<Arc<Connection>>>,
    supervisor: AbortOnDropHandle<()>,
}

/// Where a lane leads; `None` while that is not known.
pub(crate) type Target = watch::Receiver<Option<Address>>;

/// One client of fred, with what its calls have seen of it.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) address: Address,
    client: Client,
    timeouts_in_row: AtomicU32,
    timeouts_in_row_max: u32,
    /// It has answered at least once.
    served: AtomicBool,
    /// It is to be replaced.
    given_up: AtomicBool,
    trouble: Notify,
}

/// The tasks behind a connection; they end when this is dropped.
#[derive(Debug)]
pub(crate) struct Tasks {
    driver: AbortOnDropHandle<Result<(), Error>>,
    _errors: AbortOnDropHandle<Result<(), Error>>,
}

impl Lane {
    /// A lane that comes up in the background.
    pub(crate) fn patient(dial: Arc<Dial>, target: Target) -> Self {
        Self::supervised(dial, target, None)
    }

    /// A lane to one server for good that comes up in the background.
    pub(crate) fn fixed(dial: Arc<Dial>, to: Address) -> Self {
        Self::patient(dial, fixed(to))
    }

    /// A lane that goes on with a connection, or from its end.
    pub(crate) fn supervised(dial: Arc<Dial>, target: Target, first: Option<First>) -> Self {
        let connection = first.as_ref().map(|(connection, _)| Arc::clone(connection));
        let (sender, current) = watch::channel(connection);
        let supervisor = tokio::spawn(supervise(dial, target, first, sender));
        Self {
            current,
            supervisor: AbortOnDropHandle::new(supervisor),
        }
    }

    /// The connection, if it is up.
    pub(crate) fn connection(&self) -> Result<Arc<Connection>, CallError> {
        let connection = self.current.borrow().clone();
        connection
            .filter(|connection| connection.is_up())
            .ok_or(CallError::Unavailable(Outage::NotConnected))
    }

    /// Waits until the connection is up. The caller bounds the wait.
    pub(crate) async fn wait(&self) -> Result<Arc<Connection>, CallError> {
        let gone = || CallError::Unavailable(Outage::NotConnected);
        let mut current = self.current.clone();
        loop {
            let connection = current.borrow_and_update().clone();
            match connection {
                Some(connection) => {
                    tokio::select! {
                        // An error is followed by another try, or by another connection.
                        up = connection.client.wait_for_connect() => {
                            if up.is_ok() && connection.is_up() {
                                return Ok(connection);
                            }
                            tokio::time::sleep(Duration::from_millis(5)).await;
                        }
                        changed = current.changed() => changed.map_err(|_| gone())?,
                    }
                }
                None => current.changed().await.map_err(|_| gone())?,
            }
        }
    }

    /// Ends the connection.
    pub(crate) fn close(&self) {
        self.supervisor.abort();
    }
}

/// A connection with what keeps it.
pub(crate) type First = (Arc<Connection>, Tasks);

/// A target that does not change.
pub(crate) fn fixed(to: Address) -> Target {
    // A receiver keeps its value when the sender is gone.
    watch::channel(Some(to)).1
}

/// Connects, waiting for it up to `connect_timeout`. `None` when the server cannot be reached by
/// then; a server that answers and refuses the user, or cannot be trusted, is an error.
pub(crate) async fn connect(dial: &Dial, to: &Address) -> Result<Option<First>, ConnectError> {
    let connection = Connection::new(dial, to, true)?;
    let errors = log_errors(&connection);
    let (tasks, up) = {
        let mut up = pin!(connection.client.wait_for_connect());
        // Polled once before it begins, or it could be up before anybody listens for that.
        let _ = futures::poll!(up.as_mut());
        let tasks = Tasks {
            driver: AbortOnDropHandle::new(connection.client.connect()),
            _errors: errors,
        };
        let up = tokio::time::timeout(dial.connect_timeout, up).await;
        (tasks, up)
    };
    match up {
        Ok(Ok(())) => Ok(Some((connection, tasks))),
        Ok(Err(error)) => ConnectError::refusal(&error).map_or(Ok(None), Err),
        Err(_) => Ok(None),
    }
}

impl Connection {
    fn new(dial: &Dial, to: &Address, fail_fast: bool) -> Result<Arc<Self>, ConnectError> {
        Ok(Arc::new(Self {
            address: to.clone(),
            client: dial.client(to, fail_fast)?,
            timeouts_in_row: AtomicU32::new(0),
            timeouts_in_row_max: dial.timeouts_in_row_max,
            served: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            trouble: Notify::new(),
        }))
    }

    /// A connection that comes up when it can.
    fn patient(dial: &Dial, to: &Address) -> Result<First, ConnectError> {
        let connection = Self::new(dial, to, false)?;
        let tasks = Tasks {
            _errors: log_errors(&connection),
            driver: AbortOnDropHandle::new(connection.client.connect()),
        };
        Ok((connection, tasks))
    }

    fn is_up(&self) -> bool {
        !self.given_up.load(Ordering::Relaxed) && self.client.is_connected()
    }

    /// Sends one command, once, and waits for its reply up to the command time-out. Dropping the
    /// future does not undo what was sent.
    pub(crate) async fn send(&self, command: &'static str, args: Vec<Value>) -> Sent {
        // The slot is of no use to a client of one server.
        let command = CustomCommand::new_static(command, ClusterHash::FirstKey, false);
        let reply: Result<Value, Error> = self.client.custom(command, args).await;
        match reply {
            Ok(value) => {
                self.saw_reply();
                item(value).map_or_else(Sent::Failed, Sent::Answered)
            }
            Err(error) => {
                if let Some(to) = redirect(&error, &self.address.host) {
                    self.saw_reply();
                    return Sent::Redirected(to);
                }
                let error = classify(&error);
                self.saw_error(&error);
                Sent::Failed(error)
            }
        }
    }

    /// Like [`send`](Self::send), where this server is meant and no other.
    pub(crate) async fn ask(
        &self,
        command: &'static str,
        args: &[&str],
    ) -> Result<Item, CallError> {
        let args = args.iter().map(|arg| Value::from(*arg)).collect();
        self.send(command, args).await.answer()
    }

    fn saw_reply(&self) {
        self.timeouts_in_row.store(0, Ordering::Relaxed);
        self.served.store(true, Ordering::Relaxed);
    }

    fn saw_error(&self, error: &CallError) {
        match error {
            CallError::Unavailable(Outage::TimedOut) => {
                let before = self.timeouts_in_row.fetch_add(1, Ordering::Relaxed);
                if before + 1 >= self.timeouts_in_row_max {
                    self.give_up();
                }
            }
            // A master no more: another server may have its name by now.
            CallError::NotWritable(text) if text.starts_with("READONLY") => self.give_up(),
            CallError::Unavailable(_) => {}
            _ => self.saw_reply(),
        }
    }

    /// Has it replaced by a new connection.
    pub(crate) fn give_up(&self) {
        if !self.given_up.swap(true, Ordering::Relaxed) {
            self.trouble.notify_one();
        }
    }
}

/// What became of a command that was sent once.
#[derive(Debug)]
pub(crate) enum Sent {
    /// It ran, and this is its reply.
    Answered(Item),
    /// It did not run: another server has the key.
    Redirected(Redirect),
    /// There is no reply.
    Failed(CallError),
}

impl Sent {
    /// The answer, for who does not go elsewhere.
    pub(crate) fn answer(self) -> Result<Item, CallError> {
        match self {
            Self::Answered(item) => Ok(item),
            Self::Redirected(to) => Err(to.refused()),
            Self::Failed(error) => Err(error),
        }
    }
}

/// Keeps a connection to the target, and replaces it whenever it is in trouble or the target has
/// changed, until it is aborted.
async fn supervise(
    dial: Arc<Dial>,
    mut target: Target,
    mut held: Option<First>,
    sender: watch::Sender<Option<Arc<Connection>>>,
) {
    let mut failures = 0;
    loop {
        if let Some((connection, tasks)) = &mut held {
            let address = connection.address.clone();
            let moved = |target: &Option<Address>| target.as_ref() != Some(&address);
            let elsewhere = tokio::select! {
                () = connection.trouble.notified() => false,
                _ = &mut tasks.driver => false,
                elsewhere = changed(&mut target, moved) => elsewhere,
            };
            connection.given_up.store(true, Ordering::Relaxed);
            failures = if elsewhere || connection.served.load(Ordering::Relaxed) {
                0
            } else {
                failures + 1
            };
            tracing::warn!(%address, failures, "redis connection given up for a new one");
            tokio::select! {
                () = tokio::time::sleep(pause(&dial, failures)) => {}
                _ = changed(&mut target, moved) => {}
            }
        }
        let Some(to) = known(&mut target).await else {
            return;
        };
        match Connection::patient(&dial, &to) {
            Ok(first) => {
                sender.send_replace(Some(Arc::clone(&first.0)));
                held = Some(first);
            }
            // Not seen: the same configuration made a client before.
            Err(error) => {
                tracing::error!(%error, "redis client cannot be made");
                return;
            }
        }
    }
}

/// Waits until the target is another one. A target whose sender is gone does not change.
async fn changed(target: &mut Target, moved: impl Fn(&Option<Address>) -> bool) -> bool {
    if target.wait_for(|target| moved(target)).await.is_ok() {
        return true;
    }
    std::future::pending().await
}

/// The target, once it is known; `None` when it never will be.
pub(super) async fn known(target: &mut Target) -> Option<Address> {
    let known = target.wait_for(Option::is_some).await.map(|to| to.clone());
    known.unwrap_or_else(|_| target.borrow().clone())
}

/// None at first; then doubling, with jitter so that gateways do not come back all at once.
fn pause(dial: &Dial, failures: u32) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let doubled = dial
        .reconnect_delay_min
        .saturating_mul(1 << (failures - 1).min(16));
    doubled
        .min(dial.reconnect_delay_max)
        .mul_f64(rand::random_range(0.5..1.0))
}

/// Puts what happens to the connection on record. fred's errors name servers, never credentials.
fn log_errors(connection: &Connection) -> AbortOnDropHandle<Result<(), Error>> {
    let address = connection.address.clone();
    AbortOnDropHandle::new(connection.client.on_error(move |(error, _)| {
        let address = address.clone();
        async move {
            let reason: String = error.details().chars().take(200).collect();
            tracing::warn!(%address, reason, "redis connection failed");
            Ok(())
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::RedisConfig;

    #[tokio::test]
    async fn pauses_double_within_their_bounds_and_are_spread() {
        let dial = Dial::new(&RedisConfig::default()).await.unwrap();
        assert_eq!(pause(&dial, 0), Duration::ZERO);
        for failures in 1..100 {
            let full = dial
                .reconnect_delay_min
                .saturating_mul(1 << (failures - 1).min(16))
                .min(dial.reconnect_delay_max);
            let pauses: Vec<_> = (0..20).map(|_| pause(&dial, failures)).collect();
            assert!(pauses.iter().all(|p| *p >= full / 2 && *p <= full));
            assert!(pauses.iter().any(|p| *p != pauses[0]), "{pauses:?}");
        }
    }
}
