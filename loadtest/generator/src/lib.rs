//! An open-model load generator for claims.
