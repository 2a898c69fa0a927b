//! The database schema, as migrations under a lock.
