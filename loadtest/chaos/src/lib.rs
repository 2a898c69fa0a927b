//! The fault suite: the full stack as real processes, a crowd that clicks, a seeded schedule of
//! faults, and what came of every promise.
//!
//! Rooms: [`fault`] and [`schedule`] (pure) say what a seed injects, [`coverage`] (pure) whether
//! enough was; [`cell`] is the installation, [`inject`] hurts it, [`watcher`] looks at it meanwhile;
//! [`judge`] asks oracle and reconciler, [`records`] and [`told`] read what log and crowd say;
//! [`run`] is one seed and [`suite`] many; [`weakness`] names what builds for the suite can leave
//! out, which it must find; [`timeline`] is for the person who wants to know why.

pub mod cell;
pub mod coverage;
pub mod fault;
pub mod inject;
pub mod judge;
pub mod random;
pub mod records;
pub mod run;
pub mod schedule;
pub mod suite;
pub mod timeline;
pub mod told;
pub mod watcher;
pub mod weakness;
