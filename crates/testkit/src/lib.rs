//! Real servers for tests: Redis, Kafka and Postgres as child processes on free ports in temporary
//! folders, a TCP proxy that cuts, and our own binaries as processes that can be killed.
//!
//! * Nothing here is mocked, and nothing that this crate did not start is ever stopped: servers are
//!   ended by the id of the child, never by name.
//! * A server dies with the value that owns it, with a panicking test, and with a test process that
//!   was killed (the kernel sends the child a SIGKILL when its parent is gone).
//! * A server that is not installed is an error that names the command to run, never a skip.
//! * Every wait has a bound that is generous on purpose: it says "this hangs", never "this is slow".
//!
//! The errors are [`anyhow::Error`]: whatever goes wrong here, a test does the same thing with it,
//! it fails and prints the chain.

pub mod child;
pub mod http;
pub mod kafka;
pub mod ports;
pub mod postgres;
pub mod process;
pub mod proxy;
pub mod redis;
pub mod resp;
pub mod shared;
pub mod stack;
pub mod tools;
pub mod wait;

pub use kafka::{Kafka, KafkaOptions};
pub use postgres::{Database, Postgres, PostgresOptions};
pub use process::{Process, ProcessOptions, Ready};
pub use proxy::Proxy;
pub use redis::{
    AppendOnly, ClusterOptions, Redis, RedisCluster, RedisOptions, RedisTrio, TrioOptions,
};
pub use resp::{RespConnection, Value};
