//! Every way in which a Redis loses writes that were acknowledged.

use anyhow::{Result, ensure};
use dropgate_chaos::fault::{Kind, LOSES_DISK, OLD_DISK};

use super::{at, from_env, schedule, sell};

/// Wins between two faults.
const APART: u64 = 250;
/// Wins between two failovers: sentinels begin none soon after another.
const FAR_APART: u64 = 500;
/// Sentinels promote when a master is silent for longer.
const BACK_AT_ONCE_MS: u64 = 50;

#[test]
fn no_told_win_is_lost_by_a_redis_that_lost_its_last_second_or_all_or_came_back_old() -> Result<()>
{
    // Killed right after acknowledged wins: with a flush every second, those of up to a second are
    // gone.
    let kills = from_env("KILLS", 3)?;
    let mut steps: Vec<_> = (1..=kills)
        .map(|nth| at(nth * APART, Kind::KillMaster, 0, BACK_AT_ONCE_MS))
        .collect();
    for (nth, which) in (kills + 1..).zip([LOSES_DISK, OLD_DISK]) {
        steps.push(at(nth * APART, Kind::KillMaster, which, BACK_AT_ONCE_MS));
    }
    let (outcome, _) = sell(&schedule((kills + 3) * APART, steps))?;
    ensure!(outcome.injected.faults.len() as u64 == kills + 2);
    println!(
        "{} kills, {} generations, told winners {:?}, {:.1} s",
        outcome.injected.faults.len(),
        outcome.generations,
        outcome.winners,
        outcome.took.as_secs_f64()
    );
    Ok(())
}

#[test]
fn a_new_master_that_lagged_sells_again_and_late_wins_of_the_old_one_are_void() -> Result<()> {
    let failovers = from_env("FAILOVERS", 2)?;
    // Killed, or paused and continued when another has its place, with calls in its buffers.
    let kinds = [Kind::LaggingPause, Kind::LaggingKill];
    let steps: Vec<_> = (1..=failovers)
        .zip(kinds.into_iter().cycle())
        .map(|(nth, kind)| at(nth * FAR_APART, kind, 0, 201))
        .collect();
    let (outcome, answers) = sell(&schedule((failovers + 1) * FAR_APART, steps))?;
    let voids = answers.iter().filter(|answer| answer.status == "void");
    let mut took = outcome.resumed_ms.clone();
    took.sort_unstable();
    ensure!(!took.is_empty(), "no generation was begun on a new master");
    println!(
        "from the new master to the first new win, {failovers} failovers: median {} ms of \
         {took:?}; {} users were told void and claimed again; {} generations, {:.1} s",
        took[took.len() / 2],
        voids.count(),
        outcome.generations,
        outcome.took.as_secs_f64()
    );
    Ok(())
}
