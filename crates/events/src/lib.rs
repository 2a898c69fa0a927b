//! The messages of the log: protobuf bytes to and from domain types.
//!
//! Decoding is strict. Prost by itself skips unknown fields, takes the last of a repeated one
//! and accepts a record that was cut at a field's edge; here each of these is an [`Unknown`],
//! because a record that two releases read differently is worse than one that stops a reader.
//!
//! The event of a claim is made in two halves: the caller encodes its own fields with
//! [`won_prefix`], and the script in Redis appends seq, unit, time and chain. Encoded fields
//! concatenate, so the whole is one message; it is published and digested byte for byte.

mod decode;
mod encode;
mod strict;

pub use decode::{Unknown, decode_event, decode_sale_created, peek_sale};
pub use encode::{closed_prefix, digest, encode_event, encode_sale_created, won_prefix};

/// The version of the event format that this release writes.
pub const EVENT_VERSION: u32 = 1;
/// The version of the index's records that this release writes.
pub const INDEX_VERSION: u32 = 1;
/// The largest record that is read, in bytes: an event is at most some 500 bytes, a start with
/// its reasons a few kilobytes.
pub const RECORD_BYTES_MAX: usize = 64 * 1024;

/// The generated types; private, so that prost is in nobody's public interface.
#[expect(clippy::doc_markdown, reason = "generated from /proto")]
mod wire {
    include!(concat!(env!("OUT_DIR"), "/dropgate.v1.rs"));
}
