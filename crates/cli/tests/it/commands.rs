//! What the commands say when something is wrong.

use crate::shop::Shop;
use anyhow::Result;

#[test]
fn every_problem_of_the_configuration_is_told_at_once_and_no_secret_with_it() -> Result<()> {
    let shop = Shop::new()?;
    let file = shop.path("dropgate.toml");
    std::fs::write(
        &file,
        "[http]\nbacklog = 0\n[auth]\nkeys = [{kid = 'a', secret = 'hunter2'}]\n[typo]\nx = 1\n\
         [store]\nurl = 'mysql://u:hunter3@h/d'\n",
    )?;
    for command in [
        &["serve"][..],
        &["config", "check"],
        &["token", "--sub", "u"],
    ] {
        let args = [&["--config", file.to_str().unwrap()], command].concat();
        let ran = shop.run_with(&[("DROPGATE_WRITER__BATCH_EVENTS_MAX", "0")], &args);
        assert_eq!(ran.code, 2, "{ran:#?}");
        for key in [
            "http.backlog",
            "auth.keys[0].secret",
            "typo",
            "store.url",
            "writer.batch_events_max",
        ] {
            assert!(ran.stderr.contains(key), "{key}: {ran:#?}");
        }
        assert!(!ran.stderr.contains("hunter"), "{ran:#?}");
    }
    Ok(())
}

#[test]
fn the_defaults_are_a_valid_configuration() -> Result<()> {
    let shop = Shop::new()?;
    // Variables of the other commands are not keys, and are not taken for any.
    let ran = shop.run_with(
        &[
            ("DROPGATE_ADMIN_KEY", "x"),
            ("DROPGATE_ADMIN_URL", "http://127.0.0.1:1"),
        ],
        &["config", "check"],
    );
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains("dropgate-log.db"), "{ran:#?}");
    let watch = shop.watch_url();
    assert!(
        ran.stdout.contains(&format!("watch     {watch}")),
        "{ran:#?}"
    );
    assert!(!ran.stdout.contains("test-password"), "{ran:#?}");
    Ok(())
}

#[test]
fn refusals_exit_with_1_and_what_does_not_answer_with_2() -> Result<()> {
    let shop = Shop::new()?;
    let silent = shop.run_with(&[("DROPGATE_ADMIN_KEY", "x")], &["sale", "show", "drop-1"]);
    assert_eq!(silent.code, 2, "{silent:#?}");
    assert!(
        silent.stderr.contains("no answer from http://127.0.0.1:"),
        "{silent:#?}"
    );
    let keyless = shop.run(&["sale", "show", "drop-1"]);
    assert_eq!(keyless.code, 2, "{keyless:#?}");
    assert!(
        keyless.stderr.contains("DROPGATE_ADMIN_KEY"),
        "{keyless:#?}"
    );
    let unsigned = shop.run(&["token", "--sub", "u"]);
    assert_eq!(unsigned.code, 2, "{unsigned:#?}");
    let dump = shop.path("dump.jsonl");
    let logless = shop.run(&["log", "dump", "--out", dump.to_str().unwrap()]);
    assert_eq!(logless.code, 2, "{logless:#?}");
    assert!(!dump.exists());

    let _serve = shop.serve()?;
    let wrong = "w".repeat(40);
    let ran = shop.run_with(
        &[("DROPGATE_ADMIN_KEY", &wrong)],
        &["sale", "show", "drop-1"],
    );
    assert_eq!(ran.code, 1, "{ran:#?}");
    assert!(ran.stderr.contains("admin_key_required"), "{ran:#?}");
    assert!(!ran.stderr.contains(&wrong), "{ran:#?}");
    let unknown = shop.run(&["sale", "open", "drop-1"]);
    assert_eq!(unknown.code, 1, "{unknown:#?}");
    assert!(unknown.stderr.contains("unknown_sale"), "{unknown:#?}");
    let bad = [
        "sale",
        "create",
        "drop-1",
        "--stock",
        "10000001",
        "--per-user-limit",
        "17",
    ];
    let bad = shop.run(&bad);
    assert_eq!(bad.code, 1, "{bad:#?}");
    for field in ["stock: 0 to 10000000", "per_user_limit: 1 to 16"] {
        assert!(bad.stderr.contains(field), "{bad:#?}");
    }
    let reconciled = shop.run(&["reconcile", "--sale", "drop-1"]);
    assert_eq!(reconciled.code, 2, "{reconciled:#?}");
    // The key by a file, as a secret is mounted.
    let file = shop.path("data/admin.key");
    shop.done(&[
        "sale",
        "create",
        "drop-1",
        "--stock",
        "1",
        "--admin-key-file",
        file.to_str().unwrap(),
    ]);
    Ok(())
}

#[test]
fn a_token_is_good_for_its_user_and_sale_and_time() -> Result<()> {
    let shop = Shop::new()?;
    let _serve = shop.serve()?;
    shop.done(&["sale", "create", "drop-1", "--stock", "1"]);
    shop.done(&["sale", "open", "drop-1"]);
    let token = shop.done(&["token", "--sub", "alice", "--sale", "drop-1", "--ttl", "5m"]);
    let answer = shop.claim("drop-1", token.trim())?;
    assert_eq!((answer.status, answer.unit), ("won", Some(1)));
    let mistaken = shop.run(&["token", "--sub", " alice"]);
    assert_eq!(mistaken.code, 2, "{mistaken:#?}");
    Ok(())
}

#[test]
fn a_flag_that_is_wrong_is_named_with_what_was_expected() -> Result<()> {
    let shop = Shop::new()?;
    for (args, named, expected) in [
        (
            &["recover", "--sale", "Drop 1"][..],
            "--sale",
            "1 to 63 of a-z, 0-9",
        ),
        (
            &["status", "--sale", "s", "--watch", "h:1"],
            "--watch",
            "http://host:port",
        ),
        (
            &["status", "--sale", "s", "--gateway", "https://h"],
            "--gateway",
            "http://host:port",
        ),
        (
            &["status", "--sale", "s", "--timeout", "soon"],
            "--timeout",
            "as in 90s or 1h",
        ),
        (
            &["recover", "--sale", "s", "--timeout", "0s"],
            "--timeout",
            "as in 90s or 1h",
        ),
        (
            &["recover", "--sale", "s", "--admin-url", "h"],
            "--admin-url",
            "http://host:port",
        ),
        (
            &["status", "--sale", "s", "--admin-key-file", "/nowhere/key"],
            "--admin-key-file",
            "is not there",
        ),
        (&["recover"], "--sale", "required"),
    ] {
        let ran = shop.run(args);
        assert_eq!(ran.code, 2, "{ran:#?}");
        for text in [named, expected] {
            assert!(ran.stderr.contains(text), "{text}: {ran:#?}");
        }
    }
    Ok(())
}

#[test]
fn a_watch_of_its_own_needs_a_log_that_others_can_write() -> Result<()> {
    let ran = Shop::new()?.run(&["watch"]);
    assert_eq!(ran.code, 2, "{ran:#?}");
    assert!(ran.stderr.contains("log.backend"), "{ran:#?}");
    Ok(())
}
