//! The fault suite: the full stack as real processes, a crowd that clicks, a seeded schedule of
//! faults, and what came of every promise.

pub mod coverage;
pub mod fault;
pub mod random;
pub mod schedule;
pub mod timeline;
