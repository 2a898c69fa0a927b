//! Waiting for a condition of another process, with a bound.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// How long a server may take to become usable. On two busy cores a JVM needs some ten seconds.
pub const START: Duration = Duration::from_secs(120);

/// How long an ended process may take to disappear.
pub const END: Duration = Duration::from_secs(30);

/// What a probe of [`until`] saw.
pub enum Seen<T> {
    /// The condition holds.
    Done(T),
    /// It does not hold yet; the text says what was seen instead.
    NotYet(String),
}

/// Asks `probe` until it says [`Seen::Done`], pausing a little longer each time (at most 50 ms).
///
/// # Errors
/// When the bound has passed, with what was seen last; and at once when the probe itself fails.
pub fn until<T>(
    what: &str,
    bound: Duration,
    mut probe: impl FnMut() -> Result<Seen<T>>,
) -> Result<T> {
    let begun = Instant::now();
    let mut pause = Duration::from_millis(2);
    loop {
        match probe()? {
            Seen::Done(value) => return Ok(value),
            Seen::NotYet(seen) if begun.elapsed() > bound => {
                bail!("waited {bound:?} for {what}; last seen: {seen}")
            }
            Seen::NotYet(_) => thread::sleep(pause),
        }
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}
