//! Instants, as the API writes and reads them: RFC 3339 in UTC.

use dropgate_domain::TimeMs;
use serde::{Serialize, Serializer};
use std::time::{SystemTime, UNIX_EPOCH};

/// Now, by this machine's clock.
#[must_use]
pub fn now_ms() -> TimeMs {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    TimeMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// An instant that is written as RFC 3339 with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rfc3339(pub TimeMs);

impl Serialize for Rfc3339 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let ms = i64::try_from(self.0.0).map_err(serde::ser::Error::custom)?;
        let at = jiff::Timestamp::from_millisecond(ms).map_err(serde::ser::Error::custom)?;
        serializer.collect_str(&format_args!("{at:.3}"))
    }
}

/// Reads RFC 3339 with any offset, to the millisecond.
#[must_use]
pub fn parse_rfc3339(text: &str) -> Option<TimeMs> {
    let at: jiff::Timestamp = text.parse().ok()?;
    u64::try_from(at.as_millisecond()).ok().map(TimeMs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_in_utc_with_milliseconds() {
        let text = serde_json::to_string(&Rfc3339(TimeMs(1_767_225_600_007))).unwrap();
        assert_eq!(text, "\"2026-01-01T00:00:00.007Z\"");
    }

    #[test]
    fn instants_are_read_with_any_offset() {
        let at = parse_rfc3339("2026-01-01T09:00:00+09:00").unwrap();
        assert_eq!(at, TimeMs(1_767_225_600_000));
        for bad in ["", "tomorrow", "2026-01-01", "1900-01-01T00:00:00Z"] {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }
}
