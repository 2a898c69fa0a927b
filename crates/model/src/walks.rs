//! Whatever the model does, the judge of real runs accepts.

use crate::bounds::Bounds;
use crate::history::Verdict;
use crate::records::{RecordId, Said, sale, user};
use crate::replay::{Outcome, Run, Told, replay};
use crate::sale::Sale;
use crate::state::State;
use crate::worlds::WORLDS;
use dropgate_domain::{ClaimId, FullRule, Generation, Offset, Record, Seq, Unit};
use std::collections::BTreeMap;

/// Steps of a walk, at most.
const STEPS: usize = 80;
/// Walks through each world.
const WALKS: u64 = 1_000;

/// Numbers that look random, and are the same ones each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

fn walk(sale: &Sale, dice: &mut Dice) -> State {
    let mut state = sale.opened();
    for _ in 0..STEPS {
        let mut actions = Vec::new();
        sale.possible(&state, &mut actions);
        let mut next = None;
        while next.is_none() && !actions.is_empty() {
            let action = actions.swap_remove(dice.below(actions.len()));
            next = sale.step(&state, action);
        }
        match next {
            Some(next) => state = next,
            None => break,
        }
    }
    state
}

fn records(sale: &Sale, state: &State) -> Vec<(RecordId, Record)> {
    let mut records: Vec<_> = sale
        .history
        .prefixes(state.log)
        .map(|log| sale.history.last(log))
        .map(|id| (id, sale.records.get(id).clone()))
        .collect();
    records.reverse();
    records
}

/// What is told of each win that is in the log.
fn told(sale: &Sale, state: &State, records: &[(RecordId, Record)]) -> Vec<Told> {
    let folded = sale.folded(state.log);
    let mut told = Vec::new();
    for (id, _) in records {
        let said = sale.records.said(*id);
        let Said::Won {
            generation,
            seq,
            unit,
            user: who,
            ..
        } = said
        else {
            continue;
        };
        let dropgate_domain::Body::Won(won) = &sale.records.get(*id).event.body else {
            continue;
        };
        let claim = ClaimId {
            generation: Generation(generation.into()),
            seq: Seq(seq.into()),
            attempt: won.attempt,
        };
        let unit = Unit(unit.into());
        let outcome = match folded.verdict_of(*id, said) {
            Verdict::Applied(_) => Outcome::Won { claim, unit },
            Verdict::Void => Outcome::Void { claim },
            Verdict::Open => Outcome::Pending { claim },
        };
        told.push(Told {
            user: user(who),
            outcome,
        });
    }
    if folded.claimable == 0 {
        let (user, outcome) = (user(7), Outcome::SoldOut);
        told.push(Told { user, outcome });
    }
    told
}

/// The log without the first win that was told: no run is that.
fn refuses_a_lost_record(log: &[(Offset, Record)], told: &[Told]) {
    let won = told.iter().find_map(|told| match &told.outcome {
        Outcome::Won { claim, .. } => Some(claim.attempt),
        _ => None,
    });
    let lost = |record: &Record| match &record.event.body {
        dropgate_domain::Body::Won(it) => Some(it.attempt) == won,
        _ => false,
    };
    let rest = log.iter().filter(|(_, record)| !lost(record));
    let judged = replay(&Run {
        sale: &sale(),
        records: &rest.cloned().collect::<Vec<_>>(),
        told,
        redis_forgot: true,
    });
    assert!(judged.is_err(), "{judged:?}: a told win is not in {log:#?}");
}

#[test]
fn the_judge_accepts_whatever_the_model_does() {
    let mut came_to: BTreeMap<&str, u64> = BTreeMap::new();
    for (world, named) in WORLDS.iter().enumerate() {
        let bounds = Bounds {
            database: false,
            ..named.bounds
        };
        let sale: Sale<FullRule> = Sale::new(bounds, None);
        for seed in 0..WALKS {
            let mut dice = Dice(seed << 8 | world as u64);
            let state = sale.settled(&walk(&sale, &mut dice));
            let records = records(&sale, &state);
            let told = told(&sale, &state, &records);
            let numbered = records.iter().zip(0..);
            let log: Vec<(Offset, Record)> = numbered
                .map(|((_, record), at)| (Offset(at), record.clone()))
                .collect();
            let accepted = replay(&Run {
                sale: &self::sale(),
                records: &log,
                told: &told,
                redis_forgot: state.lossy != 0,
            });
            let accepted = match accepted {
                Ok(accepted) => accepted,
                Err(rejected) => panic!("{} {seed}: {rejected}\n{log:#?}", named.name),
            };
            let won = |told: &&Told| matches!(told.outcome, Outcome::Won { .. });
            if told.iter().any(|told| won(&told)) {
                refuses_a_lost_record(&log, &told);
                *came_to.entry("won").or_default() += 1;
            }
            *came_to.entry("void").or_default() += accepted.void;
            *came_to.entry("forgotten").or_default() += accepted.forgotten;
            *came_to.entry("told").or_default() += accepted.told;
            *came_to.entry("duplicates").or_default() += accepted.duplicates;
        }
    }
    println!("{came_to:?}");
    let dull = came_to.values().any(|count| *count < 100);
    assert!(!dull, "hardly anything happened: {came_to:?}");
}
