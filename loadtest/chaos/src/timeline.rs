//! What happened when, for a person who wants to know why a promise was broken.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// A fault begins.
    Fault,
    /// The suite does something else.
    Done,
    /// It was seen from outside: a state, a generation, a process that ended.
    Seen,
    /// A verdict.
    Found,
}

#[derive(Clone, Debug)]
struct Entry {
    at_ms: u64,
    said: Said,
    text: String,
}

/// The notes of a run. Clones are of the same run.
#[derive(Clone, Debug)]
pub struct Timeline {
    begun_ms: u64,
    entries: Arc<Mutex<Vec<Entry>>>,
}

/// Now, in Unix milliseconds.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    })
}

impl Timeline {
    /// Begins now.
    #[must_use]
    pub fn begin() -> Self {
        Self::begun_at(now_ms())
    }

    fn begun_at(begun_ms: u64) -> Self {
        Self {
            begun_ms,
            entries: Arc::default(),
        }
    }

    /// When it began, in Unix milliseconds.
    #[must_use]
    pub fn begun_ms(&self) -> u64 {
        self.begun_ms
    }

    /// A fault that begins now.
    pub fn fault(&self, text: impl Into<String>) {
        self.note(now_ms(), Said::Fault, text.into());
    }

    /// Something that the suite does now.
    pub fn done(&self, text: impl Into<String>) {
        self.note(now_ms(), Said::Done, text.into());
    }

    /// Something that is seen now.
    pub fn seen(&self, text: impl Into<String>) {
        self.note(now_ms(), Said::Seen, text.into());
    }

    /// A verdict.
    pub fn found(&self, text: impl Into<String>) {
        self.note(now_ms(), Said::Found, text.into());
    }

    /// Something that was seen at a time of its own, in Unix milliseconds, or at one that is not
    /// known: then it stands at the end.
    pub fn at(&self, at_ms: Option<u64>, text: impl Into<String>) {
        self.note(at_ms.unwrap_or_else(now_ms), Said::Seen, text.into());
    }

    fn note(&self, at_ms: u64, said: Said, text: String) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.push(Entry { at_ms, said, text });
    }

    /// The timeline with what was told in each second, as text.
    #[must_use]
    pub fn text(&self, told_ms: &[(u64, String)]) -> String {
        let mut entries = self
            .entries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        entries.extend(self.per_second(told_ms));
        entries.sort_by_key(|entry| entry.at_ms);
        let mut text = String::new();
        for Entry {
            at_ms,
            said,
            text: what,
        } in entries
        {
            let ms = at_ms.saturating_sub(self.begun_ms);
            let word = match said {
                Said::Fault => "FAULT",
                Said::Done => "does",
                Said::Seen => "seen",
                Said::Found => "FOUND",
            };
            let mut lines = what.lines();
            let first = lines.next().unwrap_or_default();
            let _ = writeln!(text, "{:>4}.{:03}  {word:<6} {first}", ms / 1000, ms % 1000);
            for line in lines {
                let _ = writeln!(text, "                  {line}");
            }
        }
        text
    }

    fn per_second(&self, told_ms: &[(u64, String)]) -> Vec<Entry> {
        let mut seconds: BTreeMap<u64, BTreeMap<&str, u64>> = BTreeMap::new();
        for (at_ms, status) in told_ms {
            let second = at_ms.saturating_sub(self.begun_ms) / 1000;
            *seconds
                .entry(second)
                .or_default()
                .entry(status)
                .or_insert(0) += 1;
        }
        let line = |(second, counts): (u64, BTreeMap<&str, u64>)| {
            let counts: Vec<_> = counts
                .iter()
                .map(|(status, count)| format!("{status} {count}"))
                .collect();
            Entry {
                // At the second's end: what was told until then.
                at_ms: self.begun_ms + second * 1000 + 999,
                said: Said::Seen,
                text: format!("told in this second: {}", counts.join(", ")),
            }
        };
        seconds.into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_reads_in_the_order_of_time_with_what_was_told_in_each_second() {
        let timeline = Timeline::begun_at(1000);
        timeline.note(3500, Said::Seen, "gateway 1: generation 2".into());
        timeline.note(2250, Said::Fault, "FLUSHALL\non the master".into());
        let told = [(1100, "won"), (1200, "won"), (2300, "void")].map(|(ms, s)| (ms, s.to_owned()));
        let text = timeline.text(&told);
        assert_eq!(
            text,
            "   0.999  seen   told in this second: won 2\n\
             \x20  1.250  FAULT  FLUSHALL\n\
             \x20                 on the master\n\
             \x20  1.999  seen   told in this second: void 1\n\
             \x20  2.500  seen   gateway 1: generation 2\n"
        );
    }
}
