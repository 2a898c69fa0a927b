//! What the crowd was told.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;

use anyhow::{Context, Result};
use dropgate_domain::{ClaimId, Unit, UserId};
use dropgate_model::replay::{Outcome, Told};
use serde::Deserialize;

use crate::coverage::Winners;
use crate::inject::Promoted;

/// One answer, as far as it counts here.
#[derive(Clone, Debug, Deserialize)]
pub struct Answer {
    /// Who.
    pub user: String,
    /// The problem's code, or the kind of an error.
    pub code: Option<String>,
    /// The claim's id.
    pub claim: Option<String>,
    /// The unit.
    pub unit: Option<u64>,
    /// `won`, `again`, `sold_out`, ..
    pub status: String,
    /// When it had come, in Unix milliseconds.
    pub done_ms: u64,
    /// When the click was meant to be made, in Unix milliseconds.
    pub intended_ms: u64,
    /// Who answered.
    pub gateway: String,
}

/// The answers of a transcript.
///
/// # Errors
/// When it cannot be read.
pub fn read(path: &Path) -> Result<Vec<Answer>> {
    let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
    BufReader::new(file)
        .lines()
        .map(|line| Ok(serde_json::from_str(&line?)?))
        .collect::<Result<_>>()
        .with_context(|| format!("reading {}", path.display()))
}

/// The answers, as the model reads them, in the order in which they had come.
///
/// # Errors
/// When one names what cannot be.
pub fn for_the_model(answers: &[Answer]) -> Result<Vec<Told>> {
    let mut in_order: Vec<_> = answers.iter().collect();
    in_order.sort_by_key(|answer| answer.done_ms);
    in_order.into_iter().map(one_for_the_model).collect()
}

fn one_for_the_model(answer: &Answer) -> Result<Told> {
    let claim = answer
        .claim
        .as_deref()
        .map(str::parse::<ClaimId>)
        .transpose()?;
    let code = answer.code.as_deref().unwrap_or_default();
    let outcome = match (answer.status.as_str(), claim, answer.unit) {
        ("won" | "again", Some(claim), Some(unit)) => Outcome::Won {
            claim,
            unit: Unit(unit),
        },
        ("pending", Some(claim), _) => Outcome::Pending { claim },
        ("void", Some(claim), _) => Outcome::Void { claim },
        ("sold_out", ..) => Outcome::SoldOut,
        ("refused", ..) if code == "closed" => Outcome::Closed,
        ("refused", ..) if code == "limit_reached" => Outcome::LimitReached,
        _ => Outcome::NotNow,
    };
    Ok(Told {
        user: UserId::new(&answer.user)?,
        outcome,
    })
}

/// Puts transcripts into one file.
///
/// # Errors
/// When one cannot be read or written.
pub fn join(parts: &[&Path], whole: &Path) -> Result<()> {
    let mut out = File::create(whole)?;
    for part in parts {
        out.write_all(&std::fs::read(part)?)?;
    }
    Ok(())
}

/// Counts told winners before the first fault, until all was healed, and after that.
#[must_use]
pub fn winners(answers: &[Answer], first_fault_ms: u64, healed_ms: u64) -> Winners {
    let mut winners = Winners::default();
    for answer in answers.iter().filter(|answer| answer.status == "won") {
        let count = match answer.done_ms {
            at if at < first_fault_ms => &mut winners.before,
            at if at < healed_ms => &mut winners.during,
            _ => &mut winners.after,
        };
        *count += 1;
    }
    winners
}

/// How long after there was a new master the first win was told of a generation that nobody had
/// heard of while there was the old one, in milliseconds.
#[must_use]
pub fn first_new_win_ms(answers: &[Answer], promoted: &Promoted) -> Option<u64> {
    let won = || answers.iter().filter(|answer| answer.status == "won");
    let before = won().filter(|answer| answer.done_ms < promoted.lost_ms);
    let old = before.filter_map(Answer::generation).max()?;
    let is_new = |answer: &&Answer| answer.generation().is_some_and(|new| new > old);
    let first = won().filter(is_new).map(|answer| answer.done_ms).min()?;
    Some(first.saturating_sub(promoted.at_ms))
}

impl Answer {
    /// A claim's id begins with its generation.
    fn generation(&self) -> Option<u64> {
        self.claim.as_deref()?.split('-').next()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn winners_are_counted_by_when_they_were_told() {
        let folder = tempfile::tempdir().unwrap();
        let line = |status: &str, done_ms: u64| {
            let generation = done_ms / 20 + 1;
            format!(
                "{{\"status\":\"{status}\",\"done_ms\":{done_ms},\"intended_ms\":1,\"user\":\"u\",\
                 \"gateway\":\"g\",\"claim\":\"{generation}-1-ab\"}}\n"
            )
        };
        let (one, two) = (folder.path().join("1"), folder.path().join("2"));
        std::fs::write(&one, line("won", 5) + &line("again", 6) + &line("won", 15)).unwrap();
        std::fs::write(
            &two,
            line("won", 20) + &line("sold_out", 21) + &line("won", 22),
        )
        .unwrap();
        let whole = folder.path().join("all");
        join(&[&one, &two], &whole).unwrap();
        let answers = read(&whole).unwrap();
        assert_eq!(answers.len(), 6);
        let winners = winners(&answers, 10, 20);
        assert_eq!(
            winners,
            Winners {
                before: 1,
                during: 1,
                after: 2
            }
        );
        let promoted = |lost_ms, at_ms| Promoted { lost_ms, at_ms };
        assert_eq!(first_new_win_ms(&answers, &promoted(16, 18)), Some(2));
        assert_eq!(first_new_win_ms(&answers, &promoted(16, 21)), Some(0));
        assert_eq!(first_new_win_ms(&answers, &promoted(21, 22)), None);
    }
}
