//! The command, on both databases.
#![cfg(test)]

use dropgate_testkit::Postgres;
use std::process::Command;

/// Runs it; gives the exit code and all that it printed.
fn run(url: &str, args: &[&str]) -> (Option<i32>, String) {
    let ended = Command::new(env!("CARGO_BIN_EXE_dropgate-migrate"))
        .args(args)
        .env("DROPGATE_STORE__URL", url)
        .output()
        .unwrap();
    let text = [ended.stdout, ended.stderr].concat();
    (ended.status.code(), String::from_utf8(text).unwrap())
}

fn applied_once_and_told(url: &str) {
    let (code, text) = run(url, &["status"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("pending m0001_sales_and_orders"), "{text}");
    let (code, text) = run(url, &[]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("applied m0001_sales_and_orders"), "{text}");
    for args in [&["up"][..], &["status"]] {
        let (code, text) = run(url, args);
        assert_eq!((code, text.trim()), (Some(0), "nothing is pending"));
    }
}

#[test]
fn what_is_pending_is_applied_once_in_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    applied_once_and_told(&format!("sqlite:{}/orders.db", folder.path().display()));
}

#[test]
fn what_is_pending_is_applied_once_in_postgres() {
    let database = Postgres::shared_database().unwrap();
    applied_once_and_told(&database.url());
    let collations = "SELECT count(*) FROM information_schema.columns WHERE table_name IN \
                      ('sales', 'orders') AND data_type = 'text' AND collation_name = 'C'";
    assert_eq!(
        database.sql(collations).unwrap(),
        "7",
        "every text is compared byte for byte"
    );
}

#[test]
fn an_error_names_no_password() {
    for url in [
        "postgres://user:hunter2@127.0.0.1:1/db",
        "postgres://user:hunter2@127.0.0.1:99999/db",
        "mysql://user:hunter2@127.0.0.1:1/db",
    ] {
        let (code, text) = run(url, &["--connect-timeout-seconds", "1"]);
        assert_eq!(code, Some(1), "{text}");
        assert!(
            text.contains("Error") && !text.contains("hunter2"),
            "{text}"
        );
    }
    let (_, help) = run("postgres://user:hunter2@h/db", &["--help"]);
    assert!(
        help.contains("DROPGATE_STORE__URL") && !help.contains("hunter2"),
        "{help}"
    );
}
