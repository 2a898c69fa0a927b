//! Real servers for tests: Redis, Kafka, Postgres as child processes, and a proxy that cuts.
