//! Sales in which something is killed, stopped or taken away. They run one at a time.

mod broker;
mod by_hand;
mod cluster;
mod crashes;
mod database;
mod redis;
