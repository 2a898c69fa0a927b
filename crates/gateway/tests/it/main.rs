//! The gateway as clients and operators meet it: the real app on a real Redis, with the users
//! that are shipped, and the embedded log.
#![cfg(test)]

mod admin;
mod bad_input;
mod claims;
mod connections;
mod faults;
mod process;
mod recover;
mod stack;
mod surface;
mod wire;
