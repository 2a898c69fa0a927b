//! Failovers of real servers. They run alone.

mod redis_cluster;
mod redis_trio;
