//! The settings of a log that the promise "an acknowledged record is never lost" rests on.

use std::time::Duration;

use dropgate_domain::LogId;

/// The least time for which claims should be kept: a sale's log is read from its opening until
/// the sale is settled.
pub const RETENTION_MIN: Duration = Duration::from_secs(7 * 24 * 3600);

/// What was read from the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Of each Kafka topic, the index of sales first; none for an embedded log.
    pub topics: Vec<TopicSettings>,
}

/// The settings of one Kafka topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSettings {
    /// Its name.
    pub topic: String,
    /// Its id.
    pub log_id: LogId,
    /// Whether this is the index of sales, which is kept for ever.
    pub is_index: bool,
    /// Its partitions.
    pub partitions: u32,
    /// The replicas of its least replicated partition.
    pub replicas: u32,
    /// `min.insync.replicas`.
    pub min_insync_replicas: u32,
    /// `cleanup.policy`.
    pub cleanup_policy: String,
    /// `retention.ms`; none means for ever.
    pub retention: Option<Duration>,
    /// `retention.bytes`; none means unbounded.
    pub retention_bytes: Option<u64>,
    /// `unclean.leader.election.enable`.
    pub unclean_leader_election: bool,
    /// `message.timestamp.type`.
    pub timestamp_type: String,
    /// `max.message.bytes`.
    pub message_bytes_max: u64,
}

impl Settings {
    /// What loses acknowledged records when a machine fails, or by time. Refused in the
    /// production profile, a warning elsewhere.
    #[must_use]
    pub fn warnings(&self) -> Vec<String> {
        self.topics
            .iter()
            .flat_map(TopicSettings::warnings)
            .collect()
    }

    /// What makes the topics unfit to be a log in any profile.
    #[must_use]
    pub fn errors(&self) -> Vec<String> {
        self.topics.iter().flat_map(TopicSettings::errors).collect()
    }
}

impl TopicSettings {
    fn errors(&self) -> Vec<String> {
        let mut out = Vec::new();
        let topic = &self.topic;
        if self
            .cleanup_policy
            .split(',')
            .any(|p| p.trim() == "compact")
        {
            out.push(format!(
                "{topic}: cleanup.policy is {}: compaction deletes records",
                self.cleanup_policy
            ));
        }
        if self.is_index && self.partitions != 1 {
            out.push(format!(
                "{topic}: has {} partitions: the index of sales has one order, so one partition",
                self.partitions
            ));
        }
        out
    }

    fn warnings(&self) -> Vec<String> {
        let mut out = Vec::new();
        let topic = &self.topic;
        if self.replicas < 3 {
            out.push(format!(
                "{topic}: {} replicas: an acknowledged record is on fewer than three machines",
                self.replicas
            ));
        }
        if self.min_insync_replicas < 2 {
            out.push(format!(
                "{topic}: min.insync.replicas is {}: a record can be acknowledged by one machine",
                self.min_insync_replicas
            ));
        }
        if self.unclean_leader_election {
            out.push(format!(
                "{topic}: unclean.leader.election.enable is on: a stale replica may take over"
            ));
        }
        match self.retention {
            Some(kept) if self.is_index => out.push(format!(
                "{topic}: retention.ms is {}: the index of sales is to be kept (-1)",
                kept.as_millis()
            )),
            Some(kept) if kept < RETENTION_MIN => out.push(format!(
                "{topic}: retention.ms is {}: less than {} days",
                kept.as_millis(),
                RETENTION_MIN.as_secs() / 86_400
            )),
            _ => {}
        }
        if let Some(bytes) = self.retention_bytes {
            out.push(format!(
                "{topic}: retention.bytes is {bytes}: a large sale would delete its own beginning"
            ));
        }
        if self.timestamp_type != "LogAppendTime" {
            out.push(format!(
                "{topic}: message.timestamp.type is {}: retention then goes by the clocks of the \
                 writers (LogAppendTime goes by the broker's)",
                self.timestamp_type
            ));
        }
        if self.message_bytes_max < crate::VALUE_BYTES_MAX as u64 {
            out.push(format!(
                "{topic}: max.message.bytes is {}: less than the {} that a record may have",
                self.message_bytes_max,
                crate::VALUE_BYTES_MAX
            ));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn safe() -> TopicSettings {
        TopicSettings {
            topic: "t".to_owned(),
            log_id: LogId([0; 16]),
            is_index: false,
            partitions: 8,
            replicas: 3,
            min_insync_replicas: 2,
            cleanup_policy: "delete".to_owned(),
            retention: Some(RETENTION_MIN),
            retention_bytes: None,
            unclean_leader_election: false,
            timestamp_type: "LogAppendTime".to_owned(),
            message_bytes_max: 1_048_588,
        }
    }

    #[test]
    fn every_setting_that_loses_records_is_named() {
        assert_eq!(safe().warnings(), Vec::<String>::new());
        type Spoil = fn(&mut TopicSettings);
        let bad: [(&str, Spoil); 8] = [
            ("replicas", |t| t.replicas = 1),
            ("min.insync.replicas", |t| t.min_insync_replicas = 1),
            ("unclean.leader", |t| t.unclean_leader_election = true),
            ("retention.ms", |t| t.retention = Some(RETENTION_MIN / 2)),
            ("retention.ms", |t| t.is_index = true),
            ("retention.bytes", |t| t.retention_bytes = Some(1)),
            ("timestamp.type", |t| {
                t.timestamp_type = "CreateTime".to_owned()
            }),
            ("max.message.bytes", |t| t.message_bytes_max = 1000),
        ];
        for (name, spoil) in bad {
            let mut topic = safe();
            spoil(&mut topic);
            let warnings = topic.warnings();
            assert!(
                warnings.len() == 1 && warnings[0].contains(name),
                "{name}: {warnings:?}"
            );
        }
    }

    #[test]
    fn a_compacted_topic_and_a_split_index_are_no_log() {
        assert_eq!(safe().errors(), Vec::<String>::new());
        let mut compacted = safe();
        compacted.cleanup_policy = "delete,compact".to_owned();
        assert_eq!(compacted.errors().len(), 1);
        let mut split = safe();
        split.is_index = true;
        assert_eq!(split.errors().len(), 1);
    }
}
