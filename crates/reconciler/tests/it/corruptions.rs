//! Each planted corruption is found by its kind, and by nothing else.

use crate::world::{Ran, World};
use anyhow::Result;
use dropgate_testkit::Value;

async fn world() -> Result<World> {
    World::sold(30, 20).await
}

fn found(ran: &Ran, kinds: &[(&str, u64)], broken: &[&str]) {
    assert_eq!(ran.code, 1, "{ran:#?}");
    assert_eq!(ran.report["holds"], false);
    assert_eq!(ran.kinds(), kinds, "{ran:#?}");
    assert_eq!(ran.broken(), broken, "{ran:#?}");
    assert!(
        ran.stdout.contains("NOT ALL PROMISES HOLD"),
        "{}",
        ran.stdout
    );
    // Read by more people than may know the users.
    let all = format!("{}{}{}", ran.stdout, ran.stderr, ran.report);
    assert!(!all.contains("user-"), "{all}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_row() -> Result<()> {
    let world = world().await?;
    assert_eq!(world.sql("DELETE FROM orders WHERE unit = 7"), 1);
    let kinds = [("missing_row", 1), ("counts_differ", 1)];
    let ran = world.reconcile(&[]);
    found(&ran, &kinds, &["told_win_kept", "books_balance"]);
    let example = ran.report["differences"][0]["examples"][0]
        .as_str()
        .unwrap();
    assert!(example.starts_with("unit 7, seq "), "{example}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extra_row() -> Result<()> {
    let world = world().await?;
    let claim = format!("1-900-{}", "ab".repeat(16));
    let copied = world.sql(&format!(
        "INSERT INTO orders SELECT sale_id, 25, '{claim}', 'user-900', attempt, idem_key, generation, \
         900, status, won_ms FROM orders WHERE unit = 7"
    ));
    assert_eq!(copied, 1);
    let kinds = [("extra_row", 1), ("counts_differ", 1)];
    found(&world.reconcile(&[]), &kinds, &["books_balance"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_user() -> Result<()> {
    let world = world().await?;
    assert_eq!(
        world.sql("UPDATE orders SET user_id = 'user-900' WHERE unit = 7"),
        1
    );
    let broken = ["told_win_kept", "books_balance"];
    found(&world.reconcile(&[]), &[("changed_user", 1)], &broken);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_row_given_to_another_winner_breaks_their_limit() -> Result<()> {
    let world = world().await?;
    let taken = "UPDATE orders SET user_id = (SELECT user_id FROM orders WHERE unit = 8) \
                 WHERE unit = 7";
    assert_eq!(world.sql(taken), 1);
    let kinds = [("changed_user", 1), ("row_over_limit", 1)];
    let broken = ["per_user_limit", "told_win_kept", "books_balance"];
    found(&world.reconcile(&[]), &kinds, &broken);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_unit() -> Result<()> {
    let world = world().await?;
    assert_eq!(world.sql("UPDATE orders SET unit = 28 WHERE unit = 7"), 1);
    let broken = ["told_win_kept", "books_balance"];
    found(&world.reconcile(&[]), &[("changed_unit", 1)], &broken);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unit_beyond_the_stock_is_oversold() -> Result<()> {
    let world = world().await?;
    assert_eq!(world.sql("UPDATE orders SET unit = 31 WHERE unit = 7"), 1);
    let kinds = [("changed_unit", 1), ("row_oversold", 1)];
    let broken = ["never_oversell", "told_win_kept", "books_balance"];
    found(&world.reconcile(&[]), &kinds, &broken);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_told_winner_that_is_absent_from_the_log() -> Result<()> {
    let world = world().await?;
    let mut wins = world.wins();
    let mut absent = wins[3].clone();
    absent.seq.0 = 900;
    wins.push(absent);
    let told = world.told(&wins);
    let ran = world.reconcile(&["--told", told.to_str().unwrap()]);
    found(
        &ran,
        &[("told_winner_absent", 1)],
        &["told_win_kept", "fail_closed"],
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_claim_in_redis() -> Result<()> {
    let world = world().await?;
    let claims = world.key("claims");
    assert_eq!(
        world.redis.command(&["HDEL", &claims, "user-7"])?,
        Value::Int(1)
    );
    let broken = ["told_win_kept", "books_balance"];
    found(
        &world.reconcile(&[]),
        &[("redis_claim_missing", 1)],
        &broken,
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_in_redis_under_another_name_and_one_that_nobody_made() -> Result<()> {
    let world = world().await?;
    let claims = world.key("claims");
    let mut redis = world.redis.connect()?;
    let value = redis.command(&["HGET", &claims, "user-7"])?;
    let value = value.bytes().unwrap().to_vec();
    redis.command(&["HDEL", &claims, "user-7"])?;
    redis.command(&[b"HSET", claims.as_bytes(), b"user-900", &value])?;
    let mut extra = value;
    extra[..16].copy_from_slice(&[&900u64.to_le_bytes()[..], &29u64.to_le_bytes()[..]].concat());
    redis.command(&[b"HSET", claims.as_bytes(), b"user-901", &extra])?;
    let kinds = [("redis_claim_extra", 1), ("redis_claim_changed", 1)];
    let broken = ["told_win_kept", "books_balance"];
    found(&world.reconcile(&[]), &kinds, &broken);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_forgot_everything() -> Result<()> {
    let world = world().await?;
    world.redis.cli(&["FLUSHALL"])?;
    let kinds = [
        ("redis_claim_missing", 20),
        ("redis_sale_missing", 1),
        ("redis_state_missing", 1),
    ];
    let broken = ["told_win_kept", "books_balance"];
    let ran = world.reconcile(&[]);
    found(&ran, &kinds, &broken);
    assert_eq!(
        ran.report["differences"][0]["examples"]
            .as_array()
            .unwrap()
            .len(),
        3
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_release_wrote_is_found_and_crashes_nothing() -> Result<()> {
    let world = world().await?;
    world
        .redis
        .cli(&["HSET", &world.key("claims"), "user-7", "short"])?;
    world.sql("UPDATE orders SET status = 'lost' WHERE unit = 7");
    let kinds = [("unreadable_row", 1), ("redis_unreadable", 1)];
    let broken = ["told_win_kept", "books_balance"];
    found(&world.reconcile(&[]), &kinds, &broken);
    Ok(())
}
