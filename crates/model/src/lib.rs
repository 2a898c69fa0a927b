//! The protocol as a small state machine, checked exhaustively; and a judge of real runs.
//!
//! A test finds what somebody thought of. Here every order of steps is looked at, within bounds
//! that are stated: two gateways, two or three users, up to three claims, recoveries, losses,
//! failovers, each between any two steps of the others. The log is judged by the real ledger
//! ([`dropgate_domain::Ledger`]), so that what is shown is shown of the code that is shipped.
//!
//! ```text
//! dropgate-model                     every world of the usual size, with its figures
//! dropgate-model --deep              and those that take minutes each
//! dropgate-model --only failover     one of them
//! dropgate-model --counterexamples   each mechanism left out, and what goes wrong then
//! ```
//!
//! # What is modelled
//!
//! - **Log**: a list of records. Each list that occurs is folded once, by the real ledger, from
//!   its opening; a reader is a length of it. A publication is on its way from the moment that a
//!   gateway has the event until it lands, at any time, in any order, once more than it was made,
//!   or never.
//! - **Redis**: `current`, and of each generation its state, marker, claims and outbox; the scripts
//!   that it has, by nonce; each script of `lua/` as one step with its checks in the same order.
//!   With one server, its disk holds what it had at any earlier time, and it comes back with that
//!   or with nothing, with its scripts or without. With two, the replica holds what the master had
//!   at any earlier time and is made the master; the former one takes itself for the master still,
//!   and carries out calls and commands, until it follows again with the scripts that it had.
//! - **Gateways** are what they have read. A reply comes, or is lost with the gateway that
//!   waited for it; which is a crash between Redis and the log. What a gateway's ledger shows is
//!   taken as told, to everybody, at once: nobody could tell more, or sooner.
//! - **Recoveries**, each begun at any time and for no reason, step by step as
//!   `crates/engine/src/recover.rs` takes them; each may stop for ever, or go on after anything.
//! - **Order-writers**: two, each a reader with a notion of the database's position, and the
//!   transaction that compares it. Either is the zombie.
//!
//! # What is left out
//!
//! Time: the deadline of a call, the latch and freshness only ever forbid, so the model, which
//! does without, can do all that the code can and more. `SaleHalted` and the local halt likewise:
//! here every gateway goes on claiming in a generation until it has read that it ended. Several
//! units a user, opening and closing times, keys. The index, and topics that are made anew. Redis
//! takes a command whole or not at all. The log keeps what it acknowledged: that is assumed.
//!
//! A user, a gateway and a recovery are like any other, so of worlds that differ by a renaming one
//! is looked at. What is written to a disk or replica is noted only if it is read later.
//!
//! # What must hold
//!
//! See [`Must`]. "Every pending claim is resolvable" and "a halted sale can be reopened" are about
//! what may come. They are not checked as liveness, which would need fairness, but as invariants:
//! in every state of a world that asks for it, one way to a good end is walked with nothing more
//! going wrong, the way that the code takes (`mend.rs`).
//!
//! # Reading a counterexample
//!
//! Each line is a step. An event is `[generation/seq unit u to user n, call c]`; after a record
//! landed, the whole log is shown, with how far it is applied; after a gateway read, what users
//! are told from then on. The last step breaks the property.
//!
//! # What each mechanism is for
//!
//! Each is left out by a test of `tests/it/counterexamples.rs`, which prints the path. Where a
//! test of the real code shows the same, it is named; "none" is a gap to fill.
//!
//! | left out | breaks | the real code |
//! |---|---|---|
//! | first record wins | 3: a told win is kept | domain `a_number_given_twice_ends_the_generation_at_the_second_record`, order-writer `void_events_are_not_written` |
//! | chain | the guard is never needed; without the guard 2: one unit a user | domain `without_the_chain_two_histories_are_mixed_and_only_the_guard_sees_it` |
//! | strict order | no void without a loss | domain `order_and_repetition_do_not_matter` |
//! | generation cut | no void without a loss | domain `without_the_cut_a_late_record_ends_the_generation_after_its_own` |
//! | tip | every pending claim is resolvable | engine `an_event_left_behind_by_a_dead_gateway_is_relayed` |
//! | build marker | a generation goes live as the ledger has it | admission `only_a_built_generation_becomes_current_and_never_an_earlier_one` |
//! | compare-and-set of the switch | current never goes back | the same |
//! | compare-and-set of the database | 5: the database agrees with the log | store `a_zombies_write_changes_nothing` |
//! | tell after apply, at the reply | 1: never oversell, 3: a told win is kept | `make chaos-weakened`, told_at_reply |
//! | tell after apply, at the acknowledgement | 3: a told win is kept | `make chaos-weakened`, told_at_ack |
//! | exact sold out | sold out is true when said | engine `sold_out_is_not_told_while_the_last_win_is_not_in_the_log` |
//! | true void | void is true when said | engine `a_win_that_redis_lost_on_its_way_is_pending_and_then_won_and_never_void` |
//! | window | no void without a loss | engine `a_full_window_refuses_and_empties` |
//! | halt before the outbox is read | no void without a loss | engine `what_waited_in_the_outbox_is_won_and_not_void` |
//! | take over what another recovery left | no void without a loss | engine `a_recovery_that_is_given_up_or_paused_at_any_step_ends_the_same` |
//! | read the log after the halt | no void without a loss | none |
//! | bar what is not built yet | no void without a loss | admission `only_a_built_generation_becomes_current_and_never_an_earlier_one` |
//! | the switch counts the claims | a generation goes live as the ledger has it | admission `a_generation_that_lost_claims_while_it_was_built_is_refused` |
//!
//! The last four were not known before: the model found them. What it also found is that a claim
//! whose number was given, and lost, could stay pending for ever after the close; the ledger calls
//! it void now. And that the guard of the ledger is one: without it, nothing else breaks.
//!
//! # Judging a real run
//!
//! [`replay`] takes the log of a run and what clients were told, and finds the first step that the
//! protocol could not have made. It does not ask the ledger.

mod arena;
mod bounds;
mod check;
mod history;
mod mend;
mod properties;
mod records;
mod recovery;
mod redis;
pub mod replay;
mod sale;
mod seen;
mod state;
mod story;
mod variants;
#[cfg(test)]
mod walks;
mod worlds;
mod writer;

pub use bounds::{Bounds, Off, RECOVERIES_MAX, USERS_MAX};
pub use check::{Checked, Limits, check, find};
pub use properties::Must;
pub use sale::Sale;
pub use seen::Seen;
pub use state::{Action, State};
pub use variants::{Mechanism, VARIANTS, Variant, check_unguarded};
pub use worlds::{Named, Size, WORLDS};
