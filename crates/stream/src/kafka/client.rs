//! What all librdkafka clients of a log have in common.

use std::ops::Deref;
use std::time::Duration;

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::ConsumerContext;
use rdkafka::error::KafkaError;
use secrecy::ExposeSecret;

use crate::config::KafkaConfig;

/// Sends librdkafka's log lines to `tracing`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Context {
    /// What the client is for: `append`, `probe` or `tail`.
    pub(super) role: &'static str,
}

impl ClientContext for Context {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, text: &str) {
        let role = self.role;
        match level {
            RDKafkaLogLevel::Emerg
            | RDKafkaLogLevel::Alert
            | RDKafkaLogLevel::Critical
            | RDKafkaLogLevel::Error => {
                tracing::warn!(role, facility, text, "librdkafka");
            }
            RDKafkaLogLevel::Warning | RDKafkaLogLevel::Notice | RDKafkaLogLevel::Info => {
                tracing::info!(role, facility, text, "librdkafka");
            }
            RDKafkaLogLevel::Debug => tracing::debug!(role, facility, text, "librdkafka"),
        }
    }

    fn error(&self, error: KafkaError, reason: &str) {
        // librdkafka tries again by itself; whoever waits for an answer gets an error of its own.
        tracing::info!(role = self.role, %error, reason, "kafka client error");
    }
}

impl ConsumerContext for Context {}

fn millis(duration: Duration) -> String {
    duration.as_millis().max(1).to_string()
}

/// The settings of every client. Sources: librdkafka's CONFIGURATION.md.
pub(super) fn common(config: &KafkaConfig) -> ClientConfig {
    let mut client = ClientConfig::new();
    client
        .set("bootstrap.servers", &config.brokers)
        .set("client.id", "dropgate")
        // A topic that is missing stays missing: a producer would have the broker make it anew.
        .set("allow.auto.create.topics", "false")
        .set("socket.nagle.disable", "true")
        .set("socket.keepalive.enable", "true")
        .set(
            "socket.timeout.ms",
            millis(config.open_timeout.max(Duration::from_secs(1))),
        )
        .set("socket.connection.setup.timeout.ms", "5000")
        // The default waits up to 10 s before it looks for a broker that came back.
        .set("reconnect.backoff.ms", "50")
        .set("reconnect.backoff.max.ms", "1000");
    if let Some(sasl) = &config.sasl {
        client
            .set("security.protocol", "SASL_PLAINTEXT")
            .set("sasl.mechanism", "PLAIN")
            .set("sasl.username", &sasl.username)
            .set("sasl.password", sasl.password.expose_secret());
    }
    client
}

/// The settings of the producer.
pub(super) fn producer(config: &KafkaConfig) -> ClientConfig {
    let mut client = common(config);
    let linger = config.linger.as_secs_f64() * 1000.0;
    client
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("linger.ms", linger.to_string())
        // The default is 300 s.
        .set("delivery.timeout.ms", millis(config.append_timeout))
        .set("request.timeout.ms", millis(config.append_timeout))
        .set("retry.backoff.ms", "50")
        .set("retry.backoff.max.ms", "500")
        // The most that may wait for a broker that does not answer.
        .set("queue.buffering.max.messages", "100000")
        .set("queue.buffering.max.kbytes", "65536")
        // What a topic takes by default, with the framing; the bound is VALUE_BYTES_MAX.
        .set("message.max.bytes", "1048588")
        .set("compression.type", "none");
    client
}

/// The settings of a tail.
pub(super) fn consumer(config: &KafkaConfig) -> ClientConfig {
    let mut client = common(config);
    client
        // `assign` needs one, though nothing is committed and no group is joined.
        .set("group.id", "dropgate-tail")
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("auto.offset.reset", "error")
        .set("enable.partition.eof", "false")
        .set("isolation.level", "read_committed")
        .set("check.crcs", "true")
        .set("fetch.wait.max.ms", "500")
        .set("fetch.min.bytes", "1")
        .set("fetch.error.backoff.ms", "50")
        // The default keeps a reader that caught up waiting for a second.
        .set("fetch.queue.backoff.ms", "10")
        // Enough for the next fetch to be on its way; each costs some 300 bytes beside its own.
        .set("queued.min.messages", "20000")
        .set(
            "queued.max.messages.kbytes",
            config.queued_kib_max.to_string(),
        )
        .set("fetch.message.max.bytes", "1048588")
        .set("fetch.max.bytes", "4194304")
        // A day: a tail joins no group, so how often it is read is its owner's business.
        .set("max.poll.interval.ms", "86400000");
    client
}

/// Owns a librdkafka client. Dropping one waits for librdkafka's threads, so it happens on a
/// thread of its own.
pub(super) struct OffWorker<T: Send + 'static>(Option<T>);

impl<T: Send + 'static> OffWorker<T> {
    pub(super) fn new(client: T) -> Self {
        Self(Some(client))
    }
}

impl<T: Send + 'static> Deref for OffWorker<T> {
    type Target = T;
    fn deref(&self) -> &T {
        match &self.0 {
            Some(client) => client,
            None => unreachable!("only Drop takes the client"),
        }
    }
}

impl<T: Send + 'static> Drop for OffWorker<T> {
    fn drop(&mut self) {
        let client = self.0.take();
        // Ends by itself: librdkafka bounds its own shutdown. Without a thread the client is
        // dropped here, which is slow and correct.
        let spawned = std::thread::Builder::new()
            .name("dropgate-kafka-end".to_owned())
            .spawn(move || drop(client));
        if let Err(error) = spawned {
            tracing::warn!(%error, "kafka client ended on a worker");
        }
    }
}
