//! The reader that all services share loses nothing, however it is interrupted.

use crate::world::{PATIENCE, World, claim_through, opened};
use anyhow::{Result, ensure};
use dropgate_domain::{Applied, Definition, SaleId, Seq, What};
use dropgate_engine::Fold;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// What each sale's steps brought, in order.
type Brought = BTreeMap<SaleId, Vec<Applied>>;

/// Steps until `events` events were brought, each step given up after a while that `bound` draws.
async fn drain(
    fold: &mut Fold,
    events: usize,
    mut bound: impl FnMut() -> Duration,
) -> Result<(Brought, usize)> {
    let (mut brought, mut cancelled) = (Brought::new(), 0);
    let deadline = Instant::now() + PATIENCE;
    while brought.values().map(Vec::len).sum::<usize>() < events {
        let step = fold.step(Duration::from_millis(5));
        match tokio::time::timeout(bound(), step).await {
            Ok(step) => {
                for (sale, applied) in step?.applied {
                    brought
                        .entry(sale.id().clone())
                        .or_default()
                        .extend(applied);
                }
            }
            Err(_) => cancelled += 1,
        }
        let so_far: usize = brought.values().map(Vec::len).sum();
        ensure!(
            Instant::now() < deadline,
            "{so_far} of {events} events came"
        );
    }
    Ok((brought, cancelled))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_step_that_is_given_up_anywhere_loses_and_repeats_nothing() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    // Open before any sale is there: each of them makes the reader look at the index in the
    // middle of a batch.
    let mut interrupted = Fold::open(&world.log).await?;
    let (sales, wins) = (24, 5);
    let selling = async {
        for n in 0..sales {
            let sale = opened(&engine, &format!("sale-{n}"), Definition::of(wins)).await?;
            for user in 0..wins as usize {
                claim_through(&sale, user).await?;
            }
        }
        anyhow::Ok(())
    };
    let events = sales * (1 + wins as usize);
    let mut draw = 7u64;
    let bound = || {
        draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        Duration::from_micros((draw >> 33) % 3000)
    };
    let (sold, drained) = tokio::join!(selling, drain(&mut interrupted, events, bound));
    sold?;
    let (brought, cancelled) = drained?;
    println!("{cancelled} steps were given up");
    ensure!(cancelled > sales, "only {cancelled} steps were given up");
    let mut straight = Fold::open(&world.log).await?;
    let (whole, _) = drain(&mut straight, events, || PATIENCE).await?;
    assert_eq!(brought.len(), sales);
    for (sale, applied) in &whole {
        let seqs: Vec<Seq> = applied.iter().map(|applied| applied.position.seq).collect();
        assert_eq!(seqs, (0..=wins).map(Seq).collect::<Vec<_>>(), "{sale}");
        assert_eq!(applied[0].what, What::Started);
        assert_eq!(brought.get(sale), Some(applied), "{sale}");
    }
    engine.shutdown().await;
    Ok(())
}
