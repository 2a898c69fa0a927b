//! The durable log of claims: Kafka, or an embedded SQLite log.
