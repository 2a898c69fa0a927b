//! What is counted: one record per thread, merged at the end.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::outcome::{Answer, Broken, End, Win};
use crate::schedule::Click;

/// The longest latency that is told apart, in microseconds: beyond the retry
/// budget and a request's time limit together.
const LONGEST_US: u64 = 300 * 1_000_000;
/// Problem codes come from the server: more than these are counted as `other`.
const CODES_MAX: usize = 64;

/// How a click ended, as reports name it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Outcome {
    /// The first time that this user was told of a win.
    Won,
    /// A user who had been told of a win before was told of one.
    Again,
    /// Sold out.
    SoldOut,
    /// Another 4xx.
    Other4xx,
    /// The last answer was 202.
    Pending,
    /// No answer that counts.
    Error,
}

impl Outcome {
    /// All of them, in the order of reports.
    pub const ALL: [Self; 6] = [
        Self::Won,
        Self::Again,
        Self::SoldOut,
        Self::Other4xx,
        Self::Pending,
        Self::Error,
    ];

    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Won => "won",
            Self::Again => "again",
            Self::SoldOut => "sold_out",
            Self::Other4xx => "other_4xx",
            Self::Pending => "pending",
            Self::Error => "errors",
        }
    }
}

/// A user's win, as first told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Told {
    /// The claim's id.
    pub claim: Box<str>,
    /// The unit's number.
    pub unit: u64,
    /// When, since the run's start.
    pub at: Duration,
}

/// How repeats of winners fared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Repeated {
    /// Clicks that were repeats.
    pub clicks: u64,
    /// A winner was told of the very same claim and unit.
    pub same_claim: u64,
    /// A winner was told of another claim or unit.
    pub other_claim: u64,
    /// A winner who already knew was told that it is sold out.
    pub no_claim: u64,
}

/// Everything that one thread, or a whole run, has seen.
#[derive(Debug)]
pub struct Record {
    latency: [Histogram<u64>; Outcome::ALL.len()],
    /// From the intended start to the moment the first request was sent: what
    /// the generator itself, or a lack of free connections, added.
    pub lag: Histogram<u64>,
    /// Every win by user; all clicks of a user are in one record.
    pub wins: HashMap<u64, Told>,
    /// Repeats of winners.
    pub repeats: Repeated,
    /// Answers by HTTP status.
    pub http: BTreeMap<u16, u64>,
    /// Final refusals and errors by name.
    pub codes: BTreeMap<String, u64>,
    /// Requests without an answer, by kind.
    pub broken: BTreeMap<&'static str, u64>,
    /// Claims sent after the first of a click.
    pub retried_claims: u64,
    /// Polls sent.
    pub polls: u64,
    /// Users told "void" (and tried again).
    pub voids: u64,
    /// Connections opened.
    pub connections: u64,
    /// When the last click ended, since the run's start.
    pub last_done: Duration,
    /// When the last click was made, since the run's start.
    pub last_click: Duration,
}

/// Times of a click that is done, since the run's start.
#[derive(Debug, Clone, Copy)]
pub struct Times {
    /// When its last request was sent.
    pub asked: Duration,
    /// When it was done.
    pub done: Duration,
}

impl Record {
    /// An empty record.
    ///
    /// # Errors
    /// When a histogram cannot be made; its bounds are constants.
    pub fn new() -> anyhow::Result<Self> {
        let empty = Histogram::new_with_bounds(1, LONGEST_US, 3)?;
        Ok(Self {
            latency: std::array::from_fn(|_| empty.clone()),
            lag: empty,
            wins: HashMap::new(),
            repeats: Repeated::default(),
            http: BTreeMap::new(),
            codes: BTreeMap::new(),
            broken: BTreeMap::new(),
            retried_claims: 0,
            polls: 0,
            voids: 0,
            connections: 0,
            last_done: Duration::ZERO,
            last_click: Duration::ZERO,
        })
    }

    /// The latencies of one outcome, in microseconds.
    #[must_use]
    pub fn latency(&self, outcome: Outcome) -> &Histogram<u64> {
        &self.latency[outcome as usize]
    }

    /// How many clicks ended so.
    #[must_use]
    pub fn count(&self, outcome: Outcome) -> u64 {
        self.latency(outcome).len()
    }

    /// How many clicks ended.
    #[must_use]
    pub fn clicks(&self) -> u64 {
        Outcome::ALL
            .iter()
            .map(|outcome| self.count(*outcome))
            .sum()
    }

    /// Counts an answer, or the lack of one.
    pub fn seen(&mut self, seen: &Result<Answer, Broken>) {
        match seen {
            Ok(answer) => *self.http.entry(answer.status).or_default() += 1,
            Err(broken) => *self.broken.entry(broken.name()).or_default() += 1,
        }
    }

    /// Counts a click that is done, and says how.
    pub fn done(&mut self, click: &Click, end: &End, times: Times) -> Outcome {
        let outcome = match end {
            End::Won(win) => self.won(click, win, times),
            End::SoldOut => {
                self.lost(click, times);
                Outcome::SoldOut
            }
            End::Refused { status, code } => {
                let code = code.clone().unwrap_or_else(|| format!("http_{status}"));
                self.code(code);
                Outcome::Other4xx
            }
            End::Pending => Outcome::Pending,
            End::Error(fault) => {
                self.code(format!("error_{}", fault.name()));
                Outcome::Error
            }
        };
        self.repeats.clicks += u64::from(click.nth > 0);
        let latency = times.done.saturating_sub(click.at);
        self.latency[outcome as usize].saturating_record(micros(latency));
        self.last_done = self.last_done.max(times.done);
        self.last_click = self.last_click.max(click.at);
        outcome
    }

    fn won(&mut self, click: &Click, win: &Win, times: Times) -> Outcome {
        if let Some(told) = self.wins.get(&click.user) {
            if *told.claim == *win.claim && told.unit == win.unit {
                self.repeats.same_claim += 1;
            } else {
                self.repeats.other_claim += 1;
            }
            return Outcome::Again;
        }
        let told = Told {
            claim: win.claim.as_str().into(),
            unit: win.unit,
            at: times.done,
        };
        self.wins.insert(click.user, told);
        Outcome::Won
    }

    /// A "sold out" for a user who had been told of a win before they asked is
    /// a broken promise. One that crossed the win is not known to be.
    fn lost(&mut self, click: &Click, times: Times) {
        let knew = self
            .wins
            .get(&click.user)
            .is_some_and(|told| told.at <= times.asked);
        self.repeats.no_claim += u64::from(knew);
    }

    fn code(&mut self, code: String) {
        let known = self.codes.contains_key(&code) || self.codes.len() < CODES_MAX;
        let name = if known { code } else { "other".to_owned() };
        *self.codes.entry(name).or_default() += 1;
    }

    /// Takes up what another thread has seen, of other users.
    pub fn merge(&mut self, other: Self) {
        for (mine, theirs) in self.latency.iter_mut().zip(&other.latency) {
            // Bounds are the same, so nothing can be out of them.
            let _ = mine.add(theirs);
        }
        let _ = self.lag.add(&other.lag);
        self.wins.extend(other.wins);
        self.repeats.clicks += other.repeats.clicks;
        self.repeats.same_claim += other.repeats.same_claim;
        self.repeats.other_claim += other.repeats.other_claim;
        self.repeats.no_claim += other.repeats.no_claim;
        for (status, count) in other.http {
            *self.http.entry(status).or_default() += count;
        }
        for (code, count) in other.codes {
            *self.codes.entry(code).or_default() += count;
        }
        for (kind, count) in other.broken {
            *self.broken.entry(kind).or_default() += count;
        }
        self.retried_claims += other.retried_claims;
        self.polls += other.polls;
        self.voids += other.voids;
        self.connections += other.connections;
        self.last_done = self.last_done.max(other.last_done);
        self.last_click = self.last_click.max(other.last_click);
    }
}

/// A duration in whole microseconds, at least 1 (a histogram has no 0).
#[must_use]
pub fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros())
        .unwrap_or(u64::MAX)
        .max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::Fault;

    fn click(user: u64, nth: u8) -> Click {
        Click {
            user,
            nth,
            at: Duration::from_secs(1),
        }
    }

    fn times(asked_ms: u64, done_ms: u64) -> Times {
        Times {
            asked: Duration::from_millis(asked_ms),
            done: Duration::from_millis(done_ms),
        }
    }

    fn win(claim: &str, unit: u64) -> End {
        End::Won(Win {
            claim: claim.to_owned(),
            unit,
            again: false,
        })
    }

    #[test]
    fn a_winner_counts_once_and_a_repeat_by_its_claim() {
        let mut record = Record::new().unwrap();
        let at = times(1000, 1100);
        assert_eq!(record.done(&click(1, 0), &win("a", 1), at), Outcome::Won);
        assert_eq!(record.done(&click(1, 1), &win("a", 1), at), Outcome::Again);
        assert_eq!(record.done(&click(1, 1), &win("b", 2), at), Outcome::Again);
        assert_eq!(record.done(&click(1, 1), &win("a", 3), at), Outcome::Again);
        assert_eq!(record.wins.len(), 1);
        assert_eq!(
            record.repeats,
            Repeated {
                clicks: 3,
                same_claim: 1,
                other_claim: 2,
                no_claim: 0
            }
        );
    }

    #[test]
    fn sold_out_after_a_known_win_is_counted_and_a_crossing_one_is_not() {
        let mut record = Record::new().unwrap();
        record.done(&click(1, 0), &win("a", 1), times(1000, 1100));
        record.done(&click(1, 1), &End::SoldOut, times(1050, 1200));
        assert_eq!(record.repeats.no_claim, 0);
        record.done(&click(1, 1), &End::SoldOut, times(1150, 1200));
        assert_eq!(record.repeats.no_claim, 1);
    }

    #[test]
    fn latency_runs_from_the_intended_start() {
        let mut record = Record::new().unwrap();
        record.done(&click(1, 0), &End::SoldOut, times(1900, 2000));
        let max = record.latency(Outcome::SoldOut).max();
        assert!((999_000..=1_001_000).contains(&max), "{max}");
    }

    #[test]
    fn a_merge_is_the_sum() {
        let mut one = Record::new().unwrap();
        let mut two = Record::new().unwrap();
        one.done(&click(1, 0), &win("a", 1), times(1000, 1100));
        two.done(&click(2, 0), &End::SoldOut, times(1000, 3000));
        two.done(&click(4, 1), &End::Error(Fault::NotSent), times(1000, 1500));
        two.seen(&Err(Broken::Reset));
        one.merge(two);
        assert_eq!(one.clicks(), 3);
        assert_eq!(one.count(Outcome::Error), 1);
        assert_eq!(one.repeats.clicks, 1);
        assert_eq!(one.broken["reset"], 1);
        assert_eq!(one.last_done, Duration::from_secs(3));
    }

    #[test]
    fn codes_of_the_server_cannot_fill_the_memory() {
        let mut record = Record::new().unwrap();
        for n in 0..1000 {
            let end = End::Refused {
                status: 400,
                code: Some(format!("code{n}")),
            };
            record.done(&click(n, 0), &end, times(1000, 1100));
        }
        assert_eq!(record.codes.len(), CODES_MAX + 1);
        assert_eq!(record.codes.values().sum::<u64>(), 1000);
    }
}
