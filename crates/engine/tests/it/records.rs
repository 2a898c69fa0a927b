//! Records that do not belong: counted, stopped at, never applied.

use crate::world::{World, claim_through, opened, sale_id, until, user, win};
use anyhow::Result;
use dropgate_domain::{
    AttemptId, Body, Definition, Digest, Event, Generation, IdempotencyKey, Link, PartitionId, Seq,
    TimeMs, Unit, Won,
};
use dropgate_engine::{Answer, Engine, RecordOutcome, State, Unavailable, Unfollowable};
use dropgate_events::encode_event;
use dropgate_stream::Lane;

fn forged(sale: &str, n: usize) -> bytes::Bytes {
    encode_event(&Event {
        sale: sale_id(sale),
        generation: Generation(1),
        body: Body::Won(Won {
            link: Link {
                seq: Seq(1),
                time: TimeMs(1),
                prev: Digest([0; 20]),
            },
            user: user(n),
            attempt: AttemptId([7; 16]),
            key: IdempotencyKey::none(),
            unit: Unit(1),
        }),
    })
}

/// Two names whose sales share a partition, and the partition.
async fn neighbours(engine: &Engine) -> Result<(String, String, PartitionId)> {
    let mut seen: Vec<(PartitionId, String)> = Vec::new();
    for n in 0..100 {
        let name = format!("sale-{n}");
        let sale = opened(engine, &name, Definition::of(5)).await?;
        let partition = sale.sale().pin().partition;
        if let Some((_, other)) = seen.iter().find(|(p, _)| *p == partition) {
            return Ok((other.clone(), name, partition));
        }
        seen.push((partition, name));
    }
    anyhow::bail!("100 sales share no partition")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_in_a_partition_that_is_not_pinned_for_its_sale_is_counted_only() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let here = opened(&engine, "here", Definition::of(5)).await?;
    let at = here.sale().pin().partition;
    let mut elsewhere = None;
    for n in 0..100 {
        let sale = opened(&engine, &format!("there-{n}"), Definition::of(5)).await?;
        if sale.sale().pin().partition != at {
            elsewhere = Some(sale);
            break;
        }
    }
    let there = elsewhere.unwrap();
    let foreign = || engine.metrics().records(RecordOutcome::Foreign);
    assert_eq!(foreign(), 0);
    // Of a sale that is pinned elsewhere, and of one that nobody created.
    let lane = Lane::Claims(there.sale().pin().partition);
    world.log.append(lane, forged("here", 66)).await?;
    world.log.append(lane, forged("nowhere", 66)).await?;
    until("both are counted", || (foreign() == 2).then_some(())).await?;
    assert_eq!(here.win_of(&user(66)), None);
    win(&claim_through(&here, 1).await?)?;
    win(&claim_through(&there, 1).await?)?;
    engine.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_cannot_be_read_stops_its_sale_and_no_other() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let (a, b, partition) = neighbours(&engine).await?;
    let (hit, spared) = (
        engine.sale(&sale_id(&a)).unwrap(),
        engine.sale(&sale_id(&b)).unwrap(),
    );
    win(&claim_through(&spared, 1).await?)?;
    // Version 2 of an event of the first sale.
    let mut bytes = forged(&a, 66).to_vec();
    bytes[1] = 2;
    world
        .log
        .append(Lane::Claims(partition), bytes.into())
        .await?;
    let why = until("its reader stops", || hit.sale().unfollowable()).await?;
    assert!(
        matches!(&why, Unfollowable::Unreadable { reason, .. } if reason.contains("version 2"))
    );
    let answer = hit
        .claim(user(1), IdempotencyKey::none(), AttemptId([1; 16]))
        .await;
    assert_eq!(answer, Answer::Unavailable(Unavailable::Halted));
    assert_eq!(spared.sale().unfollowable(), None);
    win(&claim_through(&spared, 2).await?)?;
    engine.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_that_name_no_sale_stop_every_sale_of_the_partition() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let (a, b, partition) = neighbours(&engine).await?;
    world
        .log
        .append(
            Lane::Claims(partition),
            bytes::Bytes::from_static(&[0xff; 9]),
        )
        .await?;
    for name in [a, b] {
        let sale = engine.sale(&sale_id(&name)).unwrap();
        until("its reader stops", || sale.sale().unfollowable()).await?;
    }
    engine.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sale_that_cannot_be_followed_is_halted_also_before_its_opening() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    engine
        .create(sale_id("drop"), Definition::of(5))
        .await
        .unwrap();
    let sale = engine.sale(&sale_id("drop")).unwrap();
    let now = TimeMs(0);
    assert_eq!(sale.view(now).state, State::Scheduled);
    let lane = Lane::Claims(sale.sale().pin().partition);
    // Bytes that name no sale are not its business before it is opened; a record of a later
    // version that names it is.
    let junk = bytes::Bytes::from_static(&[0xff; 9]);
    world.log.append(lane, junk).await?;
    let mut later = forged("drop", 66).to_vec();
    later[1] = 2;
    world.log.append(lane, later.into()).await?;
    let why = until("its reader stops", || sale.sale().unfollowable()).await?;
    assert!(why.to_string().contains("version 2"), "{why}");
    assert_eq!(sale.view(now).state, State::Halted);
    engine.shutdown().await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_of_a_generation_that_never_began_stops_the_sale() -> Result<()> {
    let world = World::start().await?;
    let engine = world.engine().await?;
    let sale = opened(&engine, "drop", Definition::of(5)).await?;
    let event = Event {
        sale: sale_id("drop"),
        generation: Generation(7),
        body: Body::Halted(dropgate_domain::Halted {
            reason: "from the future".into(),
            at: None,
            by: "nobody".into(),
        }),
    };
    let lane = Lane::Claims(sale.sale().pin().partition);
    world.log.append(lane, encode_event(&event)).await?;
    let why = until("its reader stops", || sale.sale().unfollowable()).await?;
    assert!(matches!(why, Unfollowable::Stopped(_)), "{why}");
    engine.shutdown().await;
    Ok(())
}
