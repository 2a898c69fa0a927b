//! Replies, free of the client library's types.

use crate::error::CallError;
use bytes::Bytes;
use fred::types::Value;

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Item {
    Nil,
    Int(i64),
    Bytes(Bytes),
    List(Vec<Item>),
}

impl Item {
    /// A string, if it is one and is text.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Bytes(bytes) => std::str::from_utf8(bytes).ok(),
            _ => None,
        }
    }

    /// A number, also of a string that is one.
    pub(crate) fn number(&self) -> Option<u64> {
        match self {
            Self::Int(number) => u64::try_from(*number).ok(),
            other => other.text()?.parse().ok(),
        }
    }

    /// The items of a list.
    pub(crate) fn items(&self) -> Option<&[Item]> {
        match self {
            Self::List(items) => Some(items),
            _ => None,
        }
    }
}

/// Binary strings arrive as `String` or `Bytes`, depending on whether they happen to be UTF-8.
pub(crate) fn item(value: Value) -> Result<Item, CallError> {
    Ok(match value {
        Value::Null => Item::Nil,
        Value::Integer(number) => Item::Int(number),
        Value::Bytes(bytes) => Item::Bytes(bytes),
        Value::String(text) => Item::Bytes(text.into_inner()),
        Value::Queued => Item::Bytes(Bytes::from_static(b"QUEUED")),
        Value::Array(values) => Item::List(values.into_iter().map(item).collect::<Result<_, _>>()?),
        other => {
            let kind = other.kind();
            return Err(CallError::Protocol(format!("a reply of the type {kind:?}")));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_replies_are_bytes_whether_or_not_they_are_text() {
        let text = item(Value::String("abc".into())).unwrap();
        assert_eq!(text, Item::Bytes(Bytes::from_static(b"abc")));
        let binary = Bytes::from_static(b"\xff\x00");
        let reply = Value::Array(vec![Value::Bytes(binary.clone()), Value::Integer(3)]);
        let expected = Item::List(vec![Item::Bytes(binary), Item::Int(3)]);
        assert_eq!(item(reply).unwrap(), expected);
        assert_eq!(item(Value::Null).unwrap(), Item::Nil);
        assert!(matches!(
            item(Value::Double(1.5)),
            Err(CallError::Protocol(_))
        ));
    }
}
