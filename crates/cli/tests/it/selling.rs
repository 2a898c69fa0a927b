//! A whole sale, from its creation to the oracle's word.

use crate::shop::{Answer, PATIENCE, Shop, told};
use anyhow::{Context, Result};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

const USERS: usize = 300;
const THREADS: usize = 10;

/// Every user once, and every tenth a second time, from several threads at once.
fn crowd(shop: &Shop, sale: &str) -> Result<Vec<(String, Answer)>> {
    let key = shop.token_key()?;
    let told = std::thread::scope(|scope| {
        let key = &key;
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                scope.spawn(move || -> Result<Vec<(String, Answer)>> {
                    let mut told = Vec::new();
                    for n in (thread..USERS).step_by(THREADS) {
                        let user = format!("user-{n}");
                        let token = Shop::token(key, &user)?;
                        let clicks = 1 + usize::from(n % 10 == thread % 10 && n % 3 == 0);
                        for _ in 0..clicks {
                            told.push((user.clone(), shop.claim(sale, &token)?));
                        }
                    }
                    Ok(told)
                })
            })
            .collect();
        let told: Result<Vec<_>> = threads.into_iter().map(|t| t.join().unwrap()).collect();
        told
    })?;
    Ok(told.into_iter().flatten().collect())
}

#[test]
fn a_sale_is_sold_once_and_everybody_agrees() -> Result<()> {
    sell(&Shop::new()?)
}

#[test]
fn the_same_with_the_log_in_kafka_and_the_orders_in_postgres() -> Result<()> {
    sell(&Shop::on_servers()?)
}

fn sell(shop: &Shop) -> Result<()> {
    let mut serve = shop.serve()?;
    let create = ["sale", "create", "drop-1", "--stock", "100"];
    assert!(shop.done(&create).contains("is created"));
    assert!(shop.done(&create).contains("was there already"));
    let other = shop.run(&["sale", "create", "drop-1", "--stock", "99"]);
    assert_eq!(other.code, 1, "{other:#?}");
    assert!(other.stderr.contains("sale_exists"), "{other:#?}");
    assert!(shop.done(&["sale", "open", "drop-1"]).contains("is open"));
    assert!(
        shop.done(&["sale", "open", "drop-1"])
            .contains("was open already")
    );

    // A sale can be reconciled while it runs, again and again.
    let over = AtomicBool::new(false);
    let (answers, reports) = std::thread::scope(|scope| {
        let reconciling = scope.spawn(|| {
            let mut reports = Vec::new();
            while !over.load(Ordering::Acquire) {
                reports.push(shop.run(&["reconcile", "--sale", "drop-1"]));
            }
            reports
        });
        let answers = crowd(shop, "drop-1");
        over.store(true, Ordering::Release);
        (answers, reconciling.join().unwrap())
    });
    let answers = answers?;
    assert!(!reports.is_empty());
    for ran in &reports {
        assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
    }

    let won: Vec<_> = answers.iter().filter(|(_, a)| a.status == "won").collect();
    let units: BTreeSet<_> = won.iter().map(|(_, a)| a.unit.unwrap()).collect();
    let users: BTreeSet<_> = won.iter().map(|(user, _)| user).collect();
    assert_eq!(won.len(), 100);
    assert_eq!(units, (1..=100).collect());
    assert_eq!(users.len(), 100);

    assert!(
        shop.done(&["sale", "close", "drop-1"])
            .contains("is closed")
    );
    assert!(
        shop.done(&["sale", "close", "drop-1"])
            .contains("was closed already")
    );
    let shown: Value = serde_json::from_str(&shop.done(&["sale", "show", "drop-1", "--json"]))?;
    assert_eq!(
        (&shown["state"], &shown["sold"]),
        (&"closed".into(), &100.into())
    );
    judged(shop, &answers)?;
    assert_eq!(serve.terminate(PATIENCE)?, Some(0), "{}", serve.output()?);
    Ok(())
}

/// The reconciler and the oracle, over what clients were told.
fn judged(shop: &Shop, answers: &[(String, Answer)]) -> Result<()> {
    let transcript = shop.path("told.jsonl");
    let mut file = std::fs::File::create(&transcript)?;
    for (user, answer) in answers {
        writeln!(file, "{}", told("drop-1", user, answer))?;
    }
    let transcript = transcript.to_str().unwrap();
    let json = shop.path("reconcile.json");
    shop.done(&[
        "reconcile",
        "--sale",
        "drop-1",
        "--told",
        transcript,
        "--json",
        json.to_str().unwrap(),
    ]);
    let report: Value = serde_json::from_slice(&std::fs::read(&json)?)?;
    assert_eq!(report["holds"], true, "{report:#}");
    assert_eq!(report["orders"], 100);
    assert_eq!(report["promises"].as_array().context("promises")?.len(), 7);

    let dump = shop.path("dump.jsonl");
    shop.done(&["log", "dump", "--out", dump.to_str().unwrap()]);
    let to_stdout = shop.done(&["log", "dump", "--out", "-"]);
    assert_eq!(to_stdout, std::fs::read_to_string(&dump)?);
    // The index, the opening, the wins, the close; and what was published twice.
    assert!(to_stdout.lines().count() >= 103, "{to_stdout}");

    let oracle = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../loadtest/oracle/oracle.py"
    );
    let output = Command::new("python3")
        .arg(oracle)
        .args([
            "--sale",
            "drop-1",
            "--complete",
            "--told",
            transcript,
            "--log",
        ])
        .arg(&dump)
        .args(["--redis", &shop.redis.url()])
        .args(["--sql", &shop.sql()])
        .output()
        .context("the oracle needs python3")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}\n{complained}");
    Ok(())
}
