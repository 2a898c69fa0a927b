//! Sales as they should be, and as they may well be.

use crate::world::World;
use anyhow::Result;
use bytes::Bytes;
use dropgate_domain::{Body, Definition, Event, Generation, Halted};
use dropgate_events::encode_event;
use dropgate_stream::Lane;

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_sale_holds_with_its_numbers() -> Result<()> {
    // More claims than one page of Redis or of the database.
    let world = World::sold(1_000, 1_200).await?;
    let wins = world.wins();
    assert_eq!(wins.len(), 1_000);
    let told = world.told(&wins);
    let ran = world.reconcile(&["--told", told.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    let report = &ran.report;
    assert_eq!(report["holds"], true);
    assert_eq!(report["orders"], 1_000);
    assert_eq!(report["phase"], "closed");
    assert_eq!(ran.kinds(), []);
    for promise in report["promises"].as_array().unwrap() {
        assert_eq!(promise["holds"], true, "{promise}");
        assert_eq!(promise["checked"], promise["name"] != "fair", "{promise}");
    }
    let kept = &report["promises"][2]["numbers"];
    for number in ["wins", "with_order", "with_redis_claim", "told_winners"] {
        assert_eq!(kept[number], 1_000, "{number}");
    }
    for source in ["log", "redis", "database"] {
        assert_eq!(report["sources"][source]["seq"], 1_001, "{source}");
    }
    assert!(
        ran.stdout.contains("Every promise that was checked holds."),
        "{}",
        ran.stdout
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_that_runs_or_has_not_begun_can_be_reconciled() -> Result<()> {
    let world = World::created(Definition::of(10)).await?;
    let ran = world.reconcile(&[]);
    assert_eq!(
        (ran.code, ran.report["phase"].as_str()),
        (0, Some("not_opened")),
        "{ran:#?}"
    );
    world.open().await?;
    world.claim_all(1..=4).await?;
    world.write(usize::MAX).await?;
    let ran = world.reconcile(&[]);
    assert_eq!(
        (ran.code, ran.report["phase"].as_str()),
        (0, Some("open")),
        "{ran:#?}"
    );
    assert_eq!(ran.report["promises"][3]["numbers"]["free"], 6);
    // Without the clients nobody knows what they were told.
    assert_eq!(ran.report["promises"][5]["checked"], false);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sale_of_nothing_is_sold_out() -> Result<()> {
    let world = World::created(Definition::of(0)).await?;
    world.open().await?;
    world.write(usize::MAX).await?;
    let ran = world.reconcile(&[]);
    assert_eq!(
        (ran.code, ran.report["phase"].as_str()),
        (0, Some("sold_out")),
        "{ran:#?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_behind_is_waited_for_and_told() -> Result<()> {
    let world = World::created(Definition::of(10)).await?;
    world.open().await?;
    world.claim_all(1..=5).await?;
    // The opening and the first two wins.
    world.write(3).await?;
    let ran = world.reconcile(&["--wait", "1s"]);
    assert_eq!(ran.code, 1, "{ran:#?}");
    assert_eq!(ran.kinds(), [("unwritten_row", 3), ("position_behind", 1)]);
    assert_eq!(ran.broken(), ["told_win_kept", "books_balance"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_halted_sale_is_said_to_be_so_and_not_settled() -> Result<()> {
    let world = World::created(Definition::of(10)).await?;
    world.open().await?;
    world.claim_all(1..=3).await?;
    world.write(usize::MAX).await?;
    let partition = world
        .engine
        .sale(&world.sale)
        .unwrap()
        .sale()
        .pin()
        .partition;
    let halt = Event {
        sale: world.sale.clone(),
        generation: Generation(1),
        body: Body::Halted(Halted {
            reason: "a test".into(),
            at: None,
            by: "somebody".into(),
        }),
    };
    world
        .log
        .append(Lane::Claims(partition), encode_event(&halt))
        .await?;
    let ran = world.reconcile(&[]);
    assert_eq!(
        (ran.code, ran.report["phase"].as_str()),
        (0, Some("halted")),
        "{ran:#?}"
    );
    let undersell = &ran.report["promises"][3];
    assert_eq!(undersell["checked"], false, "{undersell}");
    assert!(
        ran.stdout.contains("halted by somebody: a test"),
        "{}",
        ran.stdout
    );
    assert_eq!(ran.report["sources"]["log"]["halts"], 1);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_generation_that_ended_breaks_the_books() -> Result<()> {
    // Not closed: what comes after a close changes nothing for anybody.
    let world = World::created(Definition::of(10)).await?;
    world.open().await?;
    world.claim_all(1..=4).await?;
    world.write(usize::MAX).await?;
    let first = world.wins().remove(0);
    let partition = world
        .engine
        .sale(&world.sale)
        .unwrap()
        .sale()
        .pin()
        .partition;
    // Another event at a seq that is taken: Redis lost writes and gave the number again.
    let forged = Event {
        sale: world.sale.clone(),
        generation: Generation(1),
        body: Body::Closed(dropgate_domain::Link {
            seq: first.seq,
            time: first.won_at,
            prev: dropgate_domain::Digest([3; 20]),
        }),
    };
    let bytes: Bytes = encode_event(&forged);
    world.log.append(Lane::Claims(partition), bytes).await?;
    let ran = world.reconcile(&[]);
    assert_eq!(
        (ran.code, ran.report["phase"].as_str()),
        (1, Some("ended")),
        "{ran:#?}"
    );
    assert_eq!(ran.kinds(), [("generation_ended", 1)]);
    assert_eq!(ran.broken(), ["books_balance"]);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_that_never_comes_is_missing() -> Result<()> {
    let world = World::created(Definition::of(10)).await?;
    world.open().await?;
    world.claim_all(1..=3).await?;
    world.write(usize::MAX).await?;
    let partition = world
        .engine
        .sale(&world.sale)
        .unwrap()
        .sale()
        .pin()
        .partition;
    let last = world.wins().pop().unwrap();
    // The event after the next one.
    let early = Event {
        sale: world.sale.clone(),
        generation: Generation(1),
        body: Body::Closed(dropgate_domain::Link {
            seq: last.seq.next().next(),
            time: last.won_at,
            prev: dropgate_domain::Digest([3; 20]),
        }),
    };
    world
        .log
        .append(Lane::Claims(partition), encode_event(&early))
        .await?;
    let ran = world.reconcile(&["--wait", "1s"]);
    assert_eq!(ran.code, 1, "{ran:#?}");
    assert_eq!(ran.kinds(), [("event_missing", 1)]);
    assert_eq!(ran.broken(), ["books_balance"]);
    Ok(())
}
