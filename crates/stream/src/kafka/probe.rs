//! Asking the cluster: on a client that does not fetch, off the async workers, with a deadline.
//!
//! On a client that fetches the question would wait behind the long poll (half a second).

use std::sync::Arc;
use std::time::{Duration, Instant};

use dropgate_domain::Offset;
use parking_lot::Mutex;
use rdkafka::client::{Client, ClientContext};
use rdkafka::config::{FromClientConfigAndContext, RDKafkaLogLevel};
use rdkafka::error::KafkaError;
use rdkafka::producer::{DeliveryResult, Producer as _, ProducerContext, ThreadedProducer};
use rdkafka::types::RDKafkaErrorCode;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::client::{self, Context, OffWorker};
use super::producer::offset_of;
use super::topic_id::{self, DescribeError, Described};
use crate::config::KafkaConfig;
use crate::error::LogError;

/// How many questions may be under way at a time; each holds a thread while it waits.
const QUESTIONS_MAX: usize = 16;
/// How soon a partition whose leadership changes hands is asked again.
const LEADER_INTERVAL: Duration = Duration::from_millis(20);
/// How much longer than its deadline a question may hold its thread.
const SLACK: Duration = Duration::from_millis(500);

/// A producer that produces nothing. Its thread serves librdkafka's events, which would pile up
/// in an admin client or an idle consumer.
pub(super) struct Silent {
    context: Context,
    /// What librdkafka complained of last: says more than that a question timed out.
    last_error: Mutex<Option<String>>,
}

impl ClientContext for Silent {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        self.context.log(level, facility, text);
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // "All brokers are down" follows upon the reason why.
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::AllBrokersDown) {
            *self.last_error.lock() = Some(reason.to_owned());
        }
        self.context.error(error, reason);
    }
}

impl ProducerContext for Silent {
    type DeliveryOpaque = ();
    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

/// The client that asks.
pub(super) struct Asker {
    client: Arc<OffWorker<ThreadedProducer<Silent>>>,
    places: Arc<Semaphore>,
}

impl Asker {
    /// Makes the client. Blocks for as long as it takes to start threads; talks to nobody.
    pub(super) fn new(config: &KafkaConfig) -> Result<Self, KafkaError> {
        let context = Silent {
            context: Context { role: "probe" },
            last_error: Mutex::new(None),
        };
        let client = ThreadedProducer::from_config_and_context(&client::common(config), context)?;
        Ok(Self {
            client: Arc::new(OffWorker::new(client)),
            places: Arc::new(Semaphore::new(QUESTIONS_MAX)),
        })
    }

    /// What librdkafka complained of last.
    pub(super) fn last_error(&self) -> Option<String> {
        self.client.client().context().last_error.lock().clone()
    }

    /// The topic as the cluster sees it now, or [`LogError::Missing`]. Cancel safe.
    pub(super) async fn describe(
        &self,
        topic: &str,
        within: Duration,
    ) -> Result<Described, LogError> {
        let topic = topic.to_owned();
        self.ask(within, move |client, deadline| {
            describe(client, &topic, deadline)
        })
        .await
    }

    /// The topic as the cluster sees it, and the first and the next offset of a partition.
    /// Cancel safe.
    ///
    /// The topic is described last: an id that is still the old one says that the offsets
    /// were the old topic's.
    pub(super) async fn probe(
        &self,
        topic: &str,
        partition: i32,
        within: Duration,
    ) -> Result<(Described, Result<(Offset, Offset), LogError>), LogError> {
        let topic = topic.to_owned();
        self.ask(within, move |client, deadline| {
            let bounds = watermarks(client, &topic, partition, deadline);
            let described = describe(client, &topic, deadline)?;
            Ok((described, bounds))
        })
        .await
    }

    async fn ask<T: Send + 'static>(
        &self,
        within: Duration,
        question: impl FnOnce(&Client<Silent>, Instant) -> Result<T, LogError> + Send + 'static,
    ) -> Result<T, LogError> {
        let deadline = Instant::now() + within;
        let (client, places) = (Arc::clone(&self.client), Arc::clone(&self.places));
        let asked = async {
            let place = places.acquire_owned().await;
            let question = move || {
                // Held until the question has really ended, also when nobody waits any more.
                let _place = place;
                question(client.client(), deadline)
            };
            tokio::task::spawn_blocking(question).await
        };
        match timeout(within + SLACK, asked).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Err(LogError::Unavailable(error.to_string())),
            Err(_) => Err(LogError::Unavailable(format!(
                "no answer within {within:?}"
            ))),
        }
    }
}

fn left(deadline: Instant) -> Result<Duration, LogError> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left < Duration::from_millis(1) {
        return Err(LogError::Unavailable("timed out".to_owned()));
    }
    Ok(left)
}

fn describe(
    client: &Client<Silent>,
    topic: &str,
    deadline: Instant,
) -> Result<Described, LogError> {
    topic_id::describe(client, topic, left(deadline)?).map_err(|error| match error {
        DescribeError::Topic(
            RDKafkaErrorCode::UnknownTopicOrPartition
            | RDKafkaErrorCode::UnknownTopic
            | RDKafkaErrorCode::UnknownTopicId,
        ) => LogError::Missing {
            topic: topic.to_owned(),
        },
        other => LogError::Unavailable(other.to_string()),
    })
}

/// The first and the next offset of a partition. A leadership that has just changed hands, or
/// a topic that was just created, is asked again.
fn watermarks(
    client: &Client<Silent>,
    topic: &str,
    partition: i32,
    deadline: Instant,
) -> Result<(Offset, Offset), LogError> {
    // Leaves time to ask whether the topic is gone, when this waits for one that is.
    let deadline = Instant::now() + left(deadline)? * 3 / 4;
    loop {
        let error = match client.fetch_watermarks(topic, partition, left(deadline)?) {
            Ok((low, end)) => return Ok((offset_of(low)?, offset_of(end)?)),
            Err(error) => error,
        };
        let passing = matches!(
            error.rdkafka_error_code(),
            Some(
                RDKafkaErrorCode::NotLeaderForPartition
                    | RDKafkaErrorCode::LeaderNotAvailable
                    | RDKafkaErrorCode::OffsetNotAvailable
                    | RDKafkaErrorCode::FencedLeaderEpoch
                    | RDKafkaErrorCode::UnknownLeaderEpoch
            )
        );
        if !passing || left(deadline).is_err() {
            return Err(LogError::Unavailable(error.to_string()));
        }
        std::thread::sleep(LEADER_INTERVAL.min(deadline.saturating_duration_since(Instant::now())));
    }
}
