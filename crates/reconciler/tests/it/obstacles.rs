//! What could not be checked is neither said to hold nor to be broken.

use crate::world::{Ran, World};
use anyhow::Result;
use dropgate_testkit::Redis;

fn could_not(ran: &Ran, sources: &[&str]) {
    assert_eq!(ran.code, 2, "{ran:#?}");
    let errors = ran.report["errors"].as_array().unwrap();
    let named: Vec<_> = errors
        .iter()
        .map(|e| e["source"].as_str().unwrap())
        .collect();
    assert_eq!(named, sources, "{ran:#?}");
    assert_eq!(ran.report["holds"], false);
    assert_eq!(ran.report["checked"], false);
    for source in sources {
        assert!(ran.stderr.contains(source), "{}", ran.stderr);
    }
    let all = format!("{}{}{}", ran.stdout, ran.stderr, ran.report);
    assert!(!all.contains("test-password"), "{all}");
}

fn with(world: &World, key: &str, value: &str) -> Vec<(String, String)> {
    let mut variables = world.variables();
    variables.retain(|(name, _)| name != key);
    variables.push((key.to_owned(), value.to_owned()));
    variables
}

#[tokio::test(flavor = "multi_thread")]
async fn every_source_that_does_not_answer_is_named() -> Result<()> {
    let mut world = World::sold(5, 3).await?;
    let ran = world.reconcile_with(
        &with(&world, "DROPGATE_LOG__EMBEDDED__PATH", "/nowhere/l"),
        &[],
    );
    could_not(&ran, &["log"]);
    let ran = world.reconcile_with(
        &with(&world, "DROPGATE_STORE__URL", "sqlite:/nowhere/d"),
        &[],
    );
    could_not(&ran, &["database"]);
    let url = "postgres://u:store-test-password@127.0.0.1:1/d";
    let ran = world.reconcile_with(&with(&world, "DROPGATE_STORE__URL", url), &[]);
    could_not(&ran, &["database"]);
    world.redis.kill9()?;
    let ran = world.reconcile(&[]);
    could_not(&ran, &["redis"]);
    let ran = world.reconcile_with(
        &with(&world, "DROPGATE_STORE__URL", "sqlite:/nowhere/d"),
        &[],
    );
    could_not(&ran, &["redis", "database"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_file_that_is_not_there_is_not_made() -> Result<()> {
    let world = World::sold(5, 3).await?;
    let path = world.folder.path().join("other.db");
    let url = format!("sqlite:{}", path.display());
    could_not(
        &world.reconcile_with(&with(&world, "DROPGATE_STORE__URL", &url), &[]),
        &["database"],
    );
    assert!(!path.exists());
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_sale_and_a_user_that_may_not_read_are_told() -> Result<()> {
    let mut world = World::sold(5, 3).await?;
    let gateway = Redis::gateway_url_at(world.redis.port());
    let ran = world.reconcile_with(&with(&world, "DROPGATE_REDIS__URL", &gateway), &[]);
    could_not(&ran, &["redis"]);
    assert!(ran.stderr.contains("refuses the user"), "{}", ran.stderr);
    let told = world.folder.path().join("nowhere.jsonl");
    could_not(
        &world.reconcile(&["--told", told.to_str().unwrap()]),
        &["told"],
    );
    world.sale = dropgate_domain::SaleId::new("drop-2")?;
    let ran = world.reconcile(&[]);
    could_not(&ran, &["sale"]);
    assert!(
        ran.stderr.contains("there is no sale drop-2"),
        "{}",
        ran.stderr
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_configuration_is_told_at_once() -> Result<()> {
    let world = World::sold(1, 1).await?;
    let mut variables = with(&world, "DROPGATE_RECONCILER__PAGE_ROWS", "0");
    variables.push(("DROPGATE_STORE__POOL".into(), "1".into()));
    let ran = world.reconcile_with(&variables, &[]);
    assert_eq!(ran.code, 2, "{ran:#?}");
    for key in ["reconciler.page_rows", "store.pool"] {
        assert!(ran.stderr.contains(key), "{}", ran.stderr);
    }
    Ok(())
}
