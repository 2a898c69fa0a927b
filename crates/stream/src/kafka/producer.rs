//! Appending: one idempotent producer, made anew if librdkafka declares it dead, or if it gives no
//! word of what it was given.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dropgate_domain::Offset;
use parking_lot::{Mutex, RwLock};
use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{
    BaseRecord, DeliveryResult, Producer as _, ProducerContext, ThreadedProducer,
};
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::client::{self, Context, OffWorker};
use crate::config::KafkaConfig;
use crate::error::{AppendError, LogError, Refused};

/// How much longer than the delivery timeout an append waits for librdkafka's own word, which
/// says more than that it took too long.
const REPORT_SLACK: Duration = Duration::from_millis(500);
/// A producer is replaced at most this often.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);

type Delivery = Result<i64, KafkaError>;

/// Hands each delivery report to the append that waits for it.
struct Reports(Context);

impl ClientContext for Reports {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.0.log(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        self.0.error(error, reason);
    }
}

impl ProducerContext for Reports {
    type DeliveryOpaque = Box<oneshot::Sender<Delivery>>;

    fn delivery(&self, result: &DeliveryResult<'_>, waiting: Self::DeliveryOpaque) {
        let report = match result {
            Ok(message) => Ok(message.offset()),
            Err((error, _)) => Err(error.clone()),
        };
        // Nobody waits for the report of an append that was given up.
        let _ = waiting.send(report);
    }
}

type Native = OffWorker<ThreadedProducer<Reports>>;

/// The producer of one log.
pub(super) struct Producer {
    config: ClientConfig,
    wait: Duration,
    /// None once closed.
    current: RwLock<Option<Arc<Native>>>,
    renewed: Mutex<Instant>,
}

impl Producer {
    /// Makes the producer. Blocks for as long as it takes to start threads; talks to nobody.
    pub(super) fn new(config: &KafkaConfig) -> Result<Self, KafkaError> {
        let wait = config.append_timeout + REPORT_SLACK;
        let config = client::producer(config);
        let native = create(&config)?;
        Ok(Self {
            config,
            wait,
            current: RwLock::new(Some(Arc::new(native))),
            renewed: Mutex::new(Instant::now()),
        })
    }

    /// Appends a record and waits for its acknowledgement by all in-sync replicas.
    pub(super) async fn append(
        self: &Arc<Self>,
        topic: &str,
        partition: i32,
        value: Bytes,
    ) -> Result<Offset, AppendError> {
        let (waiting, report) = oneshot::channel();
        let sent_by = {
            let native = self.current.read().clone().ok_or(Refused::Closed)?;
            let record: BaseRecord<'_, (), [u8], _> =
                BaseRecord::with_opaque_to(topic, Box::new(waiting))
                    .partition(partition)
                    .payload(&value[..]);
            if let Err((error, _)) = native.send(record) {
                self.renew_if_dead(&native);
                return Err(not_queued(&error, value.len()).into());
            }
            // Not kept while waiting, so that a closed or dead producer can end.
            Arc::downgrade(&native)
        };
        drop(value);
        match timeout(self.wait, report).await {
            Ok(Ok(Ok(offset))) => offset_of(offset)
                .map_err(|_| AppendError::Unknown(format!("acknowledged at offset {offset}"))),
            Ok(Ok(Err(error))) => {
                if let Some(native) = &*self.current.read() {
                    self.renew_if_dead(native);
                }
                Err(not_delivered(&error))
            }
            Ok(Err(_)) => Err(AppendError::Unknown("the producer was closed".to_owned())),
            Err(_) => {
                if let Some(native) = sent_by.upgrade() {
                    self.renew(&native, "it gives no report of a delivery");
                }
                Err(AppendError::Unknown(format!(
                    "no report of the delivery within {:?}",
                    self.wait
                )))
            }
        }
    }

    /// An idempotent producer that lost track of its sequence refuses everything from then on.
    /// Another one begins a new sequence; what was in flight is unknown.
    fn renew_if_dead(self: &Arc<Self>, dead: &Arc<Native>) {
        if let Some((code, reason)) = dead.client().fatal_error() {
            self.renew(dead, &format!("{code}: {reason}"));
        }
    }

    /// Makes the producer anew, unless that was done already. What was in flight is unknown.
    ///
    /// Also for one that is silent: librdkafka waits by the wall clock, so after that was set back
    /// its threads may sleep until the old time comes again, and look at no time-out meanwhile.
    fn renew(self: &Arc<Self>, dead: &Arc<Native>, why: &str) {
        let is_current = |current: &Option<Arc<Native>>| {
            let current = current.as_ref();
            current.is_some_and(|current| Arc::ptr_eq(current, dead))
        };
        if !is_current(&self.current.read()) {
            return;
        }
        {
            let mut renewed = self.renewed.lock();
            if renewed.elapsed() < RENEWAL_INTERVAL {
                return;
            }
            *renewed = Instant::now();
        }
        tracing::warn!(why, "kafka producer is made anew");
        let (producer, dead) = (Arc::clone(self), Arc::clone(dead));
        // Ends by itself: making a client starts threads and talks to nobody.
        tokio::task::spawn_blocking(move || match create(&producer.config) {
            Ok(native) => {
                let mut current = producer.current.write();
                if let Some(current) = &mut *current
                    && Arc::ptr_eq(current, &dead)
                {
                    *current = Arc::new(native);
                }
            }
            Err(error) => tracing::error!(%error, "kafka producer not made anew"),
        });
    }

    /// Accepts no more, and sends what was accepted within the deadline.
    pub(super) async fn close(&self, deadline: Duration) {
        let Some(native) = self.current.write().take() else {
            return;
        };
        let flush = move || native.flush(deadline);
        match tokio::task::spawn_blocking(flush).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "kafka producer not flushed"),
            Err(error) => tracing::warn!(%error, "kafka producer not flushed"),
        }
    }
}

fn create(config: &ClientConfig) -> Result<Native, KafkaError> {
    let context = Reports(Context { role: "append" });
    ThreadedProducer::from_config_and_context(config, context).map(OffWorker::new)
}

/// An offset as librdkafka gives it: negative values have other meanings.
pub(super) fn offset_of(native: i64) -> Result<Offset, LogError> {
    u64::try_from(native)
        .map(Offset)
        .map_err(|_| LogError::Broken(format!("a record has the offset {native}")))
}

/// librdkafka did not take the record: it is surely not in the log.
fn not_queued(error: &KafkaError, bytes: usize) -> Refused {
    match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::QueueFull) => Refused::Busy,
        Some(RDKafkaErrorCode::MessageSizeTooLarge) => Refused::TooLarge {
            bytes,
            bytes_max: crate::VALUE_BYTES_MAX,
        },
        _ => Refused::Backend(error.to_string()),
    }
}

/// librdkafka took the record and gave up on it. Only what the broker checks before it writes
/// anything, and what never left the queue, is surely not in the log.
fn not_delivered(error: &KafkaError) -> AppendError {
    match error.rdkafka_error_code() {
        Some(
            RDKafkaErrorCode::MessageSizeTooLarge
            | RDKafkaErrorCode::MessageBatchTooLarge
            | RDKafkaErrorCode::InvalidRecord,
        ) => Refused::Backend(error.to_string()).into(),
        _ => AppendError::Unknown(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use rdkafka::mocking::MockCluster;
    use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

    use super::*;

    /// librdkafka's own cluster, because no real broker can be made to say this.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_producer_that_lost_its_sequence_is_made_anew() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("t", 1, 1).unwrap();
        let config = KafkaConfig {
            brokers: cluster.bootstrap_servers(),
            ..KafkaConfig::default()
        };
        let producer = Arc::new(Producer::new(&config).unwrap());
        let value = Bytes::from_static(b"v");
        assert_eq!(producer.append("t", 0, value.clone()).await, Ok(Offset(0)));

        let lost = RDKafkaRespErr::RD_KAFKA_RESP_ERR_OUT_OF_ORDER_SEQUENCE_NUMBER;
        cluster.request_errors(RDKafkaApiKey::Produce, &[lost]);
        let told = producer.append("t", 0, value.clone()).await;
        assert!(matches!(told, Err(AppendError::Unknown(_))), "{told:?}");
        let begun = Instant::now();
        loop {
            match producer.append("t", 0, value.clone()).await {
                Ok(offset) => break assert!(offset.0 >= 1, "{offset}"),
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(30), "{error}"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        producer.close(Duration::from_secs(10)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_producer_that_gives_no_report_is_made_anew() {
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic("t", 1, 1).unwrap();
        let config = KafkaConfig {
            brokers: cluster.bootstrap_servers(),
            ..KafkaConfig::default()
        };
        let mut producer = Producer::new(&config).unwrap();
        let patience = std::mem::replace(&mut producer.wait, Duration::from_millis(5));
        let producer = Arc::new(producer);
        let first = producer.current.read().clone().unwrap();
        // The broker takes its time, which for who waits is as good as silence.
        cluster
            .broker_round_trip_time(1, Duration::from_secs(2))
            .unwrap();
        let begun = Instant::now();
        while Arc::ptr_eq(&first, producer.current.read().as_ref().unwrap()) {
            let told = producer.append("t", 0, Bytes::from_static(b"v")).await;
            assert!(matches!(told, Err(AppendError::Unknown(_))), "{told:?}");
            assert!(begun.elapsed() < Duration::from_secs(30), "it is the same");
        }
        drop(first);
        cluster.broker_round_trip_time(1, Duration::ZERO).unwrap();
        let mut producer = Arc::into_inner(producer).unwrap();
        producer.wait = patience;
        let producer = Arc::new(producer);
        let told = producer.append("t", 0, Bytes::from_static(b"v")).await;
        assert!(told.is_ok(), "{told:?}");
        producer.close(Duration::from_secs(10)).await;
    }

    #[test]
    fn only_what_surely_was_not_written_is_refused() {
        let delivery = |code| not_delivered(&KafkaError::MessageProduction(code));
        let refused = delivery(RDKafkaErrorCode::MessageSizeTooLarge);
        assert!(matches!(refused, AppendError::Refused(_)), "{refused}");
        for code in [
            RDKafkaErrorCode::MessageTimedOut,
            RDKafkaErrorCode::PurgeInflight,
            // What waits in the queue may have been sent before, and wait for its next try.
            RDKafkaErrorCode::PurgeQueue,
            RDKafkaErrorCode::BrokerTransportFailure,
            RDKafkaErrorCode::NotEnoughReplicasAfterAppend,
            RDKafkaErrorCode::UnknownTopicOrPartition,
        ] {
            assert!(matches!(delivery(code), AppendError::Unknown(_)), "{code}");
        }
    }
}
