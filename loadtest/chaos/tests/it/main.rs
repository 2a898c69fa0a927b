//! A few seeds of the fault suite, on one installation, in every run of the tests. `make chaos`
//! runs as many as one likes.
#![cfg(test)]

mod faults;
