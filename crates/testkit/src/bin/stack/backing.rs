//! The servers behind Dropgate.

use anyhow::{Context, Result};
use clap::ValueEnum;
use dropgate_testkit::{
    AppendOnly, Database, Kafka, KafkaOptions, Postgres, PostgresOptions, Redis, RedisOptions,
};

/// What stands behind a sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stack {
    /// One process with an embedded log and SQLite; only Redis beside it.
    Embedded,
    /// Two gateways, an order-writer and a reconciler as processes of their own, on Kafka and
    /// Postgres.
    Full,
}

/// The running servers. They end with this value.
pub struct Backing {
    pub redis: Redis,
    pub durable: Option<Durable>,
}

/// The log and the database of the full stack.
pub struct Durable {
    pub kafka: Kafka,
    // Before its server, which it needs to go.
    pub database: Database,
    _postgres: Postgres,
}

impl Backing {
    /// Starts the servers of this stack, next to each other.
    ///
    /// # Errors
    /// When one is not installed or does not come up.
    pub fn start(stack: Stack) -> Result<Self> {
        let redis = Redis::start(&RedisOptions {
            append_only: AppendOnly::Everysec,
            ..RedisOptions::default()
        })?;
        let durable = match stack {
            Stack::Embedded => None,
            Stack::Full => Some(Durable::start()?),
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
                _postgres: postgres,
            })
        })
    }
}
