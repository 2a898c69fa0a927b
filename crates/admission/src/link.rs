//! One connection to Redis, and the watchdog that replaces it. The only module that sends.
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
//!   full socket it takes no orders, not even to reconnect: so the watchdog takes a new client.

use crate::config::RedisConfig;
use crate::error::{CallError, ConnectError, Outage, classify, denial};
use crate::facts::ServerFacts;
use bytes::Bytes;
use dropgate_domain::TimeMs;
use fred::clients::Client;
use fred::error::Error;
use fred::interfaces::{ClientLike, EventInterface};
use fred::types::config::{Config, ReconnectPolicy};
use fred::types::{Builder, ClusterHash, CustomCommand, Value};
use secrecy::ExposeSecret;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, TryAcquireError, watch};
use tokio_util::task::AbortOnDropHandle;

/// A reply, free of the client library's types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Nil,
    Int(i64),
    Bytes(Bytes),
    List(Vec<Item>),
}

/// A connection that is kept up until this value is dropped.
#[derive(Debug)]
pub(crate) struct Link {
    current: watch::Receiver<Arc<Connection>>,
    permits: Arc<Semaphore>,
    permits_max: u32,
    command_timeout: Duration,
    supervisor: AbortOnDropHandle<()>,
}

/// One client of fred, with what its calls have seen of it.
#[derive(Debug)]
struct Connection {
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
struct Tasks {
    driver: AbortOnDropHandle<Result<(), Error>>,
    _errors: AbortOnDropHandle<Result<(), Error>>,
}

impl Link {
    /// Connects, waiting for it up to `connect_timeout`. If Redis cannot be reached by then, goes
    /// on in the background; if it answers and refuses the user, that is an error.
    pub(crate) async fn open(config: &RedisConfig) -> Result<Self, ConnectError> {
        let (connection, tasks) = first(config).await?;
        let (sender, current) = watch::channel(Arc::clone(&connection));
        let supervisor = tokio::spawn(supervise(config.clone(), connection, tasks, sender));
        let permits_max = u32::try_from(config.calls_in_flight_max).unwrap_or(u32::MAX);
        Ok(Self {
            current,
            permits: Arc::new(Semaphore::new(config.calls_in_flight_max)),
            permits_max,
            command_timeout: config.command_timeout,
            supervisor: AbortOnDropHandle::new(supervisor),
        })
    }

    /// Sends one command, once, and waits for its reply up to the command time-out. Dropping the
    /// future does not undo what was sent.
    pub(crate) async fn call(
        &self,
        command: &'static str,
        slot_of: ClusterHash,
        args: Vec<Value>,
    ) -> Result<Item, CallError> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = permit.map_err(|error| {
            CallError::Unavailable(match error {
                TryAcquireError::NoPermits => Outage::TooMany,
                TryAcquireError::Closed => Outage::NotConnected,
            })
        })?;
        let connection = Arc::clone(&self.current.borrow());
        if connection.given_up.load(Ordering::Relaxed) || !connection.client.is_connected() {
            return Err(CallError::Unavailable(Outage::NotConnected));
        }
        let command = CustomCommand::new_static(command, slot_of, false);
        let sent = Sent {
            permit: Some(permit),
            command_timeout: self.command_timeout,
        };
        let reply: Result<Value, Error> = connection.client.custom(command, args).await;
        sent.answered();
        match reply {
            Ok(value) => {
                connection.saw_reply();
                item(value)
            }
            Err(error) => {
                let error = classify(&error);
                connection.saw_error(&error);
                Err(error)
            }
        }
    }

    /// The time in Redis, in ms.
    pub(crate) async fn time(&self) -> Result<TimeMs, CallError> {
        let unreadable = || CallError::Protocol("TIME gave a reply of another type".to_owned());
        let reply = self.call("TIME", ClusterHash::Random, Vec::new()).await?;
        let Item::List(parts) = reply else {
            return Err(unreadable());
        };
        let numbers: Vec<u64> = parts.iter().filter_map(decimal).collect();
        match numbers[..] {
            [seconds, micros] => Ok(TimeMs(seconds * 1000 + micros / 1000)),
            _ => Err(unreadable()),
        }
    }

    /// What INFO says.
    pub(crate) async fn info(&self) -> Result<ServerFacts, CallError> {
        match self.call("INFO", ClusterHash::Random, Vec::new()).await? {
            Item::Bytes(text) => Ok(ServerFacts::from_info(&String::from_utf8_lossy(&text))),
            _ => Err(CallError::Protocol(
                "INFO gave a reply of another type".to_owned(),
            )),
        }
    }

    /// Refuses new calls, waits for those in flight up to the command time-out, and ends the
    /// connection. Called again it does nothing.
    pub(crate) async fn close(&self) {
        let all = self.permits.acquire_many(self.permits_max);
        // Not all in time: they end with the connection.
        let _ = tokio::time::timeout(self.command_timeout, all).await;
        self.permits.close();
        self.supervisor.abort();
    }
}

/// A command that the driver holds, and its place among those in flight.
struct Sent {
    permit: Option<OwnedSemaphorePermit>,
    command_timeout: Duration,
}

impl Sent {
    fn answered(mut self) {
        self.permit = None;
    }
}

impl Drop for Sent {
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

impl Connection {
    fn new(client: Client, config: &RedisConfig) -> Arc<Self> {
        Arc::new(Self {
            client,
            timeouts_in_row: AtomicU32::new(0),
            timeouts_in_row_max: config.timeouts_in_row_max,
            served: AtomicBool::new(false),
            given_up: AtomicBool::new(false),
            trouble: Notify::new(),
        })
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

    fn give_up(&self) {
        if !self.given_up.swap(true, Ordering::Relaxed) {
            self.trouble.notify_one();
        }
    }
}

/// The first connection: up, or on its way in the background.
async fn first(config: &RedisConfig) -> Result<(Arc<Connection>, Tasks), ConnectError> {
    let problems = config.problems();
    if !problems.is_empty() {
        let all: Vec<_> = problems.iter().map(ToString::to_string).collect();
        return Err(ConnectError::Invalid(all.join("; ")));
    }
    let connection = Connection::new(client(config, true)?, config);
    let errors = log_errors(&connection.client);
    let (tasks, up) = {
        let mut up = pin!(connection.client.wait_for_connect());
        // Polled once before it begins, or it could be up before anybody listens for that.
        let _ = futures::poll!(up.as_mut());
        let tasks = Tasks {
            driver: AbortOnDropHandle::new(connection.client.connect()),
            _errors: errors,
        };
        (
            tasks,
            tokio::time::timeout(config.connect_timeout, up).await,
        )
    };
    match up {
        Ok(Ok(())) => Ok((connection, tasks)),
        Ok(Err(error)) => match denial(&error) {
            Some(reason) => Err(ConnectError::Denied(reason)),
            None => patient(config),
        },
        Err(_) => patient(config),
    }
}

/// A connection that comes up when it can.
fn patient(config: &RedisConfig) -> Result<(Arc<Connection>, Tasks), ConnectError> {
    let connection = Connection::new(client(config, false)?, config);
    let tasks = Tasks {
        _errors: log_errors(&connection.client),
        driver: AbortOnDropHandle::new(connection.client.connect()),
    };
    Ok((connection, tasks))
}

/// Replaces the connection whenever it is in trouble, until it is aborted.
async fn supervise(
    config: RedisConfig,
    mut connection: Arc<Connection>,
    mut tasks: Tasks,
    sender: watch::Sender<Arc<Connection>>,
) {
    let mut failures = 0;
    loop {
        tokio::select! {
            () = connection.trouble.notified() => {}
            _ = &mut tasks.driver => {}
        }
        connection.given_up.store(true, Ordering::Relaxed);
        failures = if connection.served.load(Ordering::Relaxed) {
            0
        } else {
            failures + 1
        };
        tracing::warn!(failures, "redis connection given up for a new one");
        tokio::time::sleep(pause(&config, failures)).await;
        match patient(&config) {
            Ok((new, new_tasks)) => {
                connection = new;
                tasks = new_tasks;
                sender.send_replace(Arc::clone(&connection));
            }
            // Not seen: the same configuration made a client before.
            Err(error) => {
                tracing::error!(%error, "redis client cannot be made");
                return;
            }
        }
    }
}

/// None at first; then doubling, with jitter so that gateways do not come back all at once.
fn pause(config: &RedisConfig, failures: u32) -> Duration {
    if failures == 0 {
        return Duration::ZERO;
    }
    let doubled = config
        .reconnect_delay_min
        .saturating_mul(1 << (failures - 1).min(16));
    doubled
        .min(config.reconnect_delay_max)
        .mul_f64(rand::random_range(0.5..1.0))
}

fn client(config: &RedisConfig, fail_fast: bool) -> Result<Client, ConnectError> {
    // fred's error may repeat the URL, which may hold a password.
    let mut server = Config::from_url(config.url.expose_secret())
        .map_err(|_| ConnectError::Invalid("url: cannot be read".to_owned()))?;
    server.fail_fast = fail_fast;
    if let Some(username) = &config.username {
        server.username = Some(username.clone());
    }
    if let Some(password) = &config.password {
        server.password = Some(password.expose_secret().to_owned());
    }
    let ms = |duration: Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
    let delay_min_ms = ms(config.reconnect_delay_min);
    let mut policy =
        ReconnectPolicy::new_exponential(0, delay_min_ms, ms(config.reconnect_delay_max), 2);
    policy.set_jitter(delay_min_ms);
    Builder::from_config(server)
        .set_policy(policy)
        .with_performance_config(|performance| {
            performance.default_command_timeout = config.command_timeout;
        })
        .with_connection_config(|connection| {
            connection.connection_timeout = config.connect_timeout;
            connection.internal_command_timeout = config.connect_timeout;
            connection.max_command_attempts = 1;
            connection.max_command_buffer_len = config.calls_in_flight_max.saturating_mul(4);
            connection.reconnect_errors = Vec::new();
            connection.tcp.nodelay = Some(true);
        })
        .build()
        .map_err(|_| ConnectError::Invalid("no client can be made of it".to_owned()))
}

/// Puts what happens to the connection on record. fred's errors name servers, never credentials.
fn log_errors(client: &Client) -> AbortOnDropHandle<Result<(), Error>> {
    AbortOnDropHandle::new(client.on_error(|(error, _)| async move {
        let reason: String = error.details().chars().take(200).collect();
        tracing::warn!(reason, "redis connection failed");
        Ok(())
    }))
}

/// Binary strings arrive as `String` or `Bytes`, depending on whether they happen to be UTF-8.
fn item(value: Value) -> Result<Item, CallError> {
    Ok(match value {
        Value::Null => Item::Nil,
        Value::Integer(number) => Item::Int(number),
        Value::Bytes(bytes) => Item::Bytes(bytes),
        Value::String(text) => Item::Bytes(text.into_inner()),
        Value::Queued => Item::Bytes(Bytes::from_static(b"QUEUED")),
        Value::Array(values) => Item::List(values.into_iter().map(item).collect::<Result<_, _>>()?),
        other => {
            let kind = other.kind();
            return Err(CallError::Protocol(format!("a reply of the type {kind:?}")));
        }
    })
}

fn decimal(item: &Item) -> Option<u64> {
    match item {
        Item::Bytes(text) => std::str::from_utf8(text).ok()?.parse().ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_within_their_bounds_and_are_spread() {
        let config = RedisConfig::default();
        assert_eq!(pause(&config, 0), Duration::ZERO);
        for failures in 1..100 {
            let full = config
                .reconnect_delay_min
                .saturating_mul(1 << (failures - 1).min(16))
                .min(config.reconnect_delay_max);
            let pauses: Vec<_> = (0..20).map(|_| pause(&config, failures)).collect();
            assert!(pauses.iter().all(|p| *p >= full / 2 && *p <= full));
            assert!(pauses.iter().any(|p| *p != pauses[0]), "{pauses:?}");
        }
    }

    #[test]
    fn binary_replies_are_bytes_whether_or_not_they_are_text() {
        let text = item(Value::String("abc".into())).unwrap();
        assert_eq!(text, Item::Bytes(Bytes::from_static(b"abc")));
        let binary = Bytes::from_static(b"\xff\x00");
        let reply = Value::Array(vec![Value::Bytes(binary.clone()), Value::Integer(3)]);
        let expected = Item::List(vec![Item::Bytes(binary), Item::Int(3)]);
        assert_eq!(item(reply).unwrap(), expected);
        assert_eq!(item(Value::Null).unwrap(), Item::Nil);
        assert!(matches!(
            item(Value::Double(1.5)),
            Err(CallError::Protocol(_))
        ));
    }
}
