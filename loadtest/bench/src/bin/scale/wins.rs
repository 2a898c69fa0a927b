//! The log of a sale that has sold very much.

use anyhow::{Context, Result, ensure};
use dropgate_domain::{
    AttemptId, Body, Event, IdempotencyKey, Link, SaleId, Seq, TimeMs, Unit, UserId, Won,
};
use dropgate_engine::Fold;
use dropgate_events::{decode_event, encode_event};
use dropgate_stream::{Backend, KafkaConfig, Lane, Log, LogConfig};
use futures::{TryStreamExt, stream};
use std::time::{Duration, Instant};

/// Publications in flight: fewer than the window of a generation.
const IN_FLIGHT: usize = 2_000;
/// Liveness bound.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whose is unit n.
pub fn user(unit: u64) -> String {
    format!("user-{unit:08}@example.com")
}

/// What unit n was won with.
pub fn attempt(unit: u64) -> [u8; 16] {
    u128::from(unit).to_be_bytes()
}

/// Appends the wins of all units of a sale that was just opened, as the script would have made
/// them. Tells how long that took.
pub async fn write(brokers: &str, sale: &str, wins: u64) -> Result<Duration> {
    let config = LogConfig {
        backend: Backend::Kafka,
        kafka: KafkaConfig {
            brokers: brokers.to_owned(),
            replication_factor: 1,
            ..KafkaConfig::default()
        },
        ..LogConfig::default()
    };
    let log = Log::open(&config).await?;
    let id = SaleId::new(sale)?;
    let mut fold = Fold::open(&log).await?;
    let deadline = Instant::now() + PATIENCE;
    let (lane, position) = loop {
        fold.step(Duration::from_millis(100)).await?;
        if let Some(sale) = fold.sale(&id)
            && let Some(position) = sale.ledger().position()
        {
            break (Lane::Claims(sale.pin().partition), position);
        }
        ensure!(Instant::now() < deadline, "the sale is not in the log");
    };
    let begun = Instant::now();
    let mut prev = position.chain;
    let events = (1..=wins).map(|unit| {
        let won = Won {
            link: Link {
                seq: Seq(position.seq.0 + unit),
                time: TimeMs(1_000_000 + unit),
                prev,
            },
            user: UserId::new(&user(unit))?,
            attempt: AttemptId(attempt(unit)),
            key: IdempotencyKey::none(),
            unit: Unit(unit),
        };
        let bytes = encode_event(&Event {
            sale: id.clone(),
            generation: position.generation,
            body: Body::Won(won),
        });
        prev = decode_event(&bytes).context("an event")?.digest;
        Ok::<_, anyhow::Error>(bytes)
    });
    stream::iter(events)
        .map_ok(|bytes| async { Ok(log.append(lane, bytes).await?) })
        .try_buffered(IN_FLIGHT)
        .try_for_each(|_| async { Ok(()) })
        .await?;
    log.close(PATIENCE).await;
    Ok(begun.elapsed())
}
