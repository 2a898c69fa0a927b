//! Recovering a sale, whatever Redis still has of it.

use crate::world::{PATIENCE, World, claim, claim_through, opened, sale_id, until, user, win};
use anyhow::{Context, Result, bail};
use dropgate_admission::{Admission, Claimed, Operator, RedisConfig, Scope};
use dropgate_domain::{Definition, Generation, Phase, Seq};
use dropgate_engine::{
    Answer, Condition, Engine, EngineConfig, Progress, Recovered, Recovery, SaleHandle, Unavailable,
};
use parking_lot::Mutex;
use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

fn recovery(sale: &SaleHandle, from: u32) -> Recovery {
    Recovery {
        sale: sale.sale().id().clone(),
        from: Generation(from),
        by: "a test".into(),
        reason: "to see".into(),
    }
}

async fn recover(engine: &Engine, sale: &SaleHandle, from: u32) -> Result<Recovered> {
    Ok(engine.recover(&recovery(sale, from), &|_| {}).await?)
}

/// What Redis holds of a generation must be what the ledger says: entry by entry.
async fn redis_is_the_ledger(world: &World, sale: &SaleHandle) -> Result<()> {
    let operator = Operator::connect(&RedisConfig::at(&world.redis.operator_url())).await?;
    let (scope, applied, wins) = {
        let ledger = sale.sale().ledger();
        let pin = sale.sale().pin();
        (
            Scope::new(pin.sale.clone(), pin.log_id, ledger.generation()),
            ledger.applied(),
            ledger.wins().to_vec(),
        )
    };
    assert_eq!(
        operator.current(sale.sale().id()).await?.as_deref(),
        Some(scope.tag())
    );
    let state = operator.state(&scope).await?.context("a state")?;
    assert_eq!(state.seq, applied);
    assert_eq!(state.next.0, wins.len() as u64 + 1);
    let mut found = Vec::new();
    let mut from = None;
    loop {
        let page = operator.scan_claims(&scope, from.as_deref()).await?;
        found.extend(page.claims);
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    let mut flat: Vec<_> = found
        .iter()
        .flat_map(|(user, entries)| entries.iter().map(move |e| (e.seq, e.unit, user.clone())))
        .collect();
    flat.sort();
    let expected: Vec<_> = wins
        .iter()
        .map(|win| (win.seq, win.unit, win.user.clone()))
        .collect();
    assert_eq!(flat, expected);
    operator.shutdown().await;
    Ok(())
}

async fn live(sale: &SaleHandle, generation: u32) -> Result<()> {
    until("the generation to be live", || {
        let standing = sale.standing();
        (standing.generation == Generation(generation) && standing.condition == Condition::Live)
            .then_some(())
    })
    .await
}

/// Sells some, lets Redis forget by these commands, recovers, sells the rest; nobody who was told
/// loses and no unit is sold twice.
async fn sells_on_after(commands: &[&[&str]]) -> Result<()> {
    let world = World::start().await?;
    let (one, two) = (world.engine().await?, world.engine().await?);
    let sale = opened(&one, "drop", Definition::of(20)).await?;
    let mut told = Vec::new();
    for n in 0..8 {
        told.push(win(&claim_through(&sale, n).await?)?.clone());
    }
    for command in commands {
        world.redis.cli(command)?;
    }
    until("it is seen", || match sale.standing().condition {
        Condition::Halted(_) | Condition::Ended(_) => Some(()),
        _ => {
            // A claim finds it at once; without one the tip does.
            None
        }
    })
    .await?;
    assert_eq!(
        recover(&one, &sale, 1).await?,
        Recovered::Begun(Generation(2))
    );
    live(&sale, 2).await?;
    redis_is_the_ledger(&world, &sale).await?;
    let other = two.sale(&sale_id("drop")).context("the other gateway's")?;
    live(&other, 2).await?;
    for (n, mine) in told.iter().enumerate() {
        assert_eq!(win(&claim_through(&other, n).await?)?, mine);
    }
    for n in 8..20 {
        win(&claim_through(&other, n).await?)?;
    }
    assert_eq!(claim_through(&sale, 99).await?, Answer::SoldOut);
    sale.sale().ledger().check()?;
    one.shutdown().await;
    two.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_with_all_data_and_no_scripts_sells_on() -> Result<()> {
    sells_on_after(&[&["SCRIPT", "FLUSH"]]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_with_nothing_sells_on() -> Result<()> {
    sells_on_after(&[&["FLUSHALL"]]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_with_nothing_and_no_scripts_sells_on() -> Result<()> {
    sells_on_after(&[&["FLUSHALL"], &["SCRIPT", "FLUSH"]]).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waited_in_the_outbox_is_won_and_not_void() -> Result<()> {
    let world = World::start().await?;
    let config = dropgate_engine::EngineConfig {
        // Nothing is relayed: only the recovery can bring it into the log.
        relay_after: Duration::from_secs(60),
        ..dropgate_engine::EngineConfig::default()
    };
    let engine = world.engine_with(config, true).await?;
    let sale = opened(&engine, "drop", Definition::of(5)).await?;
    win(&claim_through(&sale, 1).await?)?;
    for n in 2..4 {
        crate::faults::claim_and_die(&world, &sale, n).await?;
    }
    world.redis.cli(&["SCRIPT", "FLUSH"])?;
    assert_eq!(
        claim(&sale, 9).await,
        Answer::Unavailable(Unavailable::Halted)
    );
    let steps = Mutex::new(Vec::new());
    let recovered = engine
        .recover(&recovery(&sale, 1), &|step| steps.lock().push(step))
        .await?;
    assert_eq!(recovered, Recovered::Begun(Generation(2)));
    let steps = steps.into_inner();
    assert_eq!(steps[0], Progress::Certified);
    assert_eq!(steps[1], Progress::Halted { found: true });
    assert_eq!(steps[2], Progress::Published { events: 2 });
    assert!(
        matches!(steps[3], Progress::Started { wins: 3, .. }),
        "{steps:?}"
    );
    assert_eq!(steps.last(), Some(&Progress::Switched));
    for n in 2..4 {
        assert_eq!(
            win(&claim_through(&sale, n).await?)?.generation,
            Generation(1)
        );
    }
    redis_is_the_ledger(&world, &sale).await?;
    engine.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn users_with_several_wins_come_back_whole_and_old_generations_are_deleted() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let definition = Definition {
        per_user_limit: 3,
        ..Definition::of(3_000)
    };
    let sale = opened(&engine, "drop", definition).await?;
    for round in 0..3 {
        let claims = (0..700).map(|n| {
            let key = dropgate_domain::IdempotencyKey::new(&format!("k{round}")).unwrap();
            sale.claim(user(n), key, crate::world::attempt())
        });
        for answer in futures::future::join_all(claims).await {
            win(&answer)?;
        }
    }
    for generation in 1..4 {
        assert_eq!(
            recover(&engine, &sale, generation).await?,
            Recovered::Begun(Generation(generation + 1))
        );
        live(&sale, generation + 1).await?;
        redis_is_the_ledger(&world, &sale).await?;
    }
    let keys = world.redis.cli(&["KEYS", "dropgate:{drop}:*"])?;
    let generations: std::collections::BTreeSet<_> = keys
        .lines()
        .filter_map(|key| key.rsplit(':').nth(1))
        .collect();
    assert_eq!(
        generations
            .into_iter()
            .filter(|g| g.len() < 3)
            .collect::<Vec<_>>(),
        ["3", "4"],
        "{keys}"
    );
    engine.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_recoveries_at_once_one_begins_and_the_other_leaves() -> Result<()> {
    let rounds: u32 = std::env::var("RECOVERIES")
        .ok()
        .and_then(|rounds| rounds.parse().ok())
        .unwrap_or(10);
    let world = World::start().await?;
    let (one, two) = (world.engine().await?, world.engine().await?);
    let sale = opened(&one, "drop", Definition::of(u64::from(rounds) + 1)).await?;
    let other = two.sale(&sale_id("drop")).context("the other gateway's")?;
    let mut user = 0;
    win(&claim_through(&sale, user).await?)?;
    let mut both = 0;
    for round in 1..=rounds {
        live(&other, round).await?;
        let (a, b) = tokio::join!(recover(&one, &sale, round), recover(&two, &other, round));
        let next = Generation(round + 1);
        let begun = [&a, &b]
            .iter()
            .filter(|r| matches!(r, Ok(Recovered::Begun(g)) if *g == next))
            .count();
        assert_eq!(begun, 1, "round {round}: {a:?} {b:?}");
        both += usize::from(a.is_ok() && b.is_ok());
        live(&sale, round + 1).await?;
        live(&other, round + 1).await?;
        redis_is_the_ledger(&world, &sale).await?;
        user += 1;
        win(&claim_through(&other, user).await?)?;
    }
    println!("{rounds} races: one generation each; in {both} the loser saw that it was overtaken");
    sale.sale().ledger().check()?;
    assert_eq!(sale.sale().ledger().applied(), Seq(u64::from(rounds) + 1));
    one.shutdown().await;
    two.shutdown().await;
    Ok(())
}

/// For many recoveries, some steps of which wait for the next question of these.
fn quick() -> EngineConfig {
    EngineConfig {
        freshness_interval: Duration::from_millis(20),
        tip_interval: Duration::from_millis(100),
        // What waits in the outbox is the recoveries' business.
        relay_after: Duration::from_secs(60),
        ..EngineConfig::default()
    }
}

/// Polls so many times at most: the output, or `None` when it is not done by then.
async fn polled<F: Future + Unpin>(future: &mut F, polls: u32) -> Option<F::Output> {
    let mut left = polls;
    std::future::poll_fn(|context| match Pin::new(&mut *future).poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if left == 1 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}

/// A recovery that is given up at its n-th wait, wherever that is; the next one brings the same
/// end state. Then one that is paused there, and goes on after another has come in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recovery_that_is_given_up_or_paused_at_any_step_ends_the_same() -> Result<()> {
    let world = World::start().await?;
    let one = world.engine_with(quick(), true).await?;
    let two = world.engine_with(quick(), true).await?;
    let sale = opened(&one, "drop", Definition::of(1_000)).await?;
    let other = two.sale(&sale_id("drop")).context("the other gateway's")?;
    let mut user = 0;
    let mut given_up_at = Vec::new();
    for paused in [false, true] {
        // Until it comes to its end before it can be given up.
        for polls in 1.. {
            user += 2;
            win(&claim_through(&sale, user - 1).await?)?;
            let left_behind = crate::faults::claim_and_die(&world, &sale, user).await?;
            assert!(
                matches!(left_behind, Claimed::Won { .. }),
                "{left_behind:?}"
            );
            let generation = sale.sale().ledger().generation();
            let last = Arc::new(Mutex::new(None));
            let seen = Arc::clone(&last);
            let recovery = recovery(&sale, generation.0);
            let on_progress = move |step| *seen.lock() = Some(step);
            let mut first = Box::pin(one.recover(&recovery, &on_progress));
            let ended = polled(&mut first, polls).await;
            given_up_at.push((*last.lock()).map(|step| std::mem::discriminant(&step)));
            let done = ended.is_some();
            if !paused || done {
                drop(first);
                begins_the_next(&two, &other).await?;
            } else {
                begins_the_next(&two, &other).await?;
                // It goes on where it was, and must find that its time is over.
                let late = tokio::time::timeout(PATIENCE, pin!(first)).await?;
                println!("paused at {:?}, then {late:?}", last.lock());
                assert!(
                    !matches!(late, Ok(Recovered::Begun(g)) if g > other.sale().ledger().generation())
                );
            }
            let now = other.sale().ledger().generation();
            live(&other, now.0).await?;
            live(&sale, now.0).await?;
            redis_is_the_ledger(&world, &other).await?;
            let found = claim_through(&other, user).await?;
            assert_eq!(
                win(&found)?.generation,
                generation,
                "given up at poll {polls}: whoever takes over publishes what was left behind"
            );
            if done {
                println!("given up at each of {polls} polls");
                break;
            }
        }
    }
    given_up_at.dedup();
    assert!(given_up_at.len() > 5, "of few steps: {given_up_at:?}");
    assert_eq!(sale.sale().ledger().applied(), Seq(user as u64));
    sale.sale().ledger().check()?;
    one.shutdown().await;
    two.shutdown().await;
    Ok(())
}

/// Recovers until the sale is live, as the watch would.
async fn begins_the_next(engine: &Engine, sale: &SaleHandle) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = sale.sale().ledger().generation();
        match recover(engine, sale, before.0).await {
            Ok(Recovered::Begun(_)) => return Ok(()),
            other if Instant::now() > deadline => bail!("the last: {other:?}"),
            _ => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_is_not_recovered_on_a_redis_that_is_not_fit() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let sale = opened(&engine, "drop", Definition::of(5)).await?;
    world
        .redis
        .cli(&["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"])?;
    let refused = recover(&engine, &sale, 1).await;
    assert!(
        refused
            .as_ref()
            .is_err_and(|e| e.to_string().contains("allkeys-lru")),
        "{refused:?}"
    );
    assert_eq!(
        sale.sale().ledger().generation(),
        Generation(1),
        "nothing was begun"
    );
    assert!(
        matches!(sale.sale().phase(), Phase::Open),
        "and nothing was halted"
    );
    engine.shutdown().await;
    Ok(())
}

/// A Redis that was set back, with the scripts of the generation still loaded: it names an older
/// generation as current.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_went_back_to_an_older_generation_halts_the_sale() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let sale = opened(&engine, "drop", Definition::of(5)).await?;
    let old = world.redis.cli(&["GET", "dropgate:{drop}:current"])?;
    recover(&engine, &sale, 1).await?;
    live(&sale, 2).await?;
    world
        .redis
        .cli(&["SET", "dropgate:{drop}:current", old.trim()])?;
    until("the tip finds it", || {
        matches!(sale.sale().phase(), Phase::Halted(_)).then_some(())
    })
    .await?;
    assert_eq!(
        recover(&engine, &sale, 2).await?,
        Recovered::Begun(Generation(3))
    );
    live(&sale, 3).await?;
    win(&claim_through(&sale, 1).await?)?;
    engine.shutdown().await;
    Ok(())
}

/// A gateway without the operator's credentials recovers nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recovering_needs_the_operators_credentials() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let sale = opened(&engine, "drop", Definition::of(5)).await?;
    let restricted = world
        .engine_with(dropgate_engine::EngineConfig::default(), false)
        .await?;
    let handle = restricted.sale(&sale_id("drop")).context("there")?;
    let refused = restricted.recover(&recovery(&handle, 1), &|_| {}).await;
    assert_eq!(
        refused,
        Err(dropgate_engine::AdminError::OperatorCredentialsMissing)
    );
    let _ = Admission::connect(&RedisConfig::at(&world.redis.gateway_url())).await?;
    assert_eq!(sale.sale().ledger().generation(), Generation(1));
    engine.shutdown().await;
    restricted.shutdown().await;
    Ok(())
}
