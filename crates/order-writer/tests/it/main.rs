//! The writer between real logs and real databases.
#![cfg(test)]

mod faults;
mod process;
mod world;
mod writing;
