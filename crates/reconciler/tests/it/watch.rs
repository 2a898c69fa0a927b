//! The watch: a sale in trouble sells on with nobody at the keyboard.

use crate::world::{PATIENCE, World};
use anyhow::{Context, Result, bail};
use dropgate_admission::{Admission, RedisConfig, hashes_for};
use dropgate_domain::*;
use dropgate_engine::{Condition, Engine, EngineConfig, Recovered, Recovery};
use dropgate_reconciler::watch::{Board, Metrics, Watch, WatchConfig};
use dropgate_stream::Lane;
use prometheus_client::registry::Registry;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

struct Watching {
    engine: Engine,
    board: Board,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Watching {
    async fn start(world: &World, config: WatchConfig) -> Result<Self> {
        let redis = RedisConfig::at(&world.redis.operator_url());
        let mut registry = Registry::default();
        let engine = Engine::start(
            EngineConfig::default(),
            "watch".to_owned(),
            world.log.clone(),
            Admission::connect(&redis).await?,
            Some(redis),
            &mut registry,
        )
        .await?;
        let metrics = Metrics::register(&mut registry);
        let watch = Watch::new(engine.clone(), config, "watch".to_owned(), metrics);
        let (board, stop) = (watch.board(), CancellationToken::new());
        let task = tokio::spawn(watch.run(stop.clone()));
        Ok(Self {
            engine,
            board,
            stop,
            task,
        })
    }

    async fn end(self) -> Result<()> {
        self.stop.cancel();
        self.task.await?;
        self.engine.shutdown().await;
        Ok(())
    }

    fn says(&self) -> Vec<(&'static str, String)> {
        let thoughts = self.board.thoughts().into_iter();
        thoughts.map(|t| (t.next, t.says)).collect()
    }
}

async fn until(what: &str, look: impl Fn() -> Result<(), String>) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let Err(seen) = look() else { return Ok(()) };
        if Instant::now() > deadline {
            bail!("not within {PATIENCE:?}: {what}; the last was {seen}");
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// The gateway of this world serves this generation.
async fn live(world: &World, generation: u32) -> Result<()> {
    let handle = world.engine.sale(&world.sale).context("the sale")?;
    until("the next generation to be live", || {
        let standing = handle.standing();
        if standing.condition == Condition::Live && standing.generation == Generation(generation) {
            Ok(())
        } else {
            Err(format!("{standing:?}"))
        }
    })
    .await
}

fn forget(world: &World) -> Result<()> {
    world.redis.cli(&["FLUSHALL"])?;
    world.redis.cli(&["SCRIPT", "FLUSH"])?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_forgot_everything_sells_on_and_nobody_loses() -> Result<()> {
    let world = World::created(Definition::of(50)).await?;
    world.open().await?;
    let one = Watching::start(&world, WatchConfig::default()).await?;
    // Two of them: the log lets one begin.
    let two = Watching::start(&world, WatchConfig::default()).await?;
    world.claim_all(1..=20).await?;
    let told = world.wins();
    forget(&world)?;
    live(&world, 2).await?;
    world.claim_all(15..=50).await?;
    let wins = world.wins();
    assert_eq!(&wins[..told.len()], &told[..]);
    assert_eq!(wins.len(), 50);
    let handle = world.engine.sale(&world.sale).context("the sale")?;
    handle.sale().ledger().check()?;
    assert_eq!(handle.sale().ledger().generation(), Generation(2));
    one.end().await?;
    two.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_three_recoveries_the_sale_stays_closed_and_says_so_until_a_person_recovers_it()
-> Result<()> {
    let world = World::created(Definition::of(50)).await?;
    world.open().await?;
    let watch = Watching::start(&world, WatchConfig::default()).await?;
    for generation in 2..=4 {
        forget(&world)?;
        live(&world, generation).await?;
    }
    forget(&world)?;
    until("the watch to give up", || match &watch.says()[..] {
        [("stays_closed", says)] if says.contains("by hand") => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await?;
    let handle = world.engine.sale(&world.sale).context("the sale")?;
    assert_eq!(handle.standing().generation, Generation(4));
    let by_hand = Recovery {
        sale: world.sale.clone(),
        from: Generation(4),
        by: "a person".into(),
        reason: "looked into it".into(),
    };
    let recovered = world.engine.recover(&by_hand, &|_| {}).await?;
    assert_eq!(recovered, Recovered::Begun(Generation(5)));
    live(&world, 5).await?;
    world.claim_all(1..=1).await?;
    until("the watch to see that it is well", || {
        let says = watch.says();
        if says.is_empty() {
            Ok(())
        } else {
            Err(format!("{says:?}"))
        }
    })
    .await?;
    watch.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_holds_the_watch_and_its_removal_lets_it_go() -> Result<()> {
    let world = World::created(Definition::of(5)).await?;
    world.open().await?;
    let file = world.folder.path().join("hold");
    std::fs::write(&file, "")?;
    let config = WatchConfig {
        hold_file: Some(file.clone()),
        ..WatchConfig::default()
    };
    let watch = Watching::start(&world, config).await?;
    forget(&world)?;
    until("the watch to be held", || match &watch.says()[..] {
        [("held", _)] => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await?;
    let handle = world.engine.sale(&world.sale).context("the sale")?;
    assert_eq!(handle.standing().generation, Generation(1));
    std::fs::remove_file(&file)?;
    live(&world, 2).await?;
    watch.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_generation_whose_builder_died_is_followed_by_one_that_lives() -> Result<()> {
    let world = World::created(Definition::of(5)).await?;
    world.open().await?;
    world.claim_all(1..=2).await?;
    let handle = world.engine.sale(&world.sale).context("the sale")?;
    let started = Event {
        sale: world.sale.clone(),
        generation: Generation(2),
        body: Body::Started(Box::new(Started {
            identity: Identity([1; 16]),
            nonce: Nonce([1; 16]),
            scripts: hashes_for(Nonce([1; 16])),
            rule: RULE_VERSION,
            calls: CALLS_VERSION,
            window: std::num::NonZeroU32::new(100).context("a window")?,
            definition: None,
            by: "dead".into(),
            reason: "it died right after".into(),
            at: None,
        })),
    };
    let lane = Lane::Claims(handle.sale().pin().partition);
    let bytes = dropgate_events::encode_event(&started);
    world.log.append(lane, bytes).await?;
    let watch = Watching::start(&world, WatchConfig::default()).await?;
    live(&world, 3).await?;
    world.claim_all(1..=5).await?;
    assert_eq!(world.wins().len(), 5);
    watch.end().await
}
