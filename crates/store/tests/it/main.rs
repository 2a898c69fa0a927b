//! The contract that every database must keep, against real ones, and what their faults do.
#![cfg(test)]

mod contract;
mod db;
mod faults;
mod fixture;
mod migrations;
mod model;
