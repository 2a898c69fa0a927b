use super::*;
use dropgate_domain::{Cause, Halted, Seq};

const WALL: TimeMs = TimeMs(10_000_000_000);

fn halted() -> Condition {
    Condition::Halted(Halted {
        reason: "noscript".into(),
        by: "gateway".into(),
        at: None,
    })
}

fn standing(generation: u32, condition: Condition) -> Standing {
    Standing {
        generation: Generation(generation),
        condition,
        wins: 0,
        starts: vec![None; generation as usize],
    }
}

fn at(instant: Instant) -> Now<'static> {
    Now {
        instant,
        wall: WALL,
        held: None,
        jitter: 1.0,
    }
}

/// The starts of generations, so many ms ago.
fn started(ago_ms: &[u64]) -> Vec<Option<TimeMs>> {
    ago_ms
        .iter()
        .map(|ago| Some(TimeMs(WALL.0 - ago)))
        .collect()
}

#[tokio::test]
async fn a_halt_is_recovered_at_once_and_a_sale_that_sells_is_left_alone() {
    let (config, now) = (WatchConfig::default(), Instant::now());
    let mut memory = Memory::default();
    for condition in [
        Condition::Unknown,
        Condition::NotOpened,
        Condition::Live,
        Condition::Unreachable,
        Condition::Closed,
    ] {
        assert_eq!(
            memory.next(&standing(1, condition), &config, at(now)),
            Next::Nothing
        );
    }
    let ended = Condition::Ended(Cause::ChainBroken { seq: Seq(3) });
    for condition in [halted(), ended] {
        let next = memory.next(&standing(1, condition), &config, at(now));
        assert_eq!(next.word(), "recover", "{next}");
    }
    let hopeless = Condition::Unfollowable("of another release".into());
    assert_eq!(
        memory.next(&standing(1, hopeless), &config, at(now)).word(),
        "hopeless"
    );
}

#[tokio::test]
async fn after_three_recoveries_in_ten_minutes_a_sale_stays_closed_until_somebody_recovers_it() {
    let (config, now) = (WatchConfig::default(), Instant::now());
    let minute = 60_000;
    let with = |ago: &[u64]| Standing {
        starts: started(ago),
        ..standing(ago.len() as u32, halted())
    };
    // The opening is no recovery, and what is older does not count.
    let two = with(&[minute, minute, minute]);
    let old = with(&[30 * minute, 11 * minute, 9 * minute, minute]);
    for fine in [two, old] {
        let next = Memory::default().next(&fine, &config, at(now));
        assert_eq!(next.word(), "recover", "{next}");
    }
    let three = with(&[20 * minute, 9 * minute, 5 * minute, minute]);
    let mut memory = Memory::default();
    assert_eq!(memory.next(&three, &config, at(now)).word(), "stays_closed");
    // It does not begin again by itself when time has passed.
    let later = Now {
        wall: TimeMs(WALL.0 + 60 * minute),
        ..at(now)
    };
    assert_eq!(memory.next(&three, &config, later).word(), "stays_closed");
    // Somebody did: the next trouble is another matter, and counts anew.
    let by_hand = Standing {
        starts: started(&[20 * minute, 9 * minute, 5 * minute, minute, 0]),
        ..standing(5, Condition::Live)
    };
    assert_eq!(memory.next(&by_hand, &config, at(now)), Next::Nothing);
    let again = Standing {
        condition: halted(),
        ..by_hand.clone()
    };
    assert_eq!(memory.next(&again, &config, at(now)).word(), "stays_closed");
    assert_eq!(memory.next(&by_hand, &config, later), Next::Nothing);
    assert_eq!(memory.next(&again, &config, later).word(), "recover");
}

#[tokio::test]
async fn a_generation_that_does_not_go_live_is_given_time_and_more_the_next_time() {
    let (config, now) = (WatchConfig::default(), Instant::now());
    let mut memory = Memory::default();
    let mut patience = config.starting_patience;
    let starting = |generation, wins, since| Standing {
        wins,
        ..standing(generation, Condition::Starting { since })
    };
    for generation in 1..5 {
        let almost = patience - Duration::from_millis(1);
        let next = memory.next(&starting(generation, 0, almost), &config, at(now));
        assert_eq!(next.word(), "wait", "{next}");
        let next = memory.next(&starting(generation, 0, patience), &config, at(now));
        assert_eq!(next.word(), "recover", "{next}");
        patience *= 2;
    }
    // Live for a moment: no longer one of many that failed.
    memory.next(&standing(5, Condition::Live), &config, at(now));
    let first = starting(6, 0, config.starting_patience);
    assert_eq!(memory.next(&first, &config, at(now)).word(), "recover");
    // A large one takes longer to be built.
    let large = starting(7, 1_000_000, config.starting_patience * 3);
    let mut fresh = Memory::default();
    assert_eq!(fresh.next(&large, &config, at(now)).word(), "wait");
}

#[tokio::test]
async fn what_failed_is_tried_again_after_a_pause_that_doubles_and_ends_with_the_generation() {
    let (config, start) = (WatchConfig::default(), Instant::now());
    let mut memory = Memory::default();
    let sale = standing(1, halted());
    let mut now = start;
    let mut pauses = Vec::new();
    for _ in 0..12 {
        assert_eq!(memory.next(&sale, &config, at(now)).word(), "recover");
        memory.failed(at(now));
        let Next::Wait { until, .. } = memory.next(&sale, &config, at(now)) else {
            panic!("no pause")
        };
        pauses.push(until - now);
        now = until;
    }
    assert!(pauses[0] < pauses[1] && pauses[1] < pauses[2], "{pauses:?}");
    assert_eq!(pauses.last(), Some(&RETRY_PAUSE.1));
    memory.failed(at(now));
    let other = standing(2, halted());
    assert_eq!(memory.next(&other, &config, at(now)).word(), "recover");
}

#[tokio::test]
async fn a_watch_that_is_held_recovers_nothing_and_says_what_it_would() {
    let config = WatchConfig::default();
    let held = Now {
        held: Some("watch.hold"),
        ..at(Instant::now())
    };
    let next = Memory::default().next(&standing(1, halted()), &config, held);
    assert_eq!(next.word(), "held");
    assert!(next.to_string().contains("noscript"), "{next}");
    assert!(next.to_string().contains("watch.hold"), "{next}");
}
