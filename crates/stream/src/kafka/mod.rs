//! The log in Kafka: two topics, an idempotent producer, readers by assignment.
//!
//! Three kinds of librdkafka clients: one that appends, one that asks (identity, bounds), and
//! one for each tail. Nothing that blocks runs on an async worker, and every wait is bounded.

mod client;
mod probe;
mod producer;
mod settings;
mod tail;
mod topic_id;

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use dropgate_domain::{LogId, Offset};
use tokio::time::{Instant, timeout};

use crate::config::KafkaConfig;
use crate::error::{AppendError, LogError, OpenError, Refused};
use crate::{Lane, LogStore, Probe, Settings};
use probe::Asker;
use producer::Producer;
pub use tail::KafkaTail;
use topic_id::Described;

/// How often a topic that was just created is asked for its leaders.
const LEADER_INTERVAL: Duration = Duration::from_millis(50);

/// An open log in Kafka. Clones share it.
#[derive(Clone)]
pub struct KafkaLog {
    inner: Arc<Inner>,
}

impl fmt::Debug for KafkaLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaLog")
            .field("brokers", &self.inner.config.brokers)
            .field("index", &self.inner.index)
            .field("claims", &self.inner.claims)
            .field("read_only", &self.inner.producer.is_none())
            .finish_non_exhaustive()
    }
}

/// A topic as it was when the log was opened.
#[derive(Debug)]
struct Topic {
    name: String,
    id: LogId,
}

struct Inner {
    config: KafkaConfig,
    index: Topic,
    claims: Topic,
    partitions: u32,
    asker: Asker,
    /// None when the log was opened for reading alone.
    producer: Option<Arc<Producer>>,
    /// Set once a probe has seen that a topic is not the one that was opened.
    wrong: OnceLock<LogError>,
}

impl KafkaLog {
    /// Opens the topics for reading and appending, creating missing ones if `create` is on.
    /// Bounded by `open_timeout`.
    pub async fn open(config: &KafkaConfig) -> Result<Self, OpenError> {
        Self::open_with(config, true).await
    }

    /// Opens the topics for reading alone; creates nothing. Bounded by `open_timeout`.
    pub async fn open_read_only(config: &KafkaConfig) -> Result<Self, OpenError> {
        let config = KafkaConfig {
            create: false,
            ..config.clone()
        };
        Self::open_with(&config, false).await
    }

    async fn open_with(config: &KafkaConfig, append: bool) -> Result<Self, OpenError> {
        let problems = config.problems();
        if !problems.is_empty() {
            let texts = problems.iter().map(ToString::to_string).collect();
            return Err(OpenError::Config(texts));
        }
        let settings = config.clone();
        let clients = move || -> Result<_, rdkafka::error::KafkaError> {
            let producer = append.then(|| Producer::new(&settings)).transpose()?;
            Ok((Asker::new(&settings)?, producer))
        };
        let unusable = |reason: String| OpenError::Unusable {
            what: "the Kafka client".to_owned(),
            reason,
        };
        let (asker, producer) = tokio::task::spawn_blocking(clients)
            .await
            .map_err(|e| unusable(e.to_string()))?
            .map_err(|e| unusable(e.to_string()))?;
        let opening = Opening {
            config,
            asker: &asker,
            deadline: Instant::now() + config.open_timeout,
        };
        // Each step has the same bound; this one holds for all of them together.
        let bound = config.open_timeout + Duration::from_secs(1);
        let (index, claims) = match timeout(bound, opening.topics()).await {
            Ok(topics) => topics?,
            Err(_) => return Err(opening.unreachable("timed out".to_owned())),
        };
        let topic = |name: &str, described: &Described| Topic {
            name: name.to_owned(),
            id: described.id,
        };
        Ok(Self {
            inner: Arc::new(Inner {
                index: topic(&config.topic_index, &index),
                claims: topic(&config.topic_claims, &claims),
                partitions: claims.partitions,
                config: config.clone(),
                asker,
                producer: producer.map(Arc::new),
                wrong: OnceLock::new(),
            }),
        })
    }
}

/// What is done once, with one deadline, before a log is open.
struct Opening<'a> {
    config: &'a KafkaConfig,
    asker: &'a Asker,
    deadline: Instant,
}

impl Opening<'_> {
    /// Both topics, there and with settings that are fit for a log.
    async fn topics(&self) -> Result<(Described, Described), OpenError> {
        let (index, claims) = (&self.config.topic_index, &self.config.topic_claims);
        let found = (self.find(index).await?, self.find(claims).await?);
        let (index, claims) = match found {
            (Some(index), Some(claims)) => (index, claims),
            (found_index, found_claims) => {
                if !self.config.create {
                    let missing = if found_index.is_none() { index } else { claims };
                    return Err(OpenError::Missing {
                        what: format!("the topic {missing}"),
                        key: "kafka.create",
                    });
                }
                settings::create_topics(self.config, found_index.is_none(), found_claims.is_none())
                    .await
                    .map_err(|e| self.failed(e))?;
                (self.led(index).await?, self.led(claims).await?)
            }
        };
        self.check_settings(&index, &claims).await?;
        Ok((index, claims))
    }

    async fn find(&self, topic: &str) -> Result<Option<Described>, OpenError> {
        let within = self.deadline.saturating_duration_since(Instant::now());
        match self.asker.describe(topic, within).await {
            Ok(described) => Ok(Some(described)),
            Err(LogError::Missing { .. }) => Ok(None),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Waits until a topic that was just created is known and led. Kafka has no call that
    /// waits for it.
    async fn led(&self, topic: &str) -> Result<Described, OpenError> {
        loop {
            if let Some(described) = self.find(topic).await?
                && described.led
            {
                return Ok(described);
            }
            tokio::time::sleep(LEADER_INTERVAL).await;
        }
    }

    async fn check_settings(&self, index: &Described, claims: &Described) -> Result<(), OpenError> {
        let production = self.config.production;
        let topics = match settings::read(self.config, index, claims).await {
            Ok(topics) => topics,
            Err(error) if production => return Err(self.failed(error)),
            Err(error) => {
                tracing::warn!(%error, "kafka topic settings not read");
                return Ok(());
            }
        };
        let settings = Settings { topics };
        let (mut errors, warnings) = (settings.errors(), settings.warnings());
        if production {
            errors.extend(warnings);
        } else {
            for warning in warnings {
                tracing::warn!(warning, "kafka topic setting is not safe");
            }
        }
        if errors.is_empty() {
            return Ok(());
        }
        Err(OpenError::Unsafe(errors))
    }

    fn failed(&self, error: LogError) -> OpenError {
        match error {
            LogError::Unavailable(reason) => self.unreachable(reason),
            other => OpenError::Unusable {
                what: "the log in Kafka".to_owned(),
                reason: other.to_string(),
            },
        }
    }

    fn unreachable(&self, reason: String) -> OpenError {
        OpenError::Unreachable {
            brokers: self.config.brokers.clone(),
            waited: self.config.open_timeout,
            reason: self.asker.last_error().unwrap_or(reason),
        }
    }
}

impl Inner {
    fn topic(&self, lane: Lane) -> &Topic {
        match lane {
            Lane::Index => &self.index,
            Lane::Claims(_) => &self.claims,
        }
    }

    /// The lane of a record that was read from a topic.
    fn lane(&self, topic: &str, partition: i32) -> Option<Lane> {
        let partition = dropgate_domain::PartitionId(u32::try_from(partition).ok()?);
        if topic == self.claims.name {
            return Some(Lane::Claims(partition));
        }
        (topic == self.index.name && partition.0 == 0).then_some(Lane::Index)
    }

    /// An error once a probe has found another topic under a name of this log.
    fn check_right(&self) -> Result<(), LogError> {
        self.wrong.get().map_or(Ok(()), |wrong| Err(wrong.clone()))
    }

    fn check_id(&self, topic: &Topic, found: &Described) -> Result<(), LogError> {
        if found.id == topic.id {
            return Ok(());
        }
        let wrong = LogError::WrongLog {
            what: format!("the topic {}", topic.name),
            expected: topic.id,
            found: Some(found.id),
        };
        Err(self.wrong.get_or_init(|| wrong).clone())
    }

    async fn probe(&self, lane: Lane) -> Result<Probe, LogError> {
        self.check_right()?;
        lane.checked(self.partitions)?;
        let topic = self.topic(lane);
        let (described, bounds) = self
            .asker
            .probe(
                &topic.name,
                native_partition(lane)?,
                self.config.probe_timeout,
            )
            .await?;
        self.check_id(topic, &described)?;
        let (low, end) = bounds?;
        Ok(Probe {
            log_id: described.id,
            low,
            end,
        })
    }

    /// The offset is there, or is the end.
    async fn check_offset(&self, lane: Lane, offset: Offset) -> Result<(), LogError> {
        let Probe { low, end, .. } = self.probe(lane).await?;
        if (low..=end).contains(&offset) {
            return Ok(());
        }
        Err(LogError::OutOfRange {
            lane,
            offset,
            low,
            end,
        })
    }
}

fn native_partition(lane: Lane) -> Result<i32, LogError> {
    let partition = lane.partition();
    i32::try_from(partition.0).map_err(|_| LogError::Broken(format!("partition {partition}")))
}

impl LogStore for KafkaLog {
    type Tail = KafkaTail;

    fn partitions(&self) -> u32 {
        self.inner.partitions
    }

    async fn append(&self, lane: Lane, value: Bytes) -> Result<Offset, AppendError> {
        let Some(producer) = &self.inner.producer else {
            return Err(Refused::ReadOnly.into());
        };
        self.inner.check_right().map_err(Refused::from)?;
        lane.checked(self.inner.partitions).map_err(Refused::from)?;
        if value.len() > crate::VALUE_BYTES_MAX {
            return Err(AppendError::Refused(Refused::TooLarge {
                bytes: value.len(),
                bytes_max: crate::VALUE_BYTES_MAX,
            }));
        }
        let topic = &self.inner.topic(lane).name;
        let partition = native_partition(lane).map_err(Refused::from)?;
        producer.append(topic, partition, value).await
    }

    async fn probe(&self, lane: Lane) -> Result<Probe, LogError> {
        self.inner.probe(lane).await
    }

    async fn settings(&self) -> Result<Settings, LogError> {
        let inner = &self.inner;
        let within = inner.config.open_timeout;
        let index = inner.asker.describe(&inner.index.name, within).await?;
        inner.check_id(&inner.index, &index)?;
        let claims = inner.asker.describe(&inner.claims.name, within).await?;
        inner.check_id(&inner.claims, &claims)?;
        let topics = settings::read(&inner.config, &index, &claims).await?;
        Ok(Settings { topics })
    }

    async fn tail(&self, from: &[(Lane, Offset)]) -> Result<KafkaTail, LogError> {
        KafkaTail::start(Arc::clone(&self.inner), from).await
    }

    async fn close(&self, deadline: Duration) {
        if let Some(producer) = &self.inner.producer {
            producer.close(deadline).await;
        }
    }
}
