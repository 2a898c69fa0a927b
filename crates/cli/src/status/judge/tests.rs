use super::super::seen::{Gateway, Ready};
use super::*;

fn standing(condition: &'static str) -> Asked<Standing> {
    Asked::Known(Standing {
        seen: StandingSeen {
            condition,
            why: Some("because".to_owned()),
            halted_by: None,
            halted_at: None,
            begun_at: None,
        },
        generation: 1,
        wins: 0,
        stock: 1,
        recoveries: Recoveries {
            lately: 0,
            max: 3,
            within: "10m".to_owned(),
        },
        opens_at: Some(Rfc3339(TimeMs(1_000))),
        closes_at: None,
        closed_at: None,
    })
}

fn seen(condition: &'static str, readiness: &[Option<bool>]) -> Status {
    let silent = || "silent".to_owned();
    let gateway = |ready: &Option<bool>| Gateway {
        url: "http://h".to_owned(),
        ready: match ready {
            Some(ready) => Asked::Known(Ready {
                ready: *ready,
                reasons: Vec::new(),
            }),
            None => Asked::Unknown(silent()),
        },
        sale: Asked::Unknown(silent()),
    };
    Status {
        sale: "s".to_owned(),
        at: Rfc3339(TimeMs(0)),
        standing: standing(condition),
        next: Asked::Unknown(silent()),
        log: Asked::Unknown(silent()),
        redis: Asked::Unknown(silent()),
        database: Asked::Unknown(silent()),
        gateways: readiness.iter().map(gateway).collect(),
        watch: None,
        trouble: Vec::new(),
        anybody_answered: true,
    }
}

#[test]
fn a_sale_is_in_trouble_when_it_should_sell_and_does_not() {
    let at = |now| {
        move |condition, readiness: &[Option<bool>]| {
            trouble(&seen(condition, readiness), true, TimeMs(now))
        }
    };
    let (before, after) = (at(500), at(2_000));
    for condition in ["live", "closed"] {
        assert_eq!(after(condition, &[Some(true), None]), Vec::<String>::new());
    }
    assert_eq!(before("not_opened", &[]), Vec::<String>::new());
    assert_eq!(after("not_opened", &[]).len(), 1, "it should be open");
    for condition in [
        "halted",
        "ended",
        "starting",
        "unreachable",
        "unfollowable",
        "unknown",
    ] {
        let told = after(condition, &[Some(true)]);
        assert_eq!(told, [format!("it is {condition}: because")]);
    }
    let unknown = Status {
        standing: Asked::Unknown("the log is silent".to_owned()),
        ..seen("live", &[])
    };
    assert_eq!(trouble(&unknown, false, TimeMs(0)).len(), 1);
}

#[test]
fn a_live_sale_that_no_gateway_sells_is_in_trouble() {
    let told = |readiness: &[Option<bool>], named| {
        !trouble(&seen("live", readiness), named, TimeMs(2_000)).is_empty()
    };
    assert!(told(&[Some(false), Some(false)], false));
    assert!(told(&[Some(false), None], false));
    assert!(!told(&[Some(false), Some(true)], true));
    assert!(told(&[None], true), "it was named, and does not answer");
    assert!(!told(&[None], false), "it was a guess");
}

#[test]
fn versions_are_read_as_they_are_written() {
    let at = (Generation(3), Seq(17));
    assert_eq!(parsed(&version(at.0, at.1)), Some(at));
    for bad in ["", "3", "3.x", "x.3"] {
        assert_eq!(parsed(bad), None, "{bad}");
    }
}
