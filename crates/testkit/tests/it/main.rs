//! Tests of the test kit itself, on the real servers.

mod kafka;
mod postgres;
mod proxy;
mod redis;
