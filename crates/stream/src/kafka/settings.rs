//! Reading the topics' settings, and creating topics that have the right ones.

use std::time::Duration;

use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, NewTopic, ResourceSpecifier, TopicReplication,
};
use rdkafka::config::FromClientConfigAndContext;
use rdkafka::types::RDKafkaErrorCode;

use super::client::{self, Context, OffWorker};
use super::topic_id::Described;
use crate::TopicSettings;
use crate::config::KafkaConfig;
use crate::error::LogError;

/// A client for the few calls of an opening. It is not kept: nobody serves its events.
struct Admin {
    client: OffWorker<AdminClient<Context>>,
    options: AdminOptions,
}

impl Admin {
    async fn new(config: &KafkaConfig) -> Result<Self, LogError> {
        let (settings, within) = (client::common(config), config.open_timeout);
        let create = move || {
            AdminClient::from_config_and_context(&settings, Context { role: "admin" })
                .map(OffWorker::new)
        };
        let client = tokio::task::spawn_blocking(create).await;
        Ok(Self {
            client: client.map_err(unavailable)?.map_err(unavailable)?,
            options: AdminOptions::new()
                .request_timeout(Some(within))
                .operation_timeout(Some(within)),
        })
    }
}

fn unavailable(error: impl ToString) -> LogError {
    LogError::Unavailable(error.to_string())
}

/// Creates the topics; one that another process has created meanwhile is as good. Bounded by
/// `open_timeout`.
pub(super) async fn create_topics(
    config: &KafkaConfig,
    index: bool,
    claims: bool,
) -> Result<(), LogError> {
    let retention = config.retention.as_millis().to_string();
    // An acknowledgement is worth as much as the replicas that gave it.
    let in_sync = config.replication_factor.div_ceil(2).max(1).to_string();
    let new_topic = |name, partitions: u32, retention| {
        let partitions = i32::try_from(partitions).unwrap_or(i32::MAX);
        let replicas = TopicReplication::Fixed(i32::from(config.replication_factor));
        NewTopic::new(name, partitions, replicas)
            .set("cleanup.policy", "delete")
            .set("retention.ms", retention)
            .set("retention.bytes", "-1")
            .set("min.insync.replicas", &in_sync)
            .set("unclean.leader.election.enable", "false")
            .set("message.timestamp.type", "LogAppendTime")
    };
    let wanted = [
        index.then(|| new_topic(&config.topic_index, 1, "-1")),
        claims.then(|| new_topic(&config.topic_claims, config.partitions, &retention)),
    ];
    let admin = Admin::new(config).await?;
    let created = admin
        .client
        .create_topics(wanted.iter().flatten(), &admin.options)
        .await
        .map_err(unavailable)?;
    for result in created {
        match result {
            Ok(topic) => tracing::info!(topic, "kafka topic created"),
            Err((topic, RDKafkaErrorCode::TopicAlreadyExists)) => {
                tracing::info!(topic, "kafka topic is there already");
            }
            Err((topic, code)) => {
                return Err(LogError::Broken(format!(
                    "the topic {topic} cannot be created: {code}"
                )));
            }
        }
    }
    Ok(())
}

/// Reads the settings of the described topics, the index first. Bounded by `open_timeout`.
pub(super) async fn read(
    config: &KafkaConfig,
    index: &Described,
    claims: &Described,
) -> Result<Vec<TopicSettings>, LogError> {
    let admin = Admin::new(config).await?;
    let asked = [
        (&config.topic_index, index, true),
        (&config.topic_claims, claims, false),
    ];
    let resources = asked.map(|(topic, ..)| ResourceSpecifier::Topic(topic));
    let answers = admin
        .client
        .describe_configs(&resources, &admin.options)
        .await
        .map_err(unavailable)?;
    if answers.len() != asked.len() {
        return Err(unavailable("the answer lacks a topic"));
    }
    let mut out = Vec::with_capacity(asked.len());
    for (answer, (topic, described, is_index)) in answers.into_iter().zip(asked) {
        let resource = answer.map_err(|code| unavailable(format!("{topic}: {code}")))?;
        out.push(settings(&resource, topic, described, is_index)?);
    }
    Ok(out)
}

fn settings(
    resource: &ConfigResource,
    topic: &str,
    described: &Described,
    is_index: bool,
) -> Result<TopicSettings, LogError> {
    let text = |key: &str| {
        let entry = resource.get(key).and_then(|entry| entry.value.clone());
        entry.ok_or_else(|| LogError::Unavailable(format!("{topic}: no answer for {key}")))
    };
    let number = |key: &str| -> Result<i64, LogError> {
        let value = text(key)?;
        let bad = |_| LogError::Unavailable(format!("{topic}: {key} is {value}"));
        value.parse().map_err(bad)
    };
    Ok(TopicSettings {
        topic: topic.to_owned(),
        log_id: described.id,
        is_index,
        partitions: described.partitions,
        replicas: described.replicas,
        min_insync_replicas: u32::try_from(number("min.insync.replicas")?).unwrap_or(0),
        cleanup_policy: text("cleanup.policy")?,
        // A negative number means for ever, or unbounded.
        retention: u64::try_from(number("retention.ms")?)
            .ok()
            .map(Duration::from_millis),
        retention_bytes: u64::try_from(number("retention.bytes")?).ok(),
        unclean_leader_election: text("unclean.leader.election.enable")? == "true",
        timestamp_type: text("message.timestamp.type")?,
        message_bytes_max: u64::try_from(number("max.message.bytes")?).unwrap_or(0),
    })
}
