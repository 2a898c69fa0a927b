//! Every way that a click can end, against a scripted server.

use std::collections::{HashMap, HashSet};
use std::net::TcpListener;
use std::sync::Mutex;
use std::time::Duration;

use crate::generator::run;
use crate::server::{Asked, Reply, SOLD_OUT, Server, answer, pending, retry_after, win, win_of};

const TEN: [&str; 4] = ["--users", "10", "--rate", "200"];

fn with(more: &[&'static str]) -> Vec<&'static str> {
    TEN.iter().chain(more).copied().collect()
}

/// A sale of `stock` units, limit 1, as the API tells it.
fn sale(stock: u64) -> impl Fn(&Asked) -> Reply + Send + Sync {
    let owners = Mutex::new(HashMap::new());
    move |asked| {
        let mut owners = owners.lock().unwrap();
        let next = owners.len() as u64 + 1;
        let (unit, status) = match owners.get(&asked.user) {
            Some(unit) => (*unit, 200),
            None if next > stock => return answer(409, SOLD_OUT),
            None => (next, 201),
        };
        owners.insert(asked.user.clone(), unit);
        win(status, &format!("1-{unit}-ab"), unit)
    }
}

#[test]
fn a_sale_is_counted_as_it_was_told() {
    let server = Server::start(sale(30));
    let run = run(
        &server.url(),
        &[
            "--users",
            "100",
            "--rate",
            "400",
            "--repeat-share",
            "1",
            "--repeat-within",
            "0.1",
        ],
    );
    run.adds_up();
    assert_eq!(run.code, Some(0), "{:#} {}", run.report, run.stderr);
    assert_eq!(run.count("attempts"), 200);
    assert_eq!(run.count("repeats"), 100);
    assert_eq!(run.count("won"), 30);
    assert_eq!(run.count("again"), 30);
    assert_eq!(run.count("sold_out"), 140);
    assert_eq!(run.count("distinct_winners"), 30);
    assert_eq!(run.count("repeats_same_claim"), 30);
    assert_eq!(run.count("repeats_other_claim"), 0);
    assert_eq!(run.count("units.min"), 1);
    assert_eq!(run.count("units.max"), 30);
    assert_eq!(run.count("units.distinct"), 30);
    assert_eq!(run.count("http.201"), 30);
    assert_eq!(run.count("latency_ms.won.count"), 30);
    assert!(run.number("latency_ms.sold_out.p999") > 0.0);
    assert!(run.count("peak_rss_bytes.loadtest") > 1_000_000);
    assert_eq!(run.told("won").count(), 30);
    assert_eq!(run.told("again").count(), 30);
    let units: HashSet<_> = run.told("won").map(|line| line["unit"].as_u64()).collect();
    assert_eq!(units.len(), 30);
    for line in &run.told {
        assert_eq!(line["sale"], "s1");
        assert_eq!(line["gateway"], server.url());
        assert!(line["done_ms"].as_u64() >= line["intended_ms"].as_u64());
    }
}

#[test]
fn a_repeat_has_the_key_that_was_asked_for() {
    for (which, keys) in [("same", 10), ("fresh", 20), ("none", 0)] {
        let server = Server::start(sale(10));
        let run = run(
            &server.url(),
            &with(&[
                "--repeat-share",
                "1",
                "--repeat-within",
                "0.1",
                "--repeat-key",
                which,
            ]),
        );
        assert_eq!(run.count("repeats_same_claim"), 10);
        let sent: HashSet<_> = server
            .asked()
            .into_iter()
            .filter_map(|asked| asked.key)
            .collect();
        assert_eq!(sent.len(), keys, "{which}");
    }
}

#[test]
fn pending_is_polled_with_the_same_bearer_until_it_is_won() {
    let server = Server::start(|asked: &Asked| match asked.before {
        0..3 => pending(asked),
        _ => win_of(asked, 200),
    });
    let run = run(&server.url(), &TEN);
    run.adds_up();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!((run.count("won"), run.count("retries.polls")), (10, 30));
    assert_eq!(run.count("retries.claims"), 0);
    for asked in server.asked() {
        assert_eq!(asked.poll, asked.before > 0);
        if asked.poll {
            // The user is the one of the token.
            assert_eq!(asked.path, format!("/v1/sales/s1/claims/of-{}", asked.user));
        }
    }
    // The first poll comes after 100 ms, a quarter up or down.
    assert!(run.number("latency_ms.won.p50") >= 75.0);
}

#[test]
fn void_is_claimed_again_with_the_same_key_and_told() {
    let server = Server::start(|asked: &Asked| match asked.before {
        0 => pending(asked),
        1 => answer(200, r#"{"claim":"0-0-ab","status":"void"}"#),
        _ => answer(409, SOLD_OUT),
    });
    let run = run(&server.url(), &TEN);
    run.adds_up();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.count("sold_out"), 10);
    assert_eq!(run.count("retries.voids"), 10);
    assert_eq!(run.count("retries.claims"), 10);
    let mut keys = HashMap::<_, HashSet<_>>::new();
    for asked in server.asked().into_iter().filter(|asked| !asked.poll) {
        keys.entry(asked.user)
            .or_default()
            .insert(asked.key.unwrap());
    }
    assert!(
        keys.len() == 10 && keys.values().all(|keys| keys.len() == 1),
        "{keys:?}"
    );
    assert!(
        run.told("void")
            .all(|line| line["attempt_no"] == 1 && line["claim"] == "0-0-ab")
    );
    assert!(run.told("sold_out").all(|line| line["attempt_no"] == 2));
    assert_eq!(run.told("void").count(), 10);
}

#[test]
fn unavailable_is_tried_again_not_before_retry_after() {
    let server = Server::start(|asked: &Asked| match asked.before {
        0 => retry_after(1, 503, r#"{"code":"busy"}"#),
        _ => win_of(asked, 201),
    });
    let run = run(&server.url(), &TEN);
    run.adds_up();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!((run.count("won"), run.count("retries.claims")), (10, 10));
    assert_eq!(run.count("http.503"), 10);
    let mut first = HashMap::new();
    for asked in server.asked() {
        match first.get(&asked.user) {
            None => drop(first.insert(asked.user, asked.at)),
            Some(before) => assert!(asked.at - *before >= Duration::from_secs(1)),
        }
    }
    // The latency runs from the click, through the refusal, to the win.
    assert!(run.number("latency_ms.won.p50") >= 1000.0);
}

#[test]
fn a_reset_connection_is_counted_and_the_claim_sent_again() {
    let server = Server::start(|asked: &Asked| match asked.before {
        0 => Reply::Reset,
        _ => win_of(asked, 201),
    });
    let run = run(&server.url(), &TEN);
    run.adds_up();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.count("won"), 10);
    assert_eq!(run.count("connection_errors.total"), 10);
    let kinds = &run.report["connection_errors"]["by_kind"];
    assert!(
        kinds["reset"].is_u64() || kinds["closed"].is_u64(),
        "{kinds}"
    );
    assert_eq!(run.count("retries.claims"), 10);
}

#[test]
fn an_answer_that_does_not_come_is_a_timeout() {
    let server = Server::start(|asked: &Asked| match asked.before {
        0 => Reply::Hang(Duration::from_secs(30)),
        _ => win_of(asked, 201),
    });
    let run = run(&server.url(), &with(&["--request-timeout", "1"]));
    run.adds_up();
    assert_eq!(run.count("won"), 10);
    assert!(run.count("connection_errors.by_kind.timeout") >= 10);
}

#[test]
fn a_server_that_never_answers_cannot_hold_a_run_beyond_its_bound() {
    let server = Server::start(|_: &Asked| Reply::Hang(Duration::from_secs(600)));
    let limits = [
        "--connections",
        "2",
        "--request-timeout",
        "0.5",
        "--retry-budget",
        "1",
    ];
    let run = run(&server.url(), &with(&limits));
    run.adds_up();
    assert_eq!((run.code, run.count("errors")), (Some(1), 10));
    // Two connections could ask a few times each; who was not reached is told.
    assert!(run.count("codes.error_not_sent") >= 1, "{:#}", run.report);
    assert!(run.count("codes.error_timeout") >= 1, "{:#}", run.report);
}

#[test]
fn answers_that_the_api_does_not_have_are_errors() {
    for (status, body) in [
        (201, "<html>won!</html>"),
        (201, "{}"),
        (200, "[]"),
        (409, ""),
        (302, ""),
    ] {
        let server = Server::start(move |_: &Asked| answer(status, body));
        let run = run(&server.url(), &TEN);
        run.adds_up();
        assert_eq!(
            (run.code, run.count("errors")),
            (Some(1), 10),
            "{status} {body}"
        );
        assert_eq!(run.count("codes.error_bad_answer"), 10);
        assert_eq!(run.told("error").count(), 10);
    }
}

#[test]
fn other_refusals_are_final() {
    let server = Server::start(|_: &Asked| answer(401, r#"{"code":"token_expired"}"#));
    let run = run(&server.url(), &TEN);
    run.adds_up();
    assert_eq!((run.code, run.count("other_4xx")), (Some(0), 10));
    assert_eq!(run.count("codes.token_expired"), 10);
    assert!(
        run.told("refused")
            .all(|line| line["code"] == "token_expired")
    );
}

#[test]
fn what_is_not_final_when_the_budget_is_over_is_said_so() {
    let budget = ["--retry-budget", "0.5"];
    let server = Server::start(pending);
    let run_pending = run(&server.url(), &with(&budget));
    run_pending.adds_up();
    assert_eq!(
        (run_pending.code, run_pending.count("pending")),
        (Some(1), 10)
    );
    let server = Server::start(|_: &Asked| answer(503, r#"{"code":"halted"}"#));
    let run_halted = run(&server.url(), &with(&budget));
    run_halted.adds_up();
    assert_eq!((run_halted.code, run_halted.count("errors")), (Some(1), 10));
    assert_eq!(run_halted.count("codes.error_unavailable"), 10);
}

#[test]
fn nobody_listening_is_counted_as_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", taken.local_addr().unwrap());
    drop(taken);
    let run = run(&url, &with(&["--retry-budget", "0.5"]));
    run.adds_up();
    assert_eq!(
        (run.code, run.count("errors")),
        (Some(1), 10),
        "{}",
        run.stderr
    );
    assert!(run.count("connection_errors.by_kind.refused") >= 1);
}

#[test]
fn a_location_on_another_server_is_not_followed() {
    let other = Server::start(|asked: &Asked| win_of(asked, 200));
    let location = format!("{}/v1/sales/s1/claims/x", other.url());
    let server = Server::start(move |_: &Asked| {
        Reply::Answer(202, Some(("location", location.clone())), "{}".to_owned())
    });
    let run = run(&server.url(), &TEN);
    assert_eq!((run.code, run.count("errors")), (Some(1), 10));
    assert_eq!(other.connections(), 0);
}

#[test]
fn a_repeat_that_gets_another_claim_is_a_broken_promise() {
    let units = Mutex::new(0);
    let server = Server::start(move |_: &Asked| {
        let mut units = units.lock().unwrap();
        *units += 1;
        win(201, &format!("1-{units}-ab"), *units)
    });
    let run = run(&server.url(), &with(&["--repeat-share", "0.5"]));
    assert_eq!((run.code, run.count("repeats_other_claim")), (Some(1), 5));
}

#[test]
fn a_unit_told_to_two_users_is_a_broken_promise() {
    let server = Server::start(|_: &Asked| win(201, "1-1-ab", 1));
    let run = run(&server.url(), &TEN);
    assert_eq!(
        (run.code, run.count("units.told_to_several_users")),
        (Some(1), 1)
    );
}

#[test]
fn a_winner_told_sold_out_afterwards_is_a_broken_promise() {
    let server = Server::start(|asked: &Asked| match asked.before {
        0 => win_of(asked, 201),
        _ => answer(409, SOLD_OUT),
    });
    // A repeat that overtakes its first click's answer does not count, so most
    // do, and at least one.
    let run = run(
        &server.url(),
        &[
            "--users",
            "50",
            "--rate",
            "100",
            "--repeat-share",
            "1",
            "--repeat-within",
            "2",
        ],
    );
    assert_eq!(run.code, Some(1));
    assert!(run.count("repeats_no_claim") >= 1, "{:#}", run.report);
}
