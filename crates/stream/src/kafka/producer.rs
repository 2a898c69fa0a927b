//! Appending: one idempotent producer, made anew if librdkafka declares it dead.

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
/// A dead producer is replaced at most this often.
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
        {
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
        }
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
            Err(_) => Err(AppendError::Unknown(format!(
                "no report of the delivery within {:?}",
                self.wait
            ))),
        }
    }

    /// An idempotent producer that lost track of its sequence refuses everything from then on.
    /// Another one begins a new sequence; what was in flight is unknown.
    fn renew_if_dead(self: &Arc<Self>, dead: &Arc<Native>) {
        let Some((code, reason)) = dead.client().fatal_error() else {
            return;
        };
        {
            let mut renewed = self.renewed.lock();
            if renewed.elapsed() < RENEWAL_INTERVAL {
                return;
            }
            *renewed = Instant::now();
        }
        tracing::warn!(%code, reason, "kafka producer is dead and is made anew");
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
