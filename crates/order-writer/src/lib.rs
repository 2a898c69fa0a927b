//! Writes what the ledger applied into the database, in batches, once.
