//! With every mechanism in force, nothing breaks.

use crate::{limits, path};
use dropgate_model::{Bounds, Must, Size, WORLDS, check_unguarded};

/// Looks at the quick worlds; the others are for `dropgate-model`.
#[test]
fn nothing_breaks_in_the_quick_worlds_and_what_should_happen_there_does() {
    for world in WORLDS.iter().filter(|world| world.size == Size::Quick) {
        let checked = world.check(limits());
        println!(
            "{}: {} states, {} different, {:?}",
            world.name, checked.states, checked.unique, checked.took
        );
        assert!(checked.whole, "{}: {}", world.name, path(&checked));
        for what in world.shows {
            let seen = &checked.seen;
            assert!(
                seen.contains(what),
                "{}: {what:?} is not in {seen:?}",
                world.name
            );
        }
    }
}

/// The guard of the ledger is a guard: without it nothing else breaks.
#[test]
fn that_the_state_allows_every_event_is_a_theorem() {
    let bounds = Bounds {
        recoveries: 1,
        losses: 1,
        ..Bounds::of_calls(2)
    };
    let checked = check_unguarded(bounds, limits());
    assert!(checked.whole, "{}", path(&checked));
}

#[test]
fn every_world_and_every_property_has_a_name_of_its_own() {
    let mut names: Vec<&str> = WORLDS.iter().map(|world| world.name).collect();
    names.extend(Must::ALL.map(Must::name));
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all);
}
