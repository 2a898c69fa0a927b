//! How far a run is, on stderr: a bar on a terminal, a line now and then else.

use std::io::{IsTerminal as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::record::Outcome;

/// How often a line is written when stderr is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Counts that all threads add to.
#[derive(Debug, Default)]
pub struct Progress([AtomicU64; Outcome::ALL.len()]);

impl Progress {
    /// Counts a click that is done.
    pub fn done(&self, outcome: Outcome) {
        // Only shown to people: no order with anything else is needed.
        self.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    fn count(&self, outcome: Outcome) -> u64 {
        self.0[outcome as usize].load(Ordering::Relaxed)
    }

    fn total(&self) -> u64 {
        Outcome::ALL
            .iter()
            .map(|outcome| self.count(*outcome))
            .sum()
    }

    fn summary(&self) -> String {
        let parts = Outcome::ALL
            .iter()
            .map(|outcome| (outcome.name(), self.count(*outcome)))
            .filter(|(name, count)| *count > 0 || *name == "won")
            .map(|(name, count)| format!("{name} {count}"));
        parts.collect::<Vec<_>>().join(", ")
    }
}

/// Shows a run's progress.
#[derive(Debug)]
pub enum Display {
    /// Nothing.
    Quiet,
    /// A bar that is drawn again and again.
    Bar(ProgressBar),
    /// A line now and then.
    Lines {
        /// The number of clicks to come in all.
        clicks: u64,
        /// When the last line was written.
        last: Instant,
    },
}

impl Display {
    /// A display of a run of so many clicks.
    #[must_use]
    pub fn new(clicks: u64, quiet: bool) -> Self {
        if quiet || clicks == 0 {
            return Self::Quiet;
        }
        if !std::io::stderr().is_terminal() {
            return Self::Lines {
                clicks,
                last: Instant::now(),
            };
        }
        let bar = ProgressBar::with_draw_target(Some(clicks), ProgressDrawTarget::stderr());
        let template = "{bar:20} {pos}/{len} clicks, {per_sec}, {elapsed}  {wide_msg}";
        // A template that does not parse leaves the default one.
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self::Bar(bar)
    }

    /// Shows the state as it is now.
    pub fn show(&mut self, progress: &Progress) {
        match self {
            Self::Quiet => {}
            Self::Bar(bar) => {
                bar.set_position(progress.total());
                bar.set_message(progress.summary());
            }
            Self::Lines { clicks, last } => {
                if last.elapsed() >= LINE_EVERY {
                    *last = Instant::now();
                    let (done, summary) = (progress.total(), progress.summary());
                    // A closed stderr is no reason to stop a run.
                    let _ = writeln!(
                        std::io::stderr().lock(),
                        "{done}/{clicks} clicks: {summary}"
                    );
                }
            }
        }
    }

    /// Takes the bar off the terminal.
    pub fn clear(self) {
        if let Self::Bar(bar) = self {
            bar.finish_and_clear();
        }
    }
}
