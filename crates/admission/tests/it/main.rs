//! The scripts and the clients against a real Redis, with the users that are shipped.
#![cfg(test)]

mod acl;
mod faults;
mod fence;
mod fixture;
mod model;
mod operator;
mod outage;
mod place;
mod race;
mod random;
mod scripts;
mod topologies;
