//! What the tests of both back ends share.

use std::collections::HashMap;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use dropgate_domain::{Offset, PartitionId};
use dropgate_stream::{Backend, Item, Lane, Log, LogConfig, Tail};
use dropgate_testkit::Kafka;

/// How long anything may take before a test says that it hangs.
pub const BOUND: Duration = Duration::from_secs(60);

pub const P0: Lane = Lane::Claims(PartitionId(0));
pub const P1: Lane = Lane::Claims(PartitionId(1));
pub const PARTITIONS: u32 = 3;

/// A log of a test's own.
pub struct Fixture {
    pub config: LogConfig,
    _folder: Option<tempfile::TempDir>,
}

impl Fixture {
    /// A file that is not there yet.
    pub fn embedded() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = LogConfig::default();
        config.embedded.path = folder.path().join("log.db");
        config.embedded.partitions = PARTITIONS;
        // Tests share two cores: what has to be quick in production only has to end here.
        config.embedded.append_timeout = BOUND;
        config.embedded.probe_timeout = BOUND;
        Self {
            config,
            _folder: Some(folder),
        }
    }

    /// Topics that are not there yet, in the shared broker.
    pub async fn kafka() -> Self {
        let brokers = blocking(Kafka::shared_brokers).await.unwrap();
        Self::kafka_at(&brokers)
    }

    /// Topics that are not there yet, in this broker.
    pub fn kafka_at(brokers: &str) -> Self {
        let name = unique();
        let mut config = LogConfig {
            backend: Backend::Kafka,
            ..LogConfig::default()
        };
        let kafka = &mut config.kafka;
        kafka.brokers = brokers.to_owned();
        kafka.topic_index = format!("sales-{name}");
        kafka.topic_claims = format!("claims-{name}");
        kafka.create = true;
        kafka.partitions = PARTITIONS;
        kafka.replication_factor = 1;
        kafka.append_timeout = BOUND;
        kafka.probe_timeout = BOUND;
        kafka.open_timeout = BOUND;
        Self {
            config,
            _folder: None,
        }
    }

    pub async fn open(&self) -> Log {
        Log::open(&self.config).await.unwrap()
    }
}

/// A name that no other test uses.
pub fn unique() -> String {
    let mut bytes = [0u8; 8];
    getrandom::fill(&mut bytes).unwrap();
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.unwrap()
}

/// Reads until there are as many records; fails with what came when that takes too long.
pub async fn read(tail: &mut Tail, count: usize) -> Vec<Item> {
    let begun = Instant::now();
    let mut items = Vec::new();
    while items.len() < count {
        assert!(
            begun.elapsed() < BOUND,
            "{} of {count} records came: {:?}",
            items.len(),
            items.last()
        );
        let more = tail.next(count - items.len(), BOUND / 10).await.unwrap();
        items.extend(more);
    }
    items
}

/// Calls until it gives an answer that will do; fails with the last one.
pub async fn until<T: std::fmt::Debug, F: Future<Output = T>>(
    what: &str,
    mut ask: impl FnMut() -> F,
    good: impl Fn(&T) -> bool,
) -> T {
    let begun = Instant::now();
    loop {
        let answer = ask().await;
        if good(&answer) {
            return answer;
        }
        assert!(begun.elapsed() < BOUND, "waited for {what}, saw {answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub fn value(n: usize) -> Bytes {
    Bytes::from(format!("record {n}"))
}

/// Asserts that the items of each lane have consecutive offsets, and gives them by lane.
pub fn by_lane(items: Vec<Item>) -> HashMap<Lane, Vec<Item>> {
    let mut lanes: HashMap<Lane, Vec<Item>> = HashMap::new();
    for item in items {
        let lane = lanes.entry(item.lane).or_default();
        if let Some(last) = lane.last() {
            assert_eq!(item.offset, last.offset.next(), "in order, none twice");
        }
        lane.push(item);
    }
    lanes
}

/// Polls a future this often and then drops it, unless it is ready before.
pub async fn cancelled_after<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for poll in 0..polls {
        let waker = Waker::noop();
        let mut context = Context::from_waker(waker);
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
        // Gives threads behind the future a chance to get as far as the next poll finds.
        tokio::time::sleep(Duration::from_micros(200 * poll as u64)).await;
    }
    None
}

pub fn offsets(items: &[Item]) -> Vec<u64> {
    items.iter().map(|item| item.offset.0).collect()
}

pub const START: [(Lane, Offset); 4] = [
    (Lane::Index, Offset(0)),
    (P0, Offset(0)),
    (P1, Offset(0)),
    (Lane::Claims(PartitionId(2)), Offset(0)),
];
