//! The messages of the log: protobuf bytes to and from domain types.
