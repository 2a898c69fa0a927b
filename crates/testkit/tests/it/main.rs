//! Tests of the test kit itself, on the real servers.

mod proxy;
mod redis;
