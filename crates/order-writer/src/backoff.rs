//! Pauses between tries: doubling, bounded, and spread, so that many do not try as one.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);

/// The pauses after failures in a row.
#[derive(Debug)]
pub struct Backoff {
    failures: u32,
    max: Duration,
}

impl Backoff {
    pub fn new(max: Duration) -> Self {
        Self { failures: 0, max }
    }

    /// The pause after one more failure.
    pub fn failed(&mut self) -> Duration {
        let doubled = FIRST.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        spread(doubled.min(self.max)).min(self.max)
    }

    pub fn succeeded(&mut self) {
        self.failures = 0;
    }
}

/// The duration, give or take a half.
pub fn spread(duration: Duration) -> Duration {
    duration.mul_f64(rand::random_range(0.5..1.5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_the_bound_and_begin_anew_after_a_success() {
        let max = Duration::from_secs(5);
        let mut backoff = Backoff::new(max);
        assert!(backoff.failed() <= FIRST * 3 / 2);
        for _ in 0..100 {
            assert!(backoff.failed() <= max);
        }
        assert!(backoff.failed() >= max / 2);
        backoff.succeeded();
        assert!(backoff.failed() <= FIRST * 3 / 2);
    }
}
