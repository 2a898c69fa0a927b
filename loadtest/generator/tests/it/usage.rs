//! What is refused before the first click, and how it is told.

use std::process::Command;

use crate::generator::{run, start_by};
use crate::server::{Asked, Server, win_of};

#[test]
fn a_target_elsewhere_is_refused_before_anything_is_sent() {
    for target in [
        "http://192.0.2.1:80",
        "http://example.org",
        "https://127.0.0.1",
    ] {
        let run = run(target, &["--rate", "10"]);
        assert_eq!(run.code, Some(2), "{target}");
        assert!(run.stderr.contains(target), "{}", run.stderr);
    }
}

#[test]
fn too_few_file_descriptors_are_named_before_anything_is_sent() {
    let server = Server::start(|asked: &Asked| win_of(asked, 201));
    let mut limited = Command::new("sh");
    limited
        .args(["-c", r#"ulimit -n 100 && exec "$0" "$@""#])
        .arg(env!("CARGO_BIN_EXE_dropgate-loadtest"));
    let run = start_by(limited, &server.url(), &["--users", "500", "--spike"]).finish();
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains("open files: 100 allowed, 564 needed"),
        "{}",
        run.stderr
    );
    assert_eq!(server.connections(), 0);
}

#[test]
fn a_soft_limit_below_the_hard_one_is_raised() {
    let server = Server::start(|asked: &Asked| win_of(asked, 201));
    let mut limited = Command::new("sh");
    limited
        .args(["-c", r#"ulimit -Sn 100 && exec "$0" "$@""#])
        .arg(env!("CARGO_BIN_EXE_dropgate-loadtest"));
    let run = start_by(limited, &server.url(), &["--users", "200", "--spike"]).finish();
    assert_eq!(
        (run.code, run.count("won")),
        (Some(0), 200),
        "{}",
        run.stderr
    );
}

#[test]
fn too_few_ports_are_named() {
    // One source address has some 28,000 ports; nobody has 100,000.
    let run = run(
        "http://127.0.0.1:9",
        &["--rate", "10", "--connections", "100000", "--sources", "1"],
    );
    assert_eq!(run.code, Some(2));
    assert!(
        run.stderr.contains("x 1 source addresses"),
        "{}",
        run.stderr
    );
}

#[test]
fn a_report_that_cannot_be_written_and_a_process_that_is_gone_are_told() {
    let server = Server::start(|asked: &Asked| win_of(asked, 201));
    let gone = run(
        &server.url(),
        &["--rate", "10", "--watch-pid", "gateway=2147483647"],
    );
    assert_eq!(gone.code, Some(2));
    assert!(
        gone.stderr.contains("gateway=2147483647"),
        "{}",
        gone.stderr
    );
    let mut full = Command::new(env!("CARGO_BIN_EXE_dropgate-loadtest"));
    full.args([
        "--users",
        "1",
        "--rate",
        "10",
        "--sale",
        "s1",
        "--target",
        &server.url(),
    ])
    .args(["--report", "/no/such/folder/load.json"])
    .env("DROPGATE_LOADTEST_TOKEN_SECRET", crate::generator::SECRET);
    let output = full.output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/no/such/folder/load.json"));
}

#[test]
fn a_run_without_a_secret_says_where_it_can_be_given() {
    let output = Command::new(env!("CARGO_BIN_EXE_dropgate-loadtest"))
        .args([
            "--rate",
            "10",
            "--sale",
            "s1",
            "--target",
            "http://127.0.0.1:9",
        ])
        .env_remove("DROPGATE_LOADTEST_TOKEN_SECRET")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("--token-secret-file"), "{stderr}");
}
