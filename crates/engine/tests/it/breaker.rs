//! A log that can be read and not be written.

use crate::world::{claim, claim_through, opened, until, win};
use anyhow::Result;
use dropgate_admission::{Admission, RedisConfig};
use dropgate_domain::Definition;
use dropgate_engine::{Answer, Engine, EngineConfig, SaleHandle, Unavailable};
use dropgate_stream::{Backend, KafkaConfig, Log, LogConfig};
use dropgate_testkit::{Kafka, KafkaOptions, Redis, RedisOptions};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use std::time::Duration;

async fn start(kafka: &Kafka, redis: &Redis, registry: &mut Registry) -> Result<Engine> {
    let log = LogConfig {
        backend: Backend::Kafka,
        kafka: KafkaConfig {
            brokers: kafka.brokers(),
            replication_factor: 1,
            create: true,
            // What is not acknowledged by then has failed.
            append_timeout: Duration::from_secs(1),
            probe_timeout: Duration::from_secs(5),
            ..KafkaConfig::default()
        },
        ..LogConfig::default()
    };
    let engine = Engine::start(
        EngineConfig {
            fresh_for: Duration::from_secs(5),
            ..EngineConfig::default()
        },
        "test".to_owned(),
        Log::open(&log).await?,
        Admission::connect(&RedisConfig::at(&redis.gateway_url())).await?,
        Some(RedisConfig::at(&redis.operator_url())),
        registry,
    )
    .await?;
    Ok(engine)
}

fn metric(registry: &Registry, name: &str) -> Result<f64> {
    let mut text = String::new();
    encode(&mut text, registry)?;
    let line = text.lines().find(|line| line.starts_with(name));
    let value = line.and_then(|line| line.rsplit(' ').next());
    Ok(value.unwrap_or("0").parse()?)
}

fn selling(sale: &SaleHandle) -> Option<()> {
    (sale.standing().condition == dropgate_engine::Condition::Live).then_some(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_cannot_publish_takes_no_claims_and_goes_on_by_itself() -> Result<()> {
    let mut kafka = Kafka::start(&KafkaOptions::default())?;
    let redis = Redis::start(&RedisOptions::default())?;
    let mut registry = Registry::default();
    let engine = start(&kafka, &redis, &mut registry).await?;
    let sale = opened(&engine, "drop", Definition::of(50)).await?;
    win(&claim_through(&sale, 0).await?)?;
    // The broker refuses whatever is written, and is read as before.
    kafka.configure("message.max.bytes=10")?;
    kafka.restart()?;
    until("the log to be read again", || selling(&sale)).await?;
    let pending = claim(&sale, 1).await;
    assert!(matches!(pending, Answer::Pending(_)), "{pending:?}");
    until("the breaker to open", || engine.ready().err()).await?;
    assert_eq!(
        claim(&sale, 2).await,
        Answer::Unavailable(Unavailable::Log),
        "no claim is taken that could only wait"
    );
    assert_eq!(
        win(&claim(&sale, 0).await)?.unit.0,
        1,
        "what is applied is told: the log answers"
    );
    assert_eq!(
        metric(&registry, "dropgate_publish_breakers_open ")? as u8,
        1
    );
    // It closes by itself: nobody claims meanwhile.
    kafka.configure("message.max.bytes=1048588")?;
    kafka.restart()?;
    until("the breaker to close", || engine.ready().ok()).await?;
    let mine = claim_through(&sale, 1).await?;
    assert_eq!(win(&mine)?.unit.0, 2, "what was pending is won");
    win(&claim_through(&sale, 2).await?)?;
    assert_eq!(
        metric(&registry, "dropgate_publish_breakers_open ")? as u8,
        0
    );
    assert!(metric(&registry, "dropgate_publish_breaker_opened_total ")? >= 1.0);
    sale.sale().ledger().check()?;
    engine.shutdown().await;
    Ok(())
}
