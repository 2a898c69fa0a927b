//! Tests of the test kit itself, on the real servers.

mod demo;
mod faults;
mod kafka;
mod ownership;
mod postgres;
mod process;
mod proxy;
mod redis;
mod stack;
