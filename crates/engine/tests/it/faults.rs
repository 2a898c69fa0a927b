//! What a sale promises when something breaks.

use crate::world::{
    PATIENCE, World, attempt, claim, claim_through, opened, sale_id, until, user, win,
};
use anyhow::Result;
use dropgate_admission::{Admission, Claim, Claimed, RedisConfig, Scope, Scripts};
use dropgate_domain::{Definition, Generation, IdempotencyKey, Phase, Seq};
use dropgate_engine::{Answer, Opened, SaleHandle, Unavailable};
use futures::future::join_all;
use std::time::Duration;

/// The calls of a gateway that dies right after them: nothing of it is published.
pub async fn claim_and_die(world: &World, sale: &SaleHandle, n: usize) -> Result<Claimed> {
    let (scope, scripts, applied) = {
        let ledger = sale.sale().ledger();
        let current = ledger.current().unwrap();
        let pin = sale.sale().pin();
        (
            Scope::new(pin.sale.clone(), pin.log_id, current.generation()),
            Scripts::from_started(current.scripts())?,
            ledger.applied(),
        )
    };
    let admission = Admission::connect(&RedisConfig::at(&world.redis.gateway_url())).await?;
    let claim = Claim {
        user: user(n),
        key: IdempotencyKey::none(),
        attempt: attempt(),
    };
    let reply = admission.claim(&scope, &scripts, applied, &claim).await?;
    admission.shutdown().await;
    Ok(reply.value)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_left_behind_by_a_dead_gateway_is_relayed() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let sale = opened(&engine, "drop", Definition::of(5)).await?;
    let Claimed::Won { seq, .. } = claim_and_die(&world, &sale, 1).await? else {
        panic!("no win")
    };
    assert_eq!(seq, Seq(1));
    // Those after it wait for it, and the user finds the claim that nobody told them of.
    let answer = claim_through(&sale, 2).await?;
    assert_eq!(win(&answer)?.seq, Seq(2));
    let found = claim_through(&sale, 1).await?;
    assert_eq!(win(&found)?.seq, Seq(1));
    // Also when it is the last of the sale, with no gap behind it.
    claim_and_die(&world, &sale, 3).await?;
    until("the last event is relayed", || {
        (sale.sale().ledger().applied() == Seq(3)).then_some(())
    })
    .await?;
    engine.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_client_went_away_is_published_all_the_same() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let sale = opened(&engine, "drop", Definition::of(50)).await?;
    for n in 0..50 {
        // Dropped at a random point between the call and the answer.
        let bound = Duration::from_micros(37 * n as u64);
        let _ = tokio::time::timeout(bound, claim(&sale, n)).await;
    }
    for n in 0..50 {
        win(&claim_through(&sale, n).await?)?;
    }
    sale.sale().ledger().check()?;
    engine.shutdown().await;
    Ok(())
}

async fn loses_its_memory(command: &[&str]) -> Result<()> {
    let world = World::start().await?;
    let (one, two) = (world.engine().await?, world.engine().await?);
    let sale = opened(&one, "drop", Definition::of(5)).await?;
    let answer = claim_through(&sale, 1).await?;
    let mine = win(&answer)?.clone();
    let other = two.sale(&sale_id("drop")).unwrap();
    until("the other gateway serves it", || {
        other.win_of(&user(1)).filter(|win| *win == mine)
    })
    .await?;
    world.redis.cli(command)?;
    for n in 0..20 {
        let answer = claim(&sale, 100 + n).await;
        assert!(
            matches!(answer, Answer::Unavailable(_)),
            "{command:?}: never \"sold out\", never a win: {answer:?}"
        );
    }
    assert_eq!(
        claim(&sale, 200).await,
        Answer::Unavailable(Unavailable::Halted)
    );
    until("the halt is in the log, for all to read", || {
        matches!(other.sale().phase(), Phase::Halted(_)).then_some(())
    })
    .await?;
    assert_eq!(
        claim(&other, 201).await,
        Answer::Unavailable(Unavailable::Halted)
    );
    assert_eq!(
        win(&claim(&other, 1).await)?,
        &mine,
        "what was told stays told"
    );
    one.shutdown().await;
    two.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_lost_its_data_halts_the_sale() -> Result<()> {
    loses_its_memory(&["FLUSHALL"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_lost_its_scripts_halts_the_sale() -> Result<()> {
    loses_its_memory(&["SCRIPT", "FLUSH"]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_lost_writes_halts_the_sale_without_any_claim() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let sale = opened(&engine, "drop", Definition::of(5)).await?;
    win(&claim_through(&sale, 1).await?)?;
    let pin = sale.sale().pin();
    let scope = Scope::new(pin.sale.clone(), pin.log_id, Generation(1));
    let state = format!("dropgate:{{drop}}:{}:state", scope.tag());
    // As after the loss of the last write: the number of one event less.
    world.redis.cli(&["HSET", &state, "seq", "0"])?;
    until("the tip finds it", || {
        matches!(sale.sale().phase(), Phase::Halted(_)).then_some(())
    })
    .await?;
    engine.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_hangs_costs_time_and_no_unit() -> Result<()> {
    let mut world = World::start().await?;
    let engine = world.engine().await?;
    let sale = opened(&engine, "drop", Definition::of(10)).await?;
    win(&claim_through(&sale, 0).await?)?;
    world.redis.pause()?;
    let hung = join_all((1..10).map(|n| claim(&sale, n))).await;
    for answer in hung {
        assert_eq!(answer, Answer::Unavailable(Unavailable::Admission));
    }
    world.redis.resume()?;
    // Whether those calls ran late or not at all, each user gets one unit and no more.
    for n in 1..10 {
        win(&claim_through(&sale, n).await?)?;
    }
    assert_eq!(claim_through(&sale, 99).await?, Answer::SoldOut);
    sale.sale().ledger().check()?;
    engine.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opening_that_was_cut_off_is_begun_again() -> Result<()> {
    use dropgate_domain::*;
    let world = World::start().await?;
    let engine = world.engine().await?;
    let id = sale_id("drop");
    engine.create(id.clone(), Definition::of(5)).await?;
    let sale = engine.sale(&id).unwrap();
    // The record of an opener that died right after it.
    let started = Event {
        sale: id.clone(),
        generation: Generation(1),
        body: Body::Started(Box::new(Started {
            identity: Identity([1; 16]),
            nonce: Nonce([1; 16]),
            scripts: dropgate_admission::hashes_for(Nonce([1; 16])),
            rule: RULE_VERSION,
            calls: CALLS_VERSION,
            window: std::num::NonZeroU32::new(100).unwrap(),
            definition: Some(Definition::of(5)),
            by: "dead".into(),
            reason: "opened".into(),
            at: None,
        })),
    };
    let lane = dropgate_stream::Lane::Claims(sale.sale().pin().partition);
    world
        .log
        .append(lane, dropgate_events::encode_event(&started))
        .await?;
    until("it is read", || sale.sale().ledger().position()).await?;
    let answer = claim(&sale, 1).await;
    assert!(
        matches!(answer, Answer::Unavailable(_)),
        "nothing is built: {answer:?}"
    );
    assert_eq!(engine.open(&id, "test").await, Ok(Opened::Opened));
    assert_eq!(sale.sale().ledger().generation(), Generation(2));
    win(&claim_through(&sale, 1).await?)?;
    engine.shutdown().await;
    Ok(())
}

/// With the window full, claims are refused before they take a unit, and go on when it empties.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_window_refuses_and_empties() -> Result<()> {
    let world = World::start().await?;
    let config = dropgate_engine::EngineConfig {
        window: std::num::NonZeroU32::new(4).unwrap(),
        ..dropgate_engine::EngineConfig::default()
    };
    let engine = world.engine_with(config, true).await?;
    let sale = opened(&engine, "drop", Definition::of(20)).await?;
    for n in 0..4 {
        claim_and_die(&world, &sale, n).await?;
    }
    assert_eq!(claim_and_die(&world, &sale, 4).await?, Claimed::Busy);
    println!("waiting at most {PATIENCE:?} for the relay");
    let answers = join_all((0..20).map(|n| claim_through(&sale, n))).await;
    for answer in answers {
        win(&answer?)?;
    }
    sale.sale().ledger().check()?;
    engine.shutdown().await;
    Ok(())
}
