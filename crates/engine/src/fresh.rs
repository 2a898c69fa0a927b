//! Whether the reader knows the log as it is now.
//!
//! The log is asked for its end on a client that does not fetch; the reader is fresh while it
//! has reached the end of a question that was asked a short time ago. Without that nothing is
//! answered from memory: a process cut off from the log would go on answering from the past.

use dropgate_domain::{Offset, PartitionId};
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
    partitions: Mutex<BTreeMap<PartitionId, Partition>>,
}

#[derive(Debug, Default)]
struct Partition {
    /// The next offset to be judged.
    next: Offset,
    /// When was asked, and the end that was answered; the newest last.
    questions: VecDeque<(Instant, Offset)>,
    /// When the newest question was asked whose end has been reached.
    reached: Option<Instant>,
}

impl Partition {
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
    pub fn read_to(&self, partition: PartitionId, next: Offset) {
        let mut partitions = self.partitions.lock();
        let partition = partitions.entry(partition).or_default();
        partition.next = next;
        partition.settle();
    }

    /// The log, asked at `asked`, answered that it ends at `end`.
    pub fn answered(&self, partition: PartitionId, asked: Instant, end: Offset) {
        let mut partitions = self.partitions.lock();
        let partition = partitions.entry(partition).or_default();
        if partition.questions.len() == QUESTIONS_MAX {
            partition.questions.pop_front();
        }
        partition.questions.push_back((asked, end));
        partition.settle();
    }

    /// How old what the reader knows may be, at most; `None` when it never reached an end.
    pub fn age(&self, partition: PartitionId) -> Option<Duration> {
        self.age_at(partition, Instant::now())
    }

    fn age_at(&self, partition: PartitionId, now: Instant) -> Option<Duration> {
        let partitions = self.partitions.lock();
        Some(now.saturating_duration_since(partitions.get(&partition)?.reached?))
    }

    /// The oldest of what all partitions are; `None` when one never reached an end.
    pub fn age_max(&self) -> Option<Duration> {
        let (partitions, now) = (self.partitions.lock(), Instant::now());
        let mut oldest = Duration::ZERO;
        for partition in partitions.values() {
            oldest = oldest.max(now.saturating_duration_since(partition.reached?));
        }
        Some(oldest)
    }

    /// The partitions that are read.
    pub fn partitions(&self) -> Vec<PartitionId> {
        self.partitions.lock().keys().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const P: PartitionId = PartitionId(0);

    #[test]
    fn fresh_is_having_reached_the_end_of_a_recent_question() {
        let (fresh, start) = (Freshness::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let age = |now_ms| fresh.age_at(P, at(now_ms));
        assert_eq!(age(0), None);
        fresh.answered(P, at(0), Offset(5));
        assert_eq!(age(0), None, "the end is not reached");
        fresh.read_to(P, Offset(4));
        assert_eq!(age(0), None);
        fresh.read_to(P, Offset(5));
        assert_eq!(age(0), Some(Duration::ZERO));
        fresh.answered(P, at(700), Offset(9));
        assert_eq!(age(700), Some(Duration::from_millis(700)), "behind again");
        fresh.read_to(P, Offset(20));
        assert_eq!(age(700), Some(Duration::ZERO));
    }

    #[test]
    fn an_answer_that_was_slow_counts_from_its_question() {
        let (fresh, start) = (Freshness::default(), Instant::now());
        fresh.read_to(P, Offset(5));
        fresh.answered(P, start, Offset(5));
        let late = start + Duration::from_millis(900);
        assert_eq!(fresh.age_at(P, late), Some(Duration::from_millis(900)));
    }

    #[test]
    fn questions_that_are_never_reached_are_bounded() {
        let fresh = Freshness::default();
        for end in 1..1000 {
            fresh.answered(P, Instant::now(), Offset(end));
        }
        assert_eq!(fresh.partitions.lock()[&P].questions.len(), QUESTIONS_MAX);
        assert_eq!(fresh.age_max(), None);
    }
}
