//! What is written, over the small stack and the large one.

use crate::world::{Author, World, quick, wait};
use dropgate_domain::Generation;
use dropgate_order_writer::WriterConfig;
use dropgate_store::SaleState;
use std::time::Duration;

macro_rules! over_both {
    ($($name:ident),* $(,)?) => {
        mod small {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::World::small().await).await; })*
        }
        mod large {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::World::large().await).await; })*
        }
    };
}

over_both! {
    every_win_becomes_one_row,
    what_happened_before_the_writer_came_is_written,
    void_events_are_not_written,
    a_writer_that_dies_at_any_moment_leaves_no_gap_and_no_double,
    two_writers_write_once_and_one_goes_on_for_the_other,
    a_database_that_forgot_is_written_again,
}

async fn every_win_becomes_one_row(world: World) {
    let writer = world.writer(&quick()).await;
    let mut a = Author::open(&world.log, "a", 1000).await;
    a.win(1).await;
    world.is_written(&a).await;
    let mut b = Author::open(&world.log, "b", 1000).await;
    for _ in 0..20 {
        a.win(10).await;
        b.win(3).await;
    }
    b.close().await;
    world.is_written(&a).await;
    world.is_written(&b).await;
    let row = world.store.sale(&b.sale).await.unwrap().expect("a row");
    assert_eq!(
        (row.state, row.closed_at.is_some()),
        (SaleState::Closed, true)
    );
    writer.is_ready().await;

    assert_eq!(writer.metric("dropgate_orders_written_total"), Some(261));
    let transactions = r#"dropgate_write_transactions_total{outcome="Written"}"#;
    let transactions = writer.metric(transactions).unwrap_or_default();
    assert!((2..=264).contains(&transactions), "{transactions}");
    wait(|| async {
        match writer.metric("dropgate_writer_lag_records") {
            Some(0) => Ok(()),
            lag => Err(format!("{lag:?}")),
        }
    })
    .await;
    writer.stop().await;
}

async fn what_happened_before_the_writer_came_is_written(world: World) {
    let mut a = Author::open(&world.log, "a", 10_000).await;
    a.win(150).await;
    let nothing = Author::open(&world.log, "b", 0).await;
    let writer = world
        .writer(&WriterConfig {
            batch_events_max: 40,
            ..quick()
        })
        .await;
    world.is_written(&a).await;
    world.is_written(&nothing).await;
    let transactions = r#"dropgate_write_transactions_total{outcome="Written"}"#;
    let transactions = writer.metric(transactions).unwrap_or_default();
    assert!(
        (4..=30).contains(&transactions),
        "152 events, 40 at once: {transactions}"
    );
    writer.stop().await;

    // A second life folds it all again and writes only what is new.
    a.win(5).await;
    let writer = world.writer(&quick()).await;
    world.is_written(&a).await;
    assert_eq!(writer.metric("dropgate_orders_written_total"), Some(5));
    writer.stop().await;
}

async fn void_events_are_not_written(world: World) {
    let writer = world.writer(&quick()).await;
    let mut a = Author::open(&world.log, "a", 1000).await;
    a.win(5).await;
    a.lose_writes().await;
    a.start(1000).await;
    a.win(5).await;
    a.lose_writes().await;
    a.start(1000).await;
    a.win(2).await;
    world.is_written(&a).await;
    assert_eq!(a.position().0, Generation(3));
    writer.stop().await;
}

async fn a_writer_that_dies_at_any_moment_leaves_no_gap_and_no_double(world: World) {
    let mut a = Author::open(&world.log, "a", 100_000).await;
    let mut b = Author::open(&world.log, "b", 100_000).await;
    let config = WriterConfig {
        batch_events_max: 3,
        ..quick()
    };
    for life in 0..8_u64 {
        let writer = world.writer(&config).await;
        a.win(20).await;
        b.win(5).await;
        tokio::time::sleep(Duration::from_millis(life * 7)).await;
        // As a crash would: a transaction in flight is abandoned, committed or not.
        drop(writer);
    }
    let writer = world.writer(&config).await;
    world.is_written(&a).await;
    world.is_written(&b).await;
    writer.stop().await;
}

async fn two_writers_write_once_and_one_goes_on_for_the_other(world: World) {
    let mut writers = [world.writer(&quick()).await, world.writer(&quick()).await].map(Some);
    let mut a = Author::open(&world.log, "a", 100_000).await;
    for _ in 0..30 {
        a.win(10).await;
    }
    world.is_written(&a).await;
    let written: i64 = writers
        .iter()
        .flatten()
        .filter_map(|writer| writer.metric("dropgate_orders_written_total"))
        .sum();
    assert_eq!(written, 300, "each by one of them");
    // Whichever goes, the other goes on, and the first comes back.
    for n in [0, 1, 0] {
        writers[n] = None;
        a.win(20).await;
        world.is_written(&a).await;
        writers[n] = Some(world.writer(&quick()).await);
        a.win(20).await;
        world.is_written(&a).await;
    }
    for writer in writers.into_iter().flatten() {
        writer.is_ready().await;
        writer.stop().await;
    }
}

async fn a_database_that_forgot_is_written_again(world: World) {
    let writer = world.writer(&quick()).await;
    let mut a = Author::open(&world.log, "a", 1000).await;
    a.win(50).await;
    world.is_written(&a).await;
    // As when it was restored from a copy that is older than the sale.
    world.forget().await;
    a.win(5).await;
    world.is_written(&a).await;
    writer.is_ready().await;
    writer.stop().await;
}
