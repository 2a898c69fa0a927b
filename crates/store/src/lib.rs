//! The database: entities and repositories for Postgres and SQLite.
