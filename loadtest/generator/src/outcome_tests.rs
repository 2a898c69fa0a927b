use proptest::prelude::*;

use super::*;

const EARLY: Clock = Clock {
    elapsed: Duration::from_millis(5),
    budget: Duration::from_secs(60),
};
const LATE: Clock = Clock {
    elapsed: Duration::from_secs(60),
    budget: Duration::from_secs(60),
};

fn answer(status: u16, body: &str) -> Answer {
    Answer {
        status,
        location: None,
        retry_after: None,
        body: serde_json::from_str(body).ok(),
    }
}

fn pending() -> Answer {
    Answer {
        location: Some("/v1/sales/s/claims/1-2-ab".to_owned()),
        ..answer(202, r#"{"claim":"1-2-ab","status":"pending"}"#)
    }
}

fn after(seconds: u64, answer: Answer) -> Answer {
    Answer {
        retry_after: Some(Duration::from_secs(seconds)),
        ..answer
    }
}

/// A journey whose last answer was 202.
fn polling() -> Journey {
    let mut journey = Journey::default();
    journey.sending();
    assert!(matches!(
        journey.step(&Ok(pending()), EARLY, 0.5),
        Step::Ask { .. }
    ));
    assert_eq!(
        *journey.ask(),
        Ask::Poll("/v1/sales/s/claims/1-2-ab".into())
    );
    journey.sending();
    journey
}

fn end_of(mut journey: Journey, seen: Result<Answer, Broken>) -> End {
    match journey.step(&seen, EARLY, 0.5) {
        Step::Done(end) => end,
        Step::Ask { .. } => panic!("{seen:?} is not the end"),
    }
}

fn won(again: bool) -> End {
    End::Won(Win {
        claim: "1-2-ab".to_owned(),
        unit: 2,
        again,
    })
}

const WON: &str = r#"{"claim":"1-2-ab","unit":2,"status":"won","label":null}"#;
const SOLD_OUT: &str = r#"{"code":"sold_out","status":409,"title":"Sold out"}"#;

#[test]
fn a_win_is_final_whether_new_again_or_polled() {
    assert_eq!(end_of(Journey::default(), Ok(answer(201, WON))), won(false));
    assert_eq!(end_of(Journey::default(), Ok(answer(200, WON))), won(true));
    assert_eq!(end_of(polling(), Ok(answer(200, WON))), won(false));
}

#[test]
fn sold_out_is_final_as_a_409_and_as_a_polled_status() {
    assert_eq!(
        end_of(Journey::default(), Ok(answer(409, SOLD_OUT))),
        End::SoldOut
    );
    assert_eq!(end_of(polling(), Ok(answer(409, SOLD_OUT))), End::SoldOut);
    let polled = answer(200, r#"{"claim":"1-2-ab","status":"sold_out"}"#);
    assert_eq!(end_of(polling(), Ok(polled)), End::SoldOut);
}

#[test]
fn every_other_4xx_is_final_with_its_code() {
    for status in [400, 401, 403, 404, 409, 413, 422, 429] {
        for journey in [Journey::default(), polling()] {
            let end = end_of(journey, Ok(answer(status, r#"{"code":"some_code"}"#)));
            let code = Some("some_code".to_owned());
            assert_eq!(end, End::Refused { status, code });
        }
    }
    let end = end_of(Journey::default(), Ok(answer(404, "<html>")));
    assert_eq!(
        end,
        End::Refused {
            status: 404,
            code: None
        }
    );
}

#[test]
fn an_answer_that_the_api_does_not_have_is_an_error_at_once() {
    let bad = [
        answer(201, "garbage"),
        answer(201, r#"{"claim":"x","status":"won"}"#),
        answer(201, r#"{"unit":1,"status":"won"}"#),
        answer(201, r#"{"claim":"x","unit":1,"status":"pending"}"#),
        answer(200, "garbage"),
        answer(200, r#"{"claim":"x","unit":1}"#),
        answer(202, "{}"),
        answer(204, ""),
        answer(302, ""),
        answer(409, "garbage"),
    ];
    for answer in bad {
        let end = end_of(Journey::default(), Ok(answer.clone()));
        assert!(
            matches!(end, End::Error(Fault::BadAnswer(_))),
            "{answer:?}: {end:?}"
        );
    }
    assert!(matches!(
        end_of(polling(), Ok(answer(200, "garbage"))),
        End::Error(Fault::BadAnswer(_))
    ));
}

#[test]
fn unavailable_is_tried_again_with_a_claim_after_retry_after() {
    let mut journey = Journey::default();
    for _ in 0..3 {
        journey.sending();
        let seen = Ok(after(2, answer(503, r#"{"code":"busy"}"#)));
        let Step::Ask { after, void } = journey.step(&seen, EARLY, 0.5) else {
            panic!("503 is not the end");
        };
        assert!(after >= Duration::from_secs(2) && after <= Duration::from_millis(2500));
        assert!(!void);
        assert_eq!(*journey.ask(), Ask::Claim);
    }
    assert_eq!((journey.claims_sent(), journey.polls_sent()), (3, 0));
}

#[test]
fn void_is_claimed_again_from_a_claim_and_from_a_poll() {
    for (mut journey, answer) in [
        (Journey::default(), answer(503, r#"{"code":"void"}"#)),
        (Journey::default(), answer(200, r#"{"status":"void"}"#)),
        (polling(), answer(503, r#"{"code":"void"}"#)),
        (
            polling(),
            answer(200, r#"{"claim":"1-2-ab","status":"void"}"#),
        ),
    ] {
        let step = journey.step(&Ok(answer), EARLY, 0.5);
        assert!(matches!(step, Step::Ask { void: true, .. }), "{step:?}");
        assert_eq!(*journey.ask(), Ask::Claim);
    }
}

#[test]
fn a_poll_that_fails_is_polled_again() {
    for seen in [
        Ok(answer(503, r#"{"code":"busy"}"#)),
        Ok(answer(500, "")),
        Err(Broken::Reset),
    ] {
        let mut journey = polling();
        let step = journey.step(&seen, EARLY, 0.5);
        assert!(matches!(step, Step::Ask { void: false, .. }), "{step:?}");
        assert!(matches!(journey.ask(), Ask::Poll(_)));
    }
}

#[test]
fn a_broken_connection_is_claimed_again_soon() {
    let mut journey = Journey::default();
    let step = journey.step(&Err(Broken::Refused), EARLY, 0.5);
    let Step::Ask { after, void: false } = step else {
        panic!("{step:?}");
    };
    assert!(after <= RETRY_FIRST * 2, "{after:?}");
    assert_eq!(*journey.ask(), Ask::Claim);
}

#[test]
fn a_budget_that_is_over_ends_as_what_was_told_last() {
    let end = |mut journey: Journey, seen| match journey.step(&seen, LATE, 0.5) {
        Step::Done(end) => end,
        Step::Ask { .. } => panic!("{seen:?} is tried again after the budget"),
    };
    assert_eq!(end(Journey::default(), Ok(pending())), End::Pending);
    assert_eq!(end(polling(), Ok(pending())), End::Pending);
    let busy = answer(503, r#"{"code":"busy"}"#);
    assert_eq!(
        end(Journey::default(), Ok(busy)),
        End::Error(Fault::Unavailable)
    );
    let void = answer(200, r#"{"status":"void"}"#);
    assert_eq!(end(polling(), Ok(void)), End::Error(Fault::Void));
    assert_eq!(
        end(Journey::default(), Ok(answer(500, ""))),
        End::Error(Fault::Server)
    );
    assert_eq!(
        end(Journey::default(), Err(Broken::Timeout)),
        End::Error(Fault::Broken(Broken::Timeout))
    );
}

#[test]
fn a_retry_after_beyond_the_budget_ends_the_click() {
    let mut journey = Journey::default();
    let seen = Ok(after(61, answer(503, "{}")));
    assert_eq!(
        journey.step(&seen, EARLY, 0.0),
        Step::Done(End::Error(Fault::Unavailable))
    );
}

#[test]
fn polls_without_retry_after_start_at_100_ms_and_grow_to_2_s() {
    let mut journey = Journey::default();
    let mut waits = Vec::new();
    for _ in 0..20 {
        match journey.step(&Ok(pending()), EARLY, 0.5) {
            Step::Ask { after, .. } => waits.push(after),
            Step::Done(end) => panic!("{end:?}"),
        }
    }
    assert_eq!(waits[0], POLL_FIRST);
    assert!(waits.is_sorted());
    assert_eq!(*waits.last().unwrap(), POLL_LONGEST);
}

proptest! {
    #[test]
    fn a_wait_told_by_the_server_is_never_cut_short(
        seconds in 1_u64..30, draw in 0.0_f64..1.0, status in prop::sample::select(vec![202_u16, 503, 500]),
    ) {
        let told = Duration::from_secs(seconds);
        let seen = Ok(after(seconds, Answer { status, ..pending() }));
        match Journey::default().step(&seen, EARLY, draw) {
            Step::Ask { after, .. } => prop_assert!(after >= told && after <= told.mul_f64(1.25)),
            Step::Done(end) => prop_assert!(false, "{end:?}"),
        }
    }

    #[test]
    fn no_request_starts_after_the_budget(
        elapsed_ms in 0_u64..90_000, seconds in prop::option::of(0_u64..70), draw in 0.0_f64..1.0,
    ) {
        let clock = Clock { elapsed: Duration::from_millis(elapsed_ms), budget: Duration::from_secs(60) };
        let retry_after = seconds.map(Duration::from_secs);
        let seen = Ok(Answer { status: 503, retry_after, ..Answer::default() });
        if let Step::Ask { after, .. } = Journey::default().step(&seen, clock, draw) {
            prop_assert!(clock.elapsed + after <= clock.budget);
        }
    }
}
