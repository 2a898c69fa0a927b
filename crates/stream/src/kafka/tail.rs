//! Reading: one consumer by assignment, whose records are held to their offsets.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dropgate_domain::Offset;
use futures::future::{FutureExt, try_join_all};
use futures::stream::StreamExt;
use rdkafka::TopicPartitionList;
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::consumer::{Consumer, StreamConsumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Message};
use rdkafka::types::RDKafkaErrorCode;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

use super::client::{self, Context, OffWorker};
use super::producer::offset_of;
use super::{Inner, native_partition, topic_id};
use crate::error::LogError;
use crate::{Item, Lane, LogTail, READ_BYTES_MAX};

type Native = OffWorker<StreamConsumer<Context>>;

/// A reader of some lanes of a log in Kafka.
pub struct KafkaTail {
    inner: Arc<Inner>,
    consumer: Arc<Native>,
    /// The lanes and the offset that each has to give next.
    lanes: Vec<(Lane, Offset)>,
    /// An assignment under way, also one whose `add` was cancelled.
    adding: Option<JoinHandle<Result<(), KafkaError>>>,
    /// What the consumer complained of, until it is known what it means.
    suspect: Option<Suspect>,
    failed: Option<LogError>,
}

impl fmt::Debug for KafkaTail {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaTail")
            .field("lanes", &self.lanes)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// librdkafka does not say which partition it means.
#[derive(Debug)]
struct Suspect {
    reason: String,
    /// The consumer has stopped to read the partition and will not go on.
    stopped: bool,
}

/// What an event of the consumer was.
enum Event {
    Item(Item),
    Nothing,
    /// Named by `suspect` or `failed`.
    Trouble,
}

impl KafkaTail {
    pub(super) async fn start(
        inner: Arc<Inner>,
        from: &[(Lane, Offset)],
    ) -> Result<Self, LogError> {
        let mut lanes: Vec<(Lane, Offset)> = Vec::with_capacity(from.len());
        for &(lane, offset) in from {
            if lanes.iter().any(|(taken, _)| *taken == lane) {
                return Err(LogError::LaneTaken { lane });
            }
            lanes.push((lane, offset));
        }
        let checks = from
            .iter()
            .map(|&(lane, offset)| inner.check_offset(lane, offset));
        try_join_all(checks).await?;
        let settings = client::consumer(&inner.config);
        let assignment = assignment(&inner, &lanes)?;
        let create = move || -> Result<Native, KafkaError> {
            let context = Context { role: "tail" };
            let consumer =
                StreamConsumer::from_config_and_context(&settings, context).map(OffWorker::new)?;
            if assignment.count() > 0 {
                consumer.assign(&assignment)?;
            }
            Ok(consumer)
        };
        let consumer = tokio::task::spawn_blocking(create)
            .await
            .map_err(|e| LogError::Unavailable(e.to_string()))?
            .map_err(|e| LogError::Unavailable(e.to_string()))?;
        Ok(Self {
            inner,
            consumer: Arc::new(consumer),
            lanes,
            adding: None,
            suspect: None,
            failed: None,
        })
    }

    /// Waits for an assignment under way. Cancel safe.
    async fn settle(&mut self) -> Result<(), LogError> {
        let Some(adding) = &mut self.adding else {
            return Ok(());
        };
        let done = adding.await;
        self.adding = None;
        let reason = match done {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        let error = LogError::Broken(format!("a lane cannot be assigned: {reason}"));
        self.failed = Some(error.clone());
        Err(error)
    }

    /// Finds out what the consumer's complaint means. Cancel safe: it is kept until then.
    async fn examine(&mut self) -> Result<(), LogError> {
        let Some(suspect) = &self.suspect else {
            return Ok(());
        };
        for &(lane, next) in &self.lanes {
            match self.inner.check_offset(lane, next).await {
                Ok(()) => {}
                Err(error) => {
                    if !error.is_transient() {
                        self.failed = Some(error.clone());
                    }
                    return Err(error);
                }
            }
        }
        if suspect.stopped {
            let error = LogError::Broken(suspect.reason.clone());
            self.failed = Some(error.clone());
            return Err(error);
        }
        // The consumer tries again by itself.
        tracing::warn!(reason = suspect.reason, "kafka tail goes on after an error");
        self.suspect = None;
        Ok(())
    }

    /// What came, up to the bounds; waits for the first only. Nothing is taken before an
    /// await, so a cancelled call loses nothing.
    async fn receive(&mut self, max: usize, deadline: Instant) -> Vec<Item> {
        let consumer = Arc::clone(&self.consumer);
        let mut stream = pin!(consumer.stream());
        let mut items = Vec::new();
        let mut bytes = 0;
        while items.len() < max && bytes + crate::VALUE_BYTES_MAX <= READ_BYTES_MAX {
            let event = if items.is_empty() {
                timeout_at(deadline, stream.next()).await.ok()
            } else {
                stream.next().now_or_never()
            };
            let Some(Some(event)) = event else { break };
            match self.handle(event) {
                Event::Item(item) => {
                    bytes += item.value.len();
                    items.push(item);
                }
                Event::Nothing => {}
                Event::Trouble => break,
            }
        }
        items
    }

    fn handle(&mut self, event: Result<BorrowedMessage<'_>, KafkaError>) -> Event {
        match event {
            Ok(message) => match self.accept(&message) {
                Ok(item) => Event::Item(item),
                Err(error) => {
                    self.failed = Some(error);
                    Event::Trouble
                }
            },
            Err(error) => self.complain(&error),
        }
    }

    /// Holds a record to the offset that its lane has to give next.
    fn accept(&mut self, message: &BorrowedMessage<'_>) -> Result<Item, LogError> {
        let (topic, partition) = (message.topic(), message.partition());
        let lane = self.inner.lane(topic, partition);
        let known = lane.and_then(|lane| self.lanes.iter_mut().find(|(taken, _)| *taken == lane));
        let Some((lane, next)) = known else {
            return Err(LogError::Broken(format!(
                "a record of {topic} {partition} came, which is not read"
            )));
        };
        let offset = offset_of(message.offset())?;
        if offset != *next {
            return Err(LogError::Gap {
                lane: *lane,
                expected: *next,
                found: offset,
            });
        }
        *next = offset.next();
        Ok(Item {
            lane: *lane,
            offset,
            value: Bytes::copy_from_slice(message.payload().unwrap_or_default()),
        })
    }

    fn complain(&mut self, error: &KafkaError) -> Event {
        if let KafkaError::MessageConsumptionFatal(_) = error {
            self.failed = Some(LogError::Broken(error.to_string()));
            return Event::Trouble;
        }
        let stopped = match error.rdkafka_error_code() {
            Some(RDKafkaErrorCode::AutoOffsetReset | RDKafkaErrorCode::LogTruncation) => true,
            Some(
                RDKafkaErrorCode::UnknownTopicOrPartition
                | RDKafkaErrorCode::UnknownTopic
                | RDKafkaErrorCode::UnknownPartition
                | RDKafkaErrorCode::UnknownTopicId
                | RDKafkaErrorCode::TopicAuthorizationFailed,
            ) => false,
            _ => {
                // Brokers that are away, coordinators that are not needed: librdkafka tries
                // again, and whether the tail is fresh is what probes tell.
                tracing::debug!(%error, "kafka tail");
                return Event::Nothing;
            }
        };
        self.suspect = Some(Suspect {
            reason: error.to_string(),
            stopped,
        });
        Event::Trouble
    }
}

impl LogTail for KafkaTail {
    async fn next(&mut self, max: usize, wait: Duration) -> Result<Vec<Item>, LogError> {
        let deadline = Instant::now() + wait;
        loop {
            if let Some(error) = &self.failed {
                return Err(error.clone());
            }
            self.inner.check_right()?;
            self.settle().await?;
            self.examine().await?;
            let items = self.receive(max, deadline).await;
            let trouble = self.failed.is_some() || self.suspect.is_some();
            if !items.is_empty() || !trouble {
                return Ok(items);
            }
        }
    }

    async fn add(&mut self, lane: Lane, from: Offset) -> Result<(), LogError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.settle().await?;
        lane.checked(self.inner.partitions)?;
        if self.lanes.iter().any(|(taken, _)| *taken == lane) {
            return Err(LogError::LaneTaken { lane });
        }
        self.inner.check_offset(lane, from).await?;
        let assignment = assignment(&self.inner, &[(lane, from)])?;
        let consumer = Arc::clone(&self.consumer);
        // From here on there is no way back: the next call finishes what a cancelled one left.
        self.adding = Some(tokio::task::spawn_blocking(move || {
            consumer.incremental_assign(&assignment)
        }));
        self.lanes.push((lane, from));
        self.settle().await
    }

    fn queued(&self) -> u64 {
        topic_id::queue_length(self.consumer.client())
    }
}

fn assignment(inner: &Inner, lanes: &[(Lane, Offset)]) -> Result<TopicPartitionList, LogError> {
    let mut list = TopicPartitionList::with_capacity(lanes.len());
    for &(lane, offset) in lanes {
        let native = i64::try_from(offset.0)
            .map_err(|_| LogError::Broken(format!("{lane}: offset {offset}")))?;
        let at = rdkafka::Offset::Offset(native);
        list.add_partition_offset(&inner.topic(lane).name, native_partition(lane)?, at)
            .map_err(|e| LogError::Broken(e.to_string()))?;
    }
    Ok(list)
}
