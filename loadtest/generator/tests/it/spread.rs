//! How traffic is spread: gateways, source addresses, connections.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use crate::generator::run;
use crate::server::{Asked, Server, win_of};

fn won(asked: &Asked) -> crate::server::Reply {
    win_of(asked, 201)
}

#[test]
fn gateways_get_clicks_in_turn() {
    let (one, two) = (Server::start(won), Server::start(won));
    let targets = format!("{},{}", one.url(), two.url());
    let run = run(
        &targets,
        &["--users", "200", "--rate", "400", "--connections", "32"],
    );
    run.adds_up();
    assert_eq!(run.count("won"), 200);
    let counts = (one.asked().len(), two.asked().len());
    assert!(counts.0 >= 50 && counts.1 >= 50, "{counts:?}");
}

/// Says so often that it is not ready, and from then on that it is. Gives its URL.
fn unready_at_first(times: usize) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/readyz", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for nth in 0.. {
            let (stream, _) = listener.accept().unwrap();
            let mut lines = BufReader::new(&stream).lines();
            let first = lines.next().unwrap().unwrap();
            assert_eq!(first, "GET /readyz HTTP/1.1");
            while lines
                .next()
                .is_some_and(|line| line.is_ok_and(|line| !line.is_empty()))
            {}
            let status = if nth < times { "503 Not" } else { "200 OK" };
            let head = "Connection: close\r\nContent-Length: 0\r\n\r\n";
            write!(&stream, "HTTP/1.1 {status}\r\n{head}").unwrap();
        }
    });
    url
}

#[test]
fn a_gateway_that_says_it_is_not_ready_is_left_out_until_it_is() {
    let (one, two) = (Server::start(won), Server::start(won));
    let targets = format!("{},{}", one.url(), two.url());
    let readiness = format!("{},{}", unready_at_first(0), unready_at_first(12));
    let run = run(
        &targets,
        &[
            "--readiness",
            &readiness,
            "--readiness-interval",
            "0.05",
            "--users",
            "600",
            "--rate",
            "400",
            "--connections",
            "8",
        ],
    );
    run.adds_up();
    assert_eq!(run.count("won"), 600);
    let changes = run.report["readiness"].as_array().unwrap();
    let ready: Vec<_> = changes.iter().map(|change| &change["ready"]).collect();
    assert_eq!(ready, [false, true], "{changes:?}");
    let at = |nth: usize| changes[nth]["at_ms"].as_u64().unwrap();
    let by_two = |line: &&serde_json::Value| line["gateway"] == two.url();
    let asked_two: Vec<_> = run.told("won").filter(by_two).collect();
    // What was on its way when it was noticed may be answered just after.
    let meanwhile = (at(0) + 100)..at(1);
    let left_out = asked_two
        .iter()
        .all(|line| !meanwhile.contains(&line["done_ms"].as_u64().unwrap()));
    assert!(
        left_out && asked_two.len() >= 50,
        "{asked_two:?} {changes:?}"
    );
    assert!(asked_two.len() < 300);
}

#[test]
fn readiness_is_asked_of_every_target_or_of_none() {
    let one = Server::start(won);
    let run = run(
        &one.url(),
        &[
            "--readiness",
            "http://127.0.0.1:1,http://127.0.0.1:2",
            "--rate",
            "9",
        ],
    );
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(
        run.stderr.contains("2 URLs for 1 targets"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_gateway_that_is_gone_costs_nobody_their_answer() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone_url = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    for more in [&["--rate", "400", "--connections", "32"][..], &["--spike"]] {
        let server = Server::start(won);
        let args: Vec<_> = ["--users", "200"].iter().chain(more).copied().collect();
        let run = run(&format!("{gone_url},{}", server.url()), &args);
        run.adds_up();
        assert_eq!(
            (run.code, run.count("won")),
            (Some(0), 200),
            "{:#}",
            run.report
        );
        assert!(run.count("connection_errors.by_kind.refused") >= 1);
    }
}

#[test]
fn connections_come_from_several_loopback_addresses_and_are_kept() {
    let server = Server::start(won);
    let run = run(
        &server.url(),
        &[
            "--users",
            "300",
            "--rate",
            "600",
            "--connections",
            "16",
            "--sources",
            "4",
        ],
    );
    assert_eq!(run.count("won"), 300);
    let peers: HashSet<_> = server
        .asked()
        .iter()
        .map(|asked| asked.peer.to_string())
        .collect();
    let expected = (2..6).map(|last| format!("127.0.0.{last}")).collect();
    assert_eq!(peers, expected);
    assert!(server.connections() <= 16, "{}", server.connections());
    assert_eq!(run.count("connections_opened"), server.connections());
}

#[test]
fn in_a_spike_every_click_has_a_connection_of_its_own() {
    let server = Server::start(won);
    let run = run(
        &server.url(),
        &["--users", "300", "--repeat-share", "0.1", "--spike"],
    );
    run.adds_up();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(run.count("attempts"), 330);
    assert_eq!(server.connections(), 330);
    assert_eq!(run.count("repeats_same_claim"), 30);
    // All first clicks are meant for the same instant.
    let first = run.told.iter().filter(|line| line["click"] == 0);
    let instants: HashSet<_> = first.map(|line| line["intended_ms"].as_u64()).collect();
    assert_eq!(instants.len(), 1);
}

#[test]
fn several_threads_send_every_click_once() {
    let server = Server::start(won);
    let run = run(
        &server.url(),
        &[
            "--users",
            "301",
            "--rate",
            "600",
            "--repeat-share",
            "0.2",
            "--threads",
            "3",
        ],
    );
    run.adds_up();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!((run.count("users"), run.count("won")), (301, 301));
    assert_eq!(run.count("repeats_same_claim"), run.count("repeats"));
    assert_eq!(run.count("units.distinct"), 301);
}
