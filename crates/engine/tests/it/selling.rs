//! What a sale promises on a good day.

use crate::world::{World, attempt, claim, claim_through, opened, sale_id, until, user, win};
use anyhow::Result;
use dropgate_domain::{Definition, Generation, IdempotencyKey, TimeMs, Unit};
use dropgate_engine::{
    AdminError, Answer, Closed, EngineConfig, LookUp, Opened, State, Unavailable,
};
use futures::future::join_all;
use std::collections::{BTreeSet, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

fn now_ms() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_millis() as u64
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crowd_on_two_gateways_gets_each_unit_once() -> Result<()> {
    let world = World::start().await?;
    let (one, two) = (world.engine().await?, world.engine().await?);
    let (stock, users) = (100, 1000);
    let here = opened(&one, "drop", Definition::of(stock)).await?;
    let there = until("the other gateway knows the sale", || {
        two.sale(&sale_id("drop"))
    })
    .await?;
    // Everybody clicks twice, at two gateways, at once.
    let clicks = (0..2 * users).map(|n| {
        let sale = if n % 2 == 0 {
            here.clone()
        } else {
            there.clone()
        };
        async move { (n / 2, claim_through(&sale, n / 2).await) }
    });
    let mut units: HashMap<usize, BTreeSet<Unit>> = HashMap::new();
    let (mut first, mut sold_out) = (0, 0);
    for (n, answer) in join_all(clicks).await {
        match answer? {
            Answer::SoldOut => sold_out += 1,
            answer => {
                first += usize::from(matches!(answer, Answer::Won(_)));
                units.entry(n).or_default().insert(win(&answer)?.unit);
            }
        }
    }
    assert_eq!(units.len() as u64, stock, "one winner for each unit");
    assert!(
        units.values().all(|own| own.len() == 1),
        "a repeat is shown the same unit"
    );
    let all: BTreeSet<u64> = units.values().flatten().map(|unit| unit.0).collect();
    assert_eq!(all, (1..=stock).collect());
    assert_eq!(sold_out, 2 * (users - units.len()));
    assert!(first >= units.len());
    for sale in [&here, &there] {
        let ledger = sale.sale().ledger();
        ledger.check()?;
        assert_eq!(ledger.counts().sold, stock);
        assert_eq!(ledger.position(), here.sale().ledger().position());
    }
    one.shutdown().await;
    two.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stock_of_nothing_is_sold_out_and_a_stock_of_one_has_one_winner() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let none = opened(&engine, "none", Definition::of(0)).await?;
    assert_eq!(claim_through(&none, 1).await?, Answer::SoldOut);
    assert_eq!(none.view(TimeMs(now_ms())).state, State::SoldOut);
    let single = opened(&engine, "single", Definition::of(1)).await?;
    let answers = join_all((0..50).map(|n| claim_through(&single, n))).await;
    let wins = answers.iter().flatten().filter(|a| win(a).is_ok()).count();
    assert_eq!(wins, 1);
    // Two sales do not share a stock.
    assert_eq!(none.sale().ledger().counts().sold, 0);
    engine.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_above_one_is_counted_by_key() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let definition = Definition {
        per_user_limit: 2,
        ..Definition::of(10)
    };
    let sale = opened(&engine, "two-each", definition).await?;
    let with = |key: &'static str| {
        let key = IdempotencyKey::new(key).unwrap();
        sale.claim(user(1), key, attempt())
    };
    let a = with("a").await;
    assert_eq!(win(&with("a").await)?.unit, win(&a)?.unit);
    assert_eq!(
        win(&with("").await)?.unit,
        win(&a)?.unit,
        "no key: the first"
    );
    let b = with("b").await;
    assert_ne!(win(&b)?.unit, win(&a)?.unit);
    let Answer::LimitReached(wins) = with("c").await else {
        panic!("a third unit")
    };
    assert_eq!(wins.len(), 2);
    // Many more at once do not get past it.
    let more = join_all((0..100).map(|n| {
        let key = IdempotencyKey::new(&format!("k{n}")).unwrap();
        sale.claim(user(2), key, attempt())
    }))
    .await;
    assert!(more.iter().all(|a| !matches!(a, Answer::SoldOut)));
    assert_eq!(sale.sale().ledger().wins_of(&user(2)).count(), 2);
    engine.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_opens_and_closes_by_its_times_and_by_command() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let later = TimeMs(now_ms() + 3_600_000);
    let early = Definition {
        opens_at: Some(later),
        ..Definition::of(5)
    };
    let sale = opened(&engine, "early", early).await?;
    assert_eq!(claim(&sale, 1).await, Answer::Early { opens_at: later });
    assert_eq!(sale.view(TimeMs(now_ms())).state, State::Scheduled);

    let brief = Definition {
        closes_at: Some(TimeMs(now_ms() + 1500)),
        ..Definition::of(5)
    };
    let sale = opened(&engine, "brief", brief).await?;
    until("the log says that the time is over", || {
        sale.sale().ledger().closed_at()
    })
    .await?;
    assert_eq!(claim(&sale, 1).await, Answer::Closed);

    let sale = opened(&engine, "by-hand", Definition::of(5)).await?;
    let id = sale_id("by-hand");
    let before = claim_through(&sale, 1).await?;
    assert_eq!(engine.open(&id, "test").await, Ok(Opened::Already));
    assert_eq!(engine.close(&id).await, Ok(Closed::Closed));
    assert_eq!(engine.close(&id).await, Ok(Closed::Already));
    assert_eq!(engine.open(&id, "test").await, Err(AdminError::Closed));
    assert_eq!(claim(&sale, 2).await, Answer::Closed);
    assert_eq!(
        win(&claim(&sale, 1).await)?,
        win(&before)?,
        "a win is shown after the close"
    );
    engine.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_openings_at_once_are_one() -> Result<()> {
    let world = World::start().await?;
    let (one, two) = (world.engine().await?, world.engine().await?);
    let id = sale_id("raced");
    let created = join_all([
        one.create(id.clone(), Definition::of(5)),
        two.create(id.clone(), Definition::of(5)),
    ])
    .await;
    assert!(created.iter().all(Result::is_ok), "{created:?}");
    let other = one.create(id.clone(), Definition::of(6)).await;
    assert_eq!(other.unwrap_err(), AdminError::Exists);
    let opened = join_all([one.open(&id, "one"), two.open(&id, "two")]).await;
    assert!(opened.contains(&Ok(Opened::Opened)), "{opened:?}");
    assert!(opened.iter().all(Result::is_ok), "{opened:?}");
    let sale = one.sale(&id).unwrap();
    win(&claim_through(&sale, 1).await?)?;
    assert_eq!(sale.sale().ledger().generation(), Generation(1));
    one.shutdown().await;
    two.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn opening_needs_the_operators_credentials() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine_with(EngineConfig::default(), false).await?;
    let id = sale_id("drop");
    engine.create(id.clone(), Definition::of(5)).await?;
    let refused = engine.open(&id, "test").await;
    assert_eq!(refused, Err(AdminError::OperatorCredentialsMissing));
    let sale = engine.sale(&id).unwrap();
    assert_eq!(
        claim(&sale, 1).await,
        Answer::Unavailable(Unavailable::Starting)
    );
    engine.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_is_shown_to_its_user_alone() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let sale = opened(&engine, "drop", Definition::of(5)).await?;
    let answer = claim_through(&sale, 1).await?;
    let mine = win(&answer)?;
    assert_eq!(
        sale.look_up(&mine.claim(), &user(1)),
        LookUp::Won(mine.clone())
    );
    assert_eq!(sale.look_up(&mine.claim(), &user(2)), LookUp::NotFound);
    let mut never = mine.claim();
    never.attempt = attempt();
    assert_eq!(sale.look_up(&never, &user(1)), LookUp::Void);
    never.seq.0 = u64::MAX;
    assert_eq!(sale.look_up(&never, &user(1)), LookUp::NotFound);
    engine.shutdown().await;
    Ok(())
}

/// Sold out is told from memory: the number of calls to Redis follows the time, not the users.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sold_out_costs_redis_one_call_for_each_latch() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let sale = opened(&engine, "drop", Definition::of(1)).await?;
    win(&claim_through(&sale, 0).await?)?;
    assert_eq!(claim_through(&sale, 1).await?, Answer::SoldOut);
    let calls = || -> Result<u64> {
        let stats = world.redis.cli(&["INFO", "commandstats"])?;
        let line = stats
            .lines()
            .find(|l| l.starts_with("cmdstat_evalsha:"))
            .unwrap_or("calls=0");
        let count = line
            .split("calls=")
            .nth(1)
            .and_then(|rest| rest.split(',').next());
        Ok(count.unwrap_or("0").trim().parse()?)
    };
    let (before, begun) = (calls()?, std::time::Instant::now());
    let mut told = 0;
    for round in 0..100 {
        let answers = join_all((0..100).map(|n| claim(&sale, 2 + round * 100 + n))).await;
        told += answers.iter().filter(|a| **a == Answer::SoldOut).count();
        assert_eq!(
            win(&claim(&sale, 0).await)?.unit,
            Unit(1),
            "the winner is never latched out"
        );
    }
    let (calls, latches) = (calls()? - before, begun.elapsed().as_millis() / 200 + 1);
    println!("{told} told in {:?} with {calls} calls", begun.elapsed());
    assert_eq!(told, 10_000);
    // One a latch to renew it, and the tips: one a second, more when somebody asks.
    assert!(
        u128::from(calls) <= 4 * latches + 20,
        "{calls} calls in {latches} latches"
    );
    engine.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_comes_later_knows_all_wins() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let sale = opened(&engine, "drop", Definition::of(20)).await?;
    let answers = join_all((0..20).map(|n| claim_through(&sale, n))).await;
    engine.shutdown().await;
    let engine = world.engine().await?;
    until("the gateway is ready", || engine.ready().ok()).await?;
    let sale = engine.sale(&sale_id("drop")).unwrap();
    for (n, answer) in answers.into_iter().enumerate() {
        assert_eq!(win(&claim_through(&sale, n).await?)?, win(&answer?)?);
    }
    assert_eq!(claim_through(&sale, 99).await?, Answer::SoldOut);
    engine.shutdown().await;
    Ok(())
}
