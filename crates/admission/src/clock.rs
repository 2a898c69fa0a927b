//! Redis' clock, as far as replies tell.

use dropgate_domain::TimeMs;
use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// How long a reply counts at least.
const SPAN: Duration = Duration::from_secs(10);

/// Estimates the time in Redis from the times in its replies.
///
/// The estimate is the latest that any reply of the last ten to twenty seconds allows: its time
/// plus the time since its receipt. Not of the last reply alone, because a sale's time never goes
/// back while Redis' own clock may (set back, or that of another master): two sales on one Redis
/// may then be seconds apart, and a deadline taken from the one would always be over in the
/// other. An estimate that is too late only gives a call longer to run.
#[derive(Debug)]
pub(crate) struct Clock {
    origin: Instant,
    seen: Mutex<Option<Seen>>,
}

/// Differences between Redis' time and ours since `origin`, in ms: the largest of this span and
/// of the span before.
#[derive(Debug, Clone, Copy)]
struct Seen {
    since: Instant,
    largest: i64,
    before: Option<i64>,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self {
            origin: Instant::now(),
            seen: Mutex::new(None),
        }
    }

    /// Takes note of a reply's time, received at `now`.
    pub(crate) fn observe(&self, at: TimeMs, now: Instant) {
        let offset = i64::try_from(at.0)
            .unwrap_or(i64::MAX)
            .saturating_sub(self.elapsed_ms(now));
        let mut seen = self.seen.lock();
        *seen = Some(match *seen {
            Some(old) if now.saturating_duration_since(old.since) < SPAN => Seen {
                largest: old.largest.max(offset),
                ..old
            },
            Some(old) if now.saturating_duration_since(old.since) < 2 * SPAN => Seen {
                since: now,
                largest: offset,
                before: Some(old.largest),
            },
            _ => Seen {
                since: now,
                largest: offset,
                before: None,
            },
        });
    }

    /// The time in Redis at `now`; `None` before the first reply.
    pub(crate) fn at(&self, now: Instant) -> Option<TimeMs> {
        let seen = (*self.seen.lock())?;
        let offset = seen.before.map_or(seen.largest, |b| b.max(seen.largest));
        let ms = offset.saturating_add(self.elapsed_ms(now));
        Some(TimeMs(u64::try_from(ms).unwrap_or(0)))
    }

    fn elapsed_ms(&self, now: Instant) -> i64 {
        let elapsed = now.saturating_duration_since(self.origin);
        i64::try_from(elapsed.as_millis()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn time_goes_on_from_the_last_reply() {
        let clock = Clock::new();
        let start = clock.origin;
        assert_eq!(clock.at(start), None);
        clock.observe(TimeMs(1_000_000), start + ms(500));
        assert_eq!(clock.at(start + ms(500)), Some(TimeMs(1_000_000)));
        assert_eq!(clock.at(start + ms(750)), Some(TimeMs(1_000_250)));
    }

    #[test]
    fn a_sale_whose_time_is_behind_does_not_make_anothers_calls_late() {
        let clock = Clock::new();
        let start = clock.origin;
        clock.observe(TimeMs(1_005_000), start);
        clock.observe(TimeMs(1_000_010), start + ms(10));
        assert_eq!(clock.at(start + ms(10)), Some(TimeMs(1_005_010)));
    }

    #[test]
    fn a_clock_that_was_set_back_is_followed_within_two_spans() {
        let clock = Clock::new();
        let start = clock.origin;
        clock.observe(TimeMs(9_000_000), start);
        for step in 1..=25 {
            clock.observe(TimeMs(1_000_000 + step * 1000), start + ms(step * 1000));
        }
        assert_eq!(clock.at(start + ms(25_000)), Some(TimeMs(1_025_000)));
    }

    #[test]
    fn an_old_reply_stands_until_a_new_one_comes() {
        let clock = Clock::new();
        let start = clock.origin;
        clock.observe(TimeMs(1_000_000), start);
        let hour = Duration::from_secs(3600);
        assert_eq!(clock.at(start + hour), Some(TimeMs(4_600_000)));
        clock.observe(TimeMs(4_000_000), start + hour);
        assert_eq!(clock.at(start + hour), Some(TimeMs(4_000_000)));
    }
}
