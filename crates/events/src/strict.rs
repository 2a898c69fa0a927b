//! The walk over a message's fields that prost does not do.

use crate::decode::Unknown;
use bytes::Buf;
use prost::encoding::{DecodeContext, WireType, decode_key, skip_field};

/// A field that a message may have.
pub(crate) struct Field {
    pub tag: u32,
    pub repeated: bool,
    /// The fields of the message in it.
    pub message: Option<&'static [Field]>,
}

const fn one(tag: u32) -> Field {
    Field {
        tag,
        repeated: false,
        message: None,
    }
}

const fn inner(tag: u32, repeated: bool, message: &'static [Field]) -> Field {
    Field {
        tag,
        repeated,
        message: Some(message),
    }
}

const DEFINITION: &[Field] = &[one(1), one(2), one(3), one(4), one(5)];
const SCRIPT: &[Field] = &[one(1), one(2)];
const HALTED: &[Field] = &[one(1), one(2), one(3)];
const STARTED: &[Field] = &[
    one(1),
    one(2),
    inner(3, true, SCRIPT),
    one(4),
    one(5),
    inner(6, false, DEFINITION),
    one(7),
    one(8),
    one(9),
    one(10),
];
pub(crate) const EVENT: &[Field] = &[
    one(1),
    one(2),
    one(3),
    one(4),
    one(5),
    one(6),
    one(7),
    one(8),
    one(9),
    one(10),
    one(11),
    one(12),
    inner(13, false, STARTED),
    inner(14, false, HALTED),
    one(15),
];
pub(crate) const SALE_CREATED: &[Field] = &[
    one(1),
    one(2),
    one(3),
    one(4),
    one(5),
    inner(6, false, DEFINITION),
    one(7),
    one(8),
];

/// Refuses a field that the message has not, or has twice.
pub(crate) fn check(mut bytes: &[u8], fields: &[Field]) -> Result<(), Unknown> {
    let mut seen = 0u64;
    while bytes.has_remaining() {
        let (tag, wire_type) = decode_key(&mut bytes).map_err(|_| Unknown::Malformed)?;
        let field = fields.iter().find(|field| field.tag == tag);
        let field = field.ok_or(Unknown::Field { tag })?;
        let bit = 1u64 << (tag % 64);
        if !field.repeated && seen & bit != 0 {
            return Err(Unknown::Repeated { tag });
        }
        seen |= bit;
        let before = bytes;
        skip_field(wire_type, tag, &mut bytes, DecodeContext::default())
            .map_err(|_| Unknown::Malformed)?;
        if let (Some(message), WireType::LengthDelimited) = (field.message, wire_type) {
            let mut whole = &before[..before.len() - bytes.len()];
            prost::encoding::decode_varint(&mut whole).map_err(|_| Unknown::Malformed)?;
            check(whole, message)?;
        }
    }
    Ok(())
}

/// The first field of this number, if it is text. Reads no further than to it.
pub(crate) fn text_field(mut bytes: &[u8], wanted: u32) -> Option<&str> {
    while bytes.has_remaining() {
        let (tag, wire_type) = decode_key(&mut bytes).ok()?;
        if tag == wanted && wire_type == WireType::LengthDelimited {
            let len = prost::encoding::decode_varint(&mut bytes).ok()?;
            let text = bytes.get(..usize::try_from(len).ok()?)?;
            return std::str::from_utf8(text).ok();
        }
        skip_field(wire_type, tag, &mut bytes, DecodeContext::default()).ok()?;
    }
    None
}
