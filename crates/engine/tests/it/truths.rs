//! "Sold out" and "void" are answers too: never a guess.

use crate::faults::claim_and_die;
use crate::world::{World, claim, claim_through, opened, sale_id, until, user, win};
use anyhow::{Context, Result, bail};
use dropgate_admission::Claimed;
use dropgate_domain::{Body, ClaimId, Definition, Generation};
use dropgate_engine::{Answer, EngineConfig, LookUp, Unavailable};
use dropgate_events::decode_event;
use dropgate_stream::Lane;
use std::time::Duration;

/// Nothing is relayed, and nobody waits long for what does not come.
fn impatient() -> EngineConfig {
    EngineConfig {
        relay_after: Duration::from_secs(60),
        confirm_max: Duration::from_millis(200),
        ..EngineConfig::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sold_out_is_not_told_while_the_last_win_is_not_in_the_log() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine_with(impatient(), true).await?;
    let sale = opened(&engine, "drop", Definition::of(1)).await?;
    let last = claim_and_die(&world, &sale, 1).await?;
    assert!(matches!(last, Claimed::Won { .. }), "{last:?}");
    // Redis has none left, and its word may be lost yet, with the win behind it.
    for _ in 0..3 {
        assert_eq!(
            claim(&sale, 2).await,
            Answer::Unavailable(Unavailable::Busy)
        );
    }
    let relays = world.engine().await?;
    until("the last win to be in the log", || {
        sale.win_of(&user(1)).map(|_| ())
    })
    .await?;
    assert_eq!(claim_through(&sale, 2).await?, Answer::SoldOut);
    engine.shutdown().await;
    relays.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_win_that_redis_lost_on_its_way_is_pending_and_then_won_and_never_void() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine_with(impatient(), true).await?;
    let sale = opened(&engine, "drop", Definition::of(5)).await?;
    let Claimed::Won { seq, event } = claim_and_die(&world, &sale, 1).await? else {
        bail!("no win")
    };
    let Body::Won(won) = decode_event(&event)?.event.body else {
        bail!("no win")
    };
    let id = ClaimId {
        generation: Generation(1),
        seq,
        attempt: won.attempt,
    };
    world.redis.cli(&["FLUSHALL"])?;
    assert_eq!(
        claim(&sale, 2).await,
        Answer::Unavailable(Unavailable::Halted)
    );
    // Redis knows nothing of it any more; the log has not decided.
    assert_eq!(sale.look_up(&id, &user(1)), LookUp::Pending);
    let lane = Lane::Claims(sale.sale().pin().partition);
    world.log.append(lane, event).await?;
    let found = until("the log to decide", || match sale.look_up(&id, &user(1)) {
        LookUp::Pending => None,
        other => Some(other),
    })
    .await?;
    assert!(
        matches!(&found, LookUp::Won(mine) if mine.unit == won.unit),
        "{found:?}"
    );
    let other = world.engine().await?;
    let there = other
        .sale(&sale_id("drop"))
        .context("the other gateway's")?;
    assert_eq!(win(&claim_through(&there, 1).await?)?.claim(), id);
    engine.shutdown().await;
    other.shutdown().await;
    Ok(())
}
