//! The servers behind Dropgate.

use crate::{
    AppendOnly, Database, Kafka, KafkaOptions, Postgres, PostgresOptions, Redis, RedisOptions,
};
use anyhow::{Context, Result};

/// What stands behind a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// One process with an embedded log and SQLite; only Redis beside it.
    Embedded,
    /// Two gateways, an order-writer and a reconciler as processes of their own, on Kafka and
    /// Postgres.
    Full,
}

/// The running servers. They end with this value.
#[derive(Debug)]
pub struct Backing {
    /// Redis.
    pub redis: Redis,
    /// Kafka and Postgres, in the full stack.
    pub durable: Option<Durable>,
}

/// The log and the database of the full stack.
#[derive(Debug)]
pub struct Durable {
    /// The broker.
    pub kafka: Kafka,
    // Before its server, which it needs to go.
    /// The database.
    pub database: Database,
    /// The database's server.
    pub postgres: Postgres,
}

impl Backing {
    /// Starts the servers of this shape, next to each other.
    ///
    /// # Errors
    /// When one is not installed or does not come up.
    pub fn start(shape: Shape) -> Result<Self> {
        let redis = Redis::start(&RedisOptions {
            append_only: AppendOnly::Everysec,
            ..RedisOptions::default()
        })?;
        let durable = match shape {
            Shape::Embedded => None,
            Shape::Full => Some(Durable::start()?),
        };
        Ok(Self { redis, durable })
    }
}

impl Durable {
    fn start() -> Result<Self> {
        std::thread::scope(|scope| {
            let kafka = scope.spawn(|| Kafka::start(&KafkaOptions::default()));
            let postgres = Postgres::start(&PostgresOptions {
                durable: true,
                ..PostgresOptions::default()
            })?;
            let database = postgres.database()?;
            let kafka = kafka
                .join()
                .ok()
                .context("the thread that starts Kafka")??;
            Ok(Self {
                kafka,
                database,
                postgres,
            })
        })
    }
}
