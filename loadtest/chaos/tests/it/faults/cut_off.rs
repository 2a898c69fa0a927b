//! A gateway that is cut off from the log, beside one that is not.

use anyhow::{Context, Result, ensure};
use dropgate_chaos::fault::Kind;
use dropgate_chaos::told::Answer;

use super::{at, schedule, sell};

/// How long it is cut off.
const CUT_MS: u64 = 4000;

#[test]
fn a_gateway_cut_off_from_the_log_turns_unready_and_the_other_goes_on_winning() -> Result<()> {
    let steps = vec![at(300, Kind::CutKafka, 0, CUT_MS)];
    let (outcome, answers) = sell(&schedule(1100, steps))?;
    let cut_ms = outcome.injected.faults.first().context("a cut")?.1;
    let changes = outcome.readiness;
    let (cut, healthy) = (&outcome.gateways[0], &outcome.gateways[1]);
    // On a busy machine a gateway may be left out for a moment without being cut off.
    let of_cut = || changes.iter().filter(|change| change.target == *cut);
    let left_out_ms = of_cut()
        .find(|change| !change.ready && change.at_ms >= cut_ms)
        .map(|change| change.at_ms)
        .or_else(|| {
            Some(
                of_cut()
                    .rfind(|change| change.at_ms < cut_ms)?
                    .at_ms
                    .max(cut_ms),
            )
        })
        .context("it was not left out")?;
    ensure!(
        changes
            .iter()
            .any(|change| change.ready && change.target == *cut),
        "it was never taken in again: {changes:?}"
    );
    let until_ms = cut_ms + CUT_MS;
    let of = |from, to| Latencies::of(&answers, healthy, from..to);
    let before = of(0, cut_ms);
    let both = of(cut_ms, left_out_ms);
    let after = of(left_out_ms, until_ms);
    println!(
        "the gateway was left out {} ms after it was cut off; the other's wins: before {before}; \
         while both were sent to: {both}; after that: {after}",
        left_out_ms - cut_ms
    );
    ensure!(
        after.count >= 20,
        "the other did not go on winning: {after}"
    );
    // Who asked the one that was cut off had no win of it until it could see the log again.
    let blind = left_out_ms..until_ms;
    let told = |answer: &&Answer| answer.gateway == *cut && blind.contains(&answer.done_ms);
    let wins = answers
        .iter()
        .filter(told)
        .filter(|answer| answer.status == "won");
    ensure!(
        wins.count() == 0,
        "wins were told by a gateway that cannot see the log"
    );
    Ok(())
}

/// From a click to its win, in milliseconds.
struct Latencies {
    count: usize,
    median: u64,
    p99: u64,
}

impl Latencies {
    fn of(answers: &[Answer], gateway: &str, during: std::ops::Range<u64>) -> Self {
        let mut took: Vec<_> = answers
            .iter()
            .filter(|answer| answer.status == "won" && answer.gateway == gateway)
            .filter(|answer| during.contains(&answer.intended_ms))
            .map(|answer| answer.done_ms.saturating_sub(answer.intended_ms))
            .collect();
        took.sort_unstable();
        let at = |percent: usize| took.get(took.len() * percent / 100).copied().unwrap_or(0);
        Self {
            count: took.len(),
            median: at(50),
            p99: at(99),
        }
    }
}

impl std::fmt::Display for Latencies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { count, median, p99 } = self;
        write!(f, "{count}, median {median} ms, p99 {p99} ms")
    }
}
