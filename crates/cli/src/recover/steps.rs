//! A recovery's steps as they are done: a bar for the wins on a terminal, lines everywhere else.

use crate::output;
use dropgate_engine::Progress;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::sync::Mutex;
use std::time::Duration;

/// Off a terminal a line is written each time that so many percent more are done.
const PERCENT_A_LINE: u64 = 10;
/// Fewer wins than these are written before anybody has read a line.
const WINS_WORTH_A_LINE: u64 = 10_000;

const BAR: &str = "  {bar:40} {human_pos} of {human_len} wins, {per_sec}, {eta} left";

/// Tells of the steps on standard error.
pub struct Steps {
    terminal: bool,
    told: Mutex<Told>,
}

#[derive(Default)]
struct Told {
    bar: Option<ProgressBar>,
    wins: u64,
    percent: u64,
}

impl Steps {
    pub fn new() -> Self {
        Self {
            terminal: std::io::stderr().is_terminal(),
            told: Mutex::default(),
        }
    }

    /// Tells of a step. With standard error closed nobody wants to know.
    pub fn tell(&self, progress: Progress) {
        let Ok(mut told) = self.told.lock() else {
            return;
        };
        match progress {
            Progress::Started { wins, .. } => {
                note(&text(progress));
                told.wins = wins;
                if self.terminal && wins > 0 {
                    told.bar = Some(bar(wins));
                }
            }
            Progress::Written { wins } => told.written(wins),
            Progress::Switched => {
                told.bar.take().inspect(ProgressBar::finish_and_clear);
                note(&text(progress));
            }
            Progress::Certified | Progress::Halted { .. } | Progress::Published { .. } => {
                note(&text(progress));
            }
        }
    }

    /// Takes the bar away, however it ended.
    pub fn end(&self) {
        if let Ok(mut told) = self.told.lock() {
            told.bar.take().inspect(ProgressBar::abandon);
        }
    }
}

impl Told {
    fn written(&mut self, wins: u64) {
        if let Some(bar) = &self.bar {
            return bar.set_position(wins);
        }
        let percent = percent(wins, self.wins);
        let due = percent >= self.percent + PERCENT_A_LINE;
        if due && self.wins >= WINS_WORTH_A_LINE {
            self.percent = percent;
            note(&format!(
                "{wins} of {} wins written ({percent} %)",
                self.wins
            ));
        }
    }
}

fn percent(part: u64, whole: u64) -> u64 {
    (part * 100).checked_div(whole).unwrap_or(100)
}

fn note(text: &str) {
    let _ = output::note(text);
}

fn text(progress: Progress) -> String {
    match progress {
        Progress::Certified => "redis is fit for a sale".to_owned(),
        Progress::Halted { found: true } => "the generation is out of use in redis".to_owned(),
        Progress::Halted { found: false } => "redis no longer has the generation".to_owned(),
        Progress::Published { events: 0 } => "nothing waits in the outbox".to_owned(),
        Progress::Published { events } => {
            format!("{events} events that waited in the outbox are in the log")
        }
        Progress::Started { generation, wins } => {
            format!("generation {generation} is begun; {wins} wins are written to redis")
        }
        Progress::Written { wins } => format!("{wins} wins are written"),
        Progress::Switched => "the new generation is current; waiting until it sells".to_owned(),
    }
}

fn bar(wins: u64) -> ProgressBar {
    let bar = ProgressBar::new(wins);
    if let Ok(style) = ProgressStyle::with_template(BAR) {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(200));
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bar_can_be_drawn() {
        ProgressStyle::with_template(BAR).unwrap();
    }

    #[test]
    fn a_sale_without_wins_is_written_at_once() {
        assert_eq!((percent(0, 0), percent(5, 10)), (100, 50));
    }
}
