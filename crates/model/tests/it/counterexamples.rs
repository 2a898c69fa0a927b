//! Each mechanism left out, and what goes wrong then: a shortest path to it.
//!
//! `dropgate-model --counterexamples` prints them all.

use crate::{limits, path};
use dropgate_model::VARIANTS;

/// Of the path to what breaks without a mechanism: how long it is at most, and its last step.
#[track_caller]
fn breaks(name: &str, steps_max: usize, last: &str) {
    let variant = VARIANTS.iter().find(|variant| variant.name == name);
    let variant = variant.expect("a variant of this name");
    let checked = variant.find(limits());
    println!("without {name}: {}", path(&checked));
    let (must, found) = checked.broken.as_ref().expect("a counterexample");
    assert_eq!(*must, variant.breaks);
    assert!(found.len() <= steps_max, "{}", path(&checked));
    let end = found.last().expect("a step");
    assert!(end.contains(last), "{end}");
}

#[test]
fn without_the_first_record_winning_a_told_win_is_lost() {
    breaks("first record wins", 6, "told: won");
}

#[test]
fn without_the_chain_two_histories_mix_and_the_guard_must_step_in() {
    breaks("chain", 6, "reaches the log");
}

#[test]
fn without_chain_and_guard_a_user_gets_two_units() {
    breaks("chain and guard", 6, "reaches the log");
}

#[test]
fn without_strict_order_an_overtaken_event_voids_a_generation_that_lost_nothing() {
    breaks(
        "strict order",
        3,
        "unit 2 to user 1, call 2] reaches the log",
    );
}

#[test]
fn without_the_generation_cut_a_late_copy_voids_the_next_generation() {
    breaks("generation cut", 8, "reaches the log");
}

#[test]
fn without_the_tip_an_event_that_was_left_behind_is_never_decided() {
    breaks("tip", 1, "the reply is lost");
}

#[test]
fn without_the_build_marker_a_generation_goes_live_that_redis_lost() {
    breaks("build marker", 9, "switches the master");
}

#[test]
fn without_the_compare_of_the_switch_a_paused_recovery_takes_current_back() {
    breaks(
        "compare-and-set of the switch",
        16,
        "from generation 3 to 2",
    );
}

#[test]
fn without_the_compare_of_the_database_a_zombie_takes_its_position_back() {
    breaks("compare-and-set of the database", 7, "from 1/1 to 1/0");
}

#[test]
fn telling_at_the_reply_tells_a_unit_to_two_users() {
    breaks(
        "tell after apply, at the reply (promise 1)",
        3,
        "claims for user 1",
    );
}

#[test]
fn telling_at_the_reply_loses_a_told_win() {
    breaks("tell after apply, at the reply (promise 3)", 4, "");
}

#[test]
fn telling_at_the_acknowledgement_loses_a_told_win() {
    breaks(
        "tell after apply, at the acknowledgement",
        5,
        "reaches the log",
    );
}

#[test]
fn without_the_exact_sold_out_a_unit_turns_out_to_be_free() {
    breaks("exact sold out", 7, "appends the start of generation 2");
}

#[test]
fn without_the_true_void_a_void_claim_wins() {
    breaks("true void", 4, "reaches the log");
}

#[test]
fn without_the_window_an_event_ahead_voids_a_generation_that_lost_nothing() {
    breaks("window", 3, "reaches the log");
}

#[test]
fn without_halting_first_a_win_after_the_outbox_was_read_is_void() {
    breaks(
        "halt before the outbox is read",
        5,
        "appends the start of generation 2",
    );
}

#[test]
fn without_taking_over_what_a_recovery_left_behind_its_outbox_is_void() {
    breaks(
        "take over what another recovery left",
        8,
        "appends the start of generation 2",
    );
}

#[test]
fn without_reading_the_log_after_the_halt_the_outbox_seems_not_to_follow() {
    breaks(
        "read the log after the halt",
        9,
        "appends the start of generation 2",
    );
}

#[test]
fn without_barring_what_is_not_built_yet_a_paused_recovery_sells_in_an_ended_generation() {
    breaks(
        "bar what is not built yet",
        12,
        "appends the start of generation 3",
    );
}

#[test]
fn without_counting_at_the_switch_claims_that_were_lost_meanwhile_are_missing() {
    breaks("the switch counts the claims", 13, "switches the master");
}

#[test]
fn every_variant_has_its_test() {
    let source = include_str!("counterexamples.rs");
    for variant in VARIANTS {
        let named = format!("\"{}\"", variant.name);
        assert!(source.contains(&named), "no test without {}", variant.name);
    }
}
