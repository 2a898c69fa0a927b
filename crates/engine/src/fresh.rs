//! Whether the reader knows the log as it is now.
//!
//! The log is asked for its end on a client that does not fetch; the reader is fresh while it
//! has reached the end of a question that was asked a short time ago. Without that nothing is
//! answered from memory: a process cut off from the log would go on answering from the past.

use dropgate_domain::{LogId, Offset};
use dropgate_stream::Lane;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Questions kept for each partition: at the default pace those of two seconds.
const QUESTIONS_MAX: usize = 8;

/// The answers of the log, against how far the reader is. Shared by the prober, the reader and
/// all who ask.
#[derive(Debug, Default)]
pub(crate) struct Freshness {
    lanes: Mutex<BTreeMap<Lane, Reading>>,
}

#[derive(Debug)]
struct Reading {
    /// The log that the lane must be of.
    log: LogId,
    /// The next offset to be judged.
    next: Offset,
    /// When was asked, and the end that was answered; the newest last.
    questions: VecDeque<(Instant, Offset)>,
    /// When the newest question was asked whose end has been reached.
    reached: Option<Instant>,
}

impl Reading {
    fn settle(&mut self) {
        while let Some(&(asked, end)) = self.questions.front() {
            if end > self.next {
                return;
            }
            self.reached = Some(asked);
            self.questions.pop_front();
        }
    }
}

impl Freshness {
    /// The reader has judged everything before `next`.
    pub fn read_to(&self, lane: Lane, log: LogId, next: Offset) {
        let mut lanes = self.lanes.lock();
        let reading = lanes.entry(lane).or_insert_with(|| Reading {
            log,
            next,
            questions: VecDeque::new(),
            reached: None,
        });
        reading.next = next;
        reading.settle();
    }

    /// The log, asked at `asked`, answered that it ends at `end`.
    pub fn answered(&self, lane: Lane, asked: Instant, end: Offset) {
        if let Some(reading) = self.lanes.lock().get_mut(&lane) {
            // When full, the oldest stay: theirs are the ends that are reached first.
            if reading.questions.len() < QUESTIONS_MAX {
                reading.questions.push_back((asked, end));
            }
            reading.settle();
        }
    }

    /// How old what the reader knows may be, at most; `None` when it never reached an end.
    pub fn age(&self, lane: Lane) -> Option<Duration> {
        self.age_at(lane, Instant::now())
    }

    fn age_at(&self, lane: Lane, now: Instant) -> Option<Duration> {
        let lanes = self.lanes.lock();
        Some(now.saturating_duration_since(lanes.get(&lane)?.reached?))
    }

    /// The oldest of what all lanes are; `None` when one never reached an end.
    pub fn age_max(&self) -> Option<Duration> {
        let (lanes, now) = (self.lanes.lock(), Instant::now());
        let mut oldest = Duration::ZERO;
        for reading in lanes.values() {
            oldest = oldest.max(now.saturating_duration_since(reading.reached?));
        }
        Some(oldest)
    }

    /// The lanes that are read, each with the log that it must be of.
    pub fn lanes(&self) -> Vec<(Lane, LogId)> {
        let lanes = self.lanes.lock();
        lanes
            .iter()
            .map(|(lane, reading)| (*lane, reading.log))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: Lane = Lane::Index;
    const LOG: LogId = LogId([1; 16]);

    #[test]
    fn fresh_is_having_reached_the_end_of_a_recent_question() {
        let (fresh, start) = (Freshness::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let age = |now_ms| fresh.age_at(P, at(now_ms));
        assert_eq!(age(0), None);
        fresh.read_to(P, LOG, Offset(0));
        fresh.answered(P, at(0), Offset(5));
        assert_eq!(age(0), None, "the end is not reached");
        fresh.read_to(P, LOG, Offset(4));
        assert_eq!(age(0), None);
        fresh.read_to(P, LOG, Offset(5));
        assert_eq!(age(0), Some(Duration::ZERO));
        fresh.answered(P, at(700), Offset(9));
        assert_eq!(age(700), Some(Duration::from_millis(700)), "behind again");
        fresh.read_to(P, LOG, Offset(20));
        assert_eq!(age(700), Some(Duration::ZERO));
    }

    #[test]
    fn an_answer_that_was_slow_counts_from_its_question() {
        let (fresh, start) = (Freshness::default(), Instant::now());
        fresh.read_to(P, LOG, Offset(5));
        fresh.answered(P, start, Offset(5));
        let late = start + Duration::from_millis(900);
        assert_eq!(fresh.age_at(P, late), Some(Duration::from_millis(900)));
    }

    #[test]
    fn questions_that_are_never_reached_are_bounded() {
        let fresh = Freshness::default();
        fresh.read_to(P, LOG, Offset(0));
        for end in 1..1000 {
            fresh.answered(P, Instant::now(), Offset(end));
        }
        assert_eq!(fresh.lanes.lock()[&P].questions.len(), QUESTIONS_MAX);
        assert_eq!(fresh.age_max(), None);
    }
}
