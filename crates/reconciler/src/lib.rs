//! Compares Redis, log and database after a sale, and states every promise.
