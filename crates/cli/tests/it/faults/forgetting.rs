//! Redis forgets under `dropgate serve`; the sale is recovered by itself, and by hand.

use crate::shop::{Answer, PATIENCE, Shop, told};
use anyhow::{Context, Result};
use dropgate_gateway::auth::TokenKey;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::Write;
use std::sync::mpsc;
use std::time::Instant;

/// Keeps the watch from recovering anything.
const HELD: (&str, &str) = ("DROPGATE_WATCH__HOLD", "true");

fn said(text: &str) -> Result<Value> {
    serde_json::from_str(text).with_context(|| text.to_owned())
}

/// Everything that these users were told, each asking once.
fn claims(
    shop: &Shop,
    key: &TokenKey,
    users: std::ops::Range<usize>,
) -> Result<Vec<(String, Answer)>> {
    let claim = |n| {
        let user = format!("user-{n}");
        let answer = shop.claim("drop-1", &Shop::token(key, &user)?)?;
        Ok((user, answer))
    };
    users.map(claim).collect()
}

fn sale(shop: &Shop, stock: &str) -> Result<TokenKey> {
    shop.done(&["sale", "create", "drop-1", "--stock", stock]);
    shop.done(&["sale", "open", "drop-1"]);
    shop.token_key()
}

/// Whoever won has won: asked again they are shown the same claim; no unit has two owners; and
/// the reconciler says the same.
fn nobody_lost(shop: &Shop, key: &TokenKey, answers: &[(String, Answer)]) -> Result<()> {
    let won = || answers.iter().filter(|(_, answer)| answer.status == "won");
    let units: BTreeSet<_> = won().filter_map(|(_, answer)| answer.unit).collect();
    assert_eq!(units.len(), won().count(), "{answers:?}");
    for (user, before) in won() {
        let again = shop.claim("drop-1", &Shop::token(key, user)?)?;
        assert_eq!((again.status, &again.claim), ("again", &before.claim));
    }
    let transcript = shop.path("told.jsonl");
    let mut file = std::fs::File::create(&transcript)?;
    for (user, answer) in answers {
        writeln!(file, "{}", told("drop-1", user, answer))?;
    }
    let transcript = transcript.to_str().context("a path")?;
    shop.done(&["reconcile", "--sale", "drop-1", "--told", transcript]);
    Ok(())
}

/// Live, after so many recoveries: on a busy machine one that did not go live in time may have been
/// made again.
fn recovered(status: &Value, at_least: u64) {
    let standing = &status["standing"]["known"];
    assert_eq!(standing["condition"], "live", "{status:#}");
    let lately = standing["recoveries"]["lately"].as_u64().unwrap();
    assert!(lately >= at_least, "{status:#}");
    assert_eq!(standing["generation"], lately + 1, "{status:#}");
}

#[test]
fn a_sale_whose_redis_forgot_everything_sells_on_by_itself() -> Result<()> {
    let shop = Shop::new()?;
    let mut serve = shop.serve()?;
    let key = sale(&shop, "30")?;
    let mut answers = claims(&shop, &key, 0..8)?;
    for round in 1..=2 {
        shop.forget()?;
        let forgot = Instant::now();
        answers.extend(claims(&shop, &key, round * 10..round * 10 + 1)?);
        println!("from FLUSHALL to the next win: {:?}", forgot.elapsed());
        answers.extend(claims(&shop, &key, round * 10 + 1..round * 10 + 6)?);
    }
    assert!(answers.iter().all(|(_, answer)| answer.status == "won"));
    let status = said(&shop.done(&["status", "--sale", "drop-1", "--json"]))?;
    recovered(&status, 2);
    nobody_lost(&shop, &key, &answers)?;
    assert_eq!(serve.terminate(PATIENCE)?, Some(0), "{}", serve.output()?);
    Ok(())
}

#[test]
fn serve_killed_in_mid_sale_while_redis_forgets_sells_on_when_it_is_back() -> Result<()> {
    let shop = Shop::new()?;
    let mut serve = shop.serve()?;
    let key = sale(&shop, "200")?;
    let mut answers = claims(&shop, &key, 0..5)?;
    let (answered, heard) = mpsc::channel();
    // Claims are on their way when it is killed, and go on being asked until they are answered.
    let crowd = std::thread::scope(|scope| -> Result<Vec<(String, Answer)>> {
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (shop, key, answered) = (&shop, &key, answered.clone());
                let users = 10 + thread * 20..30 + thread * 20;
                scope.spawn(move || -> Result<Vec<_>> {
                    let mut told = Vec::new();
                    for user in users {
                        told.extend(claims(shop, key, user..user + 1)?);
                        answered.send(())?;
                    }
                    Ok(told)
                })
            })
            .collect();
        heard.iter().take(15).for_each(drop);
        serve.kill9()?;
        shop.forget()?;
        serve.restart()?;
        let joined = threads.into_iter().map(|thread| thread.join().unwrap());
        Ok(joined.collect::<Result<Vec<_>>>()?.concat())
    })?;
    // Who won before the kill and asks after it hears "again".
    let wins = crowd
        .iter()
        .filter(|(_, answer)| answer.status != "sold_out");
    assert_eq!(wins.count(), 80);
    let units: BTreeSet<_> = crowd.iter().map(|(_, answer)| answer.unit).collect();
    assert_eq!(units.len(), 80, "{crowd:?}");
    answers.extend(crowd);
    nobody_lost(&shop, &key, &answers)?;
    Ok(())
}

#[test]
fn a_held_sale_is_shown_with_its_reasons_and_recovered_by_hand() -> Result<()> {
    let shop = Shop::new()?;
    let _serve = shop.serve_with(&[HELD])?;
    let key = sale(&shop, "10")?;
    let answers = claims(&shop, &key, 0..4)?;
    let live = shop.done(&["recover", "--sale", "drop-1"]);
    assert!(live.contains("is live in generation 1"), "{live}");
    let dry = shop.done(&["recover", "--sale", "drop-1", "--dry-run"]);
    assert!(dry.contains("would       do nothing"), "{dry}");

    shop.forget()?;
    let held = shop.status_until("drop-1", "held", |said| {
        let halted = said["standing"]["known"]["halted_at"].is_string();
        halted && said["next"]["known"]["next"] == "held"
    });
    assert_eq!(held.code, 1, "{held:#?}");
    let status = said(&held.stdout)?;
    let standing = &status["standing"]["known"];
    assert_eq!(standing["condition"], "halted", "{status:#}");
    for name in ["why", "halted_by", "halted_at", "begun_at"] {
        assert!(standing[name].is_string(), "{name}: {status:#}");
    }
    assert_eq!(status["redis"]["known"]["seen"]["state"], "missing");
    assert_eq!(status["redis"]["known"]["seen"]["scripts_loaded"], false);
    let screen = shop.run(&["status", "--sale", "drop-1"]);
    assert_eq!(screen.code, 1, "{screen:#?}");
    for text in [
        "State        halted",
        "  halted by  gateway ",
        "held by watch.hold",
        "Won          4 of 10",
        "Recoveries   0 within 10m, of 3 that the watch makes",
        "it is halted: ",
    ] {
        assert!(screen.stdout.contains(text), "{text}\n{}", screen.stdout);
    }

    changes_nothing(&shop)?;
    let recovered = shop.done(&["recover", "--sale", "drop-1"]);
    assert!(
        recovered.contains("is live in generation 2: 4 wins"),
        "{recovered}"
    );
    nobody_lost(&shop, &key, &answers)?;
    let forced = shop.done(&["recover", "--sale", "drop-1", "--force", "--json"]);
    let forced = said(&forced)?;
    assert_eq!(
        (&forced["outcome"], &forced["generation"]),
        (&"recovered".into(), &3.into())
    );
    nobody_lost(&shop, &key, &answers)
}

/// A dry run leaves every record of the log and every key of Redis as they are.
fn changes_nothing(shop: &Shop) -> Result<()> {
    let records = || shop.done(&["log", "dump", "--out", "-"]);
    let before = (records(), shop.redis_contents()?);
    let dry = shop.done(&["recover", "--sale", "drop-1", "--dry-run"]);
    for text in [
        "state       halted",
        "none is current",
        "  scripts   not loaded",
        "begin generation 2 and write 4 wins",
        "changed     nothing",
    ] {
        assert!(dry.contains(text), "{text}\n{dry}");
    }
    assert_eq!((records(), shop.redis_contents()?), before);
    Ok(())
}

#[test]
fn with_the_log_in_kafka_the_command_recovers_by_itself() -> Result<()> {
    let shop = Shop::on_servers()?;
    let mut serve = shop.serve_with(&[HELD])?;
    let key = sale(&shop, "10")?;
    let answers = claims(&shop, &key, 0..4)?;
    let live = shop.run(&["recover", "--sale", "drop-1"]);
    assert_eq!(live.code, 0, "{live:#?}");
    assert!(live.stdout.contains("is live in generation 1"), "{live:#?}");
    shop.forget()?;
    let found = |status: &Value| status["standing"]["known"]["halted_at"].is_string();
    shop.status_until("drop-1", "halted", found);
    changes_nothing(&shop)?;

    let unknown = shop.run(&["recover", "--sale", "drop-2"]);
    assert_eq!(unknown.code, 1, "{unknown:#?}");
    assert!(unknown.stderr.contains("no such sale"), "{unknown:#?}");

    // Not on a Redis that evicts.
    let policy = |policy| {
        shop.redis
            .cli(&["CONFIG", "SET", "maxmemory-policy", policy])
    };
    policy("allkeys-lru")?;
    let unfit = shop.run(&["recover", "--sale", "drop-1"]);
    assert_eq!(unfit.code, 2, "{unfit:#?}");
    for text in ["noeviction", "stays closed", "may be given again"] {
        assert!(unfit.stderr.contains(text), "{text}: {unfit:#?}");
    }
    policy("noeviction")?;

    let recovered = shop.run(&["recover", "--sale", "drop-1"]);
    assert_eq!(recovered.code, 0, "{recovered:#?}");
    for text in ["is live in generation 2: 4 wins", "MB of memory"] {
        assert!(recovered.stdout.contains(text), "{text}: {recovered:#?}");
    }
    for step in [
        "redis is fit for a sale",
        "redis no longer has the generation",
        "generation 2 is begun; 4 wins are written to redis",
        "the new generation is current",
    ] {
        assert!(recovered.stderr.contains(step), "{step}: {recovered:#?}");
    }
    nobody_lost(&shop, &key, &answers)?;

    shop.done(&["sale", "close", "drop-1"]);
    for force in [
        &["recover", "--sale", "drop-1"][..],
        &["recover", "--sale", "drop-1", "--force"],
    ] {
        let closed = shop.run(force);
        assert_eq!(closed.code, 1, "{closed:#?}");
        assert!(closed.stderr.contains("the sale is closed"), "{closed:#?}");
    }
    assert_eq!(serve.terminate(PATIENCE)?, Some(0), "{}", serve.output()?);
    Ok(())
}

#[test]
fn a_watch_of_its_own_recovers_beside_a_gateway_that_may_not() -> Result<()> {
    let shop = Shop::on_servers()?;
    let _serve = shop.serve_with(&[HELD])?;
    let (mut watch, port) = shop.watch()?;
    let key = sale(&shop, "10")?;
    let mut answers = claims(&shop, &key, 0..4)?;
    shop.forget()?;
    let forgot = Instant::now();
    answers.extend(claims(&shop, &key, 4..8)?);
    println!("from FLUSHALL to the next wins: {:?}", forgot.elapsed());
    assert!(answers.iter().all(|(_, answer)| answer.status == "won"));
    let url = format!("http://127.0.0.1:{}", port.number());
    let status = ["status", "--sale", "drop-1", "--json", "--watch", &url];
    let status = said(&shop.done(&status))?;
    recovered(&status, 1);
    assert_eq!(status["watch"]["url"], url, "{status:#}");
    nobody_lost(&shop, &key, &answers)?;
    assert_eq!(watch.terminate(PATIENCE)?, Some(0), "{}", watch.output()?);
    Ok(())
}
