//! What every database must do.

use crate::db::{self, Db};
use crate::fixture::{all_orders, following, opening, order, orders, position, sale_id};
use dropgate_domain::{Digest, Position, TimeMs, Unit};
use dropgate_store::{OrderCounts, SaleState, SaleWrite, WriteError};

macro_rules! contract {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::db::sqlite().await).await; })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() { super::$name(super::db::postgres().await).await; })*
        }
    };
}

contract! {
    what_was_written_is_read_back,
    pages_are_bounded_and_in_order,
    a_zombies_write_changes_nothing,
    the_same_write_again_is_a_conflict_and_the_position_tells,
    a_unit_with_an_owner_is_refused_with_all_of_its_transaction,
    a_seq_or_a_claim_twice_is_refused,
    counts_beyond_the_stock_are_refused,
    numbers_beyond_the_database_are_refused,
    a_sale_twice_in_one_transaction_is_refused,
    a_transaction_may_have_more_rows_than_binds_fit_in_a_statement,
    ids_are_compared_byte_for_byte,
    a_user_may_own_several_units,
    a_write_without_orders_moves_the_position,
    what_was_fixed_at_the_opening_stays,
    racing_writers_leave_one_history,
    two_sales_written_in_opposite_orders_do_not_deadlock,
}

async fn write(db: &Db, writes: &[SaleWrite]) {
    if let Err(error) = db.store.write(writes).await {
        panic!("a write that must succeed: {error}");
    }
}

async fn assert_conflict(db: &Db, write: &SaleWrite) {
    let before = db.store.sale(&write.sale).await.unwrap();
    let orders_before = all_orders(&db.store, &write.sale).await;
    match db.store.write(std::slice::from_ref(write)).await {
        Err(WriteError::Conflict { sale }) => assert_eq!(sale, write.sale),
        other => panic!("expected a conflict, saw {other:?}"),
    }
    assert_eq!(db.store.sale(&write.sale).await.unwrap(), before);
    assert_eq!(all_orders(&db.store, &write.sale).await, orders_before);
}

async fn assert_refused(db: &Db, writes: &[SaleWrite], culprit: &str) {
    match db.store.write(writes).await {
        Err(WriteError::Refused { sale, reason }) => {
            assert_eq!(sale, sale_id(culprit), "{reason}");
            assert!(!reason.is_empty());
        }
        other => panic!("expected a refusal, saw {other:?}"),
    }
}

async fn what_was_written_is_read_back(db: Db) {
    let first = opening("drop", 10, orders(0, 1, 3));
    write(&db, std::slice::from_ref(&first)).await;
    let row = db.store.sale(&first.sale).await.unwrap().expect("a row");
    assert_eq!(row.position, first.to);
    assert_eq!(
        (row.pin, row.state, row.stock),
        (first.pin, SaleState::Open, 10)
    );
    assert_eq!((row.sold, row.held), (3, 0));
    assert_eq!((row.opened_at, row.closed_at), (first.opened_at, None));
    assert_eq!(all_orders(&db.store, &first.sale).await, first.orders);

    let mut last = following(&first, orders(0, 4, 5));
    last.state = SaleState::Closed;
    last.closed_at = Some(TimeMs(1_700_000_009_999));
    write(&db, std::slice::from_ref(&last)).await;
    let row = db.store.sale(&first.sale).await.unwrap().expect("a row");
    assert_eq!((row.position, row.sold), (last.to, 5));
    assert_eq!(
        (row.state, row.closed_at),
        (SaleState::Closed, last.closed_at)
    );
    assert_eq!(all_orders(&db.store, &first.sale).await, orders(0, 1, 5));

    let counts = db.store.counts(&first.sale).await.unwrap();
    let (unit_min, unit_max) = (Some(Unit(1)), Some(Unit(5)));
    assert_eq!(
        counts,
        OrderCounts {
            rows: 5,
            users: 5,
            unit_min,
            unit_max
        }
    );
    let nothing = sale_id("other");
    assert_eq!(db.store.sale(&nothing).await.unwrap(), None);
    assert_eq!(
        db.store.counts(&nothing).await.unwrap(),
        OrderCounts::default()
    );
}

async fn pages_are_bounded_and_in_order(db: Db) {
    let ids = ["a", "a-1", "a0", "b", "c"];
    for (salt, id) in (0..).zip(ids) {
        write(&db, &[opening(id, 100, orders(salt, 1, 20))]).await;
    }
    let first = db.store.sales(None, 2).await.unwrap();
    let rest = db.store.sales(Some(&first[1].sale), 100).await.unwrap();
    let seen: Vec<_> = first
        .iter()
        .chain(&rest)
        .map(|row| row.sale.as_str())
        .collect();
    assert_eq!(seen, ids, "in the order of their bytes");
    assert_eq!(first.len(), 2);

    let page = db
        .store
        .orders_page(&sale_id("b"), Unit(5), 3)
        .await
        .unwrap();
    assert_eq!(page.iter().map(|o| o.unit.0).collect::<Vec<_>>(), [6, 7, 8]);
    let behind = db
        .store
        .orders_page(&sale_id("b"), Unit(u64::MAX), 3)
        .await
        .unwrap();
    assert_eq!(behind, []);
    let mut pages = db.store.orders(&sale_id("b"), 7);
    let mut sizes = Vec::new();
    while let Some(page) = pages.next().await.unwrap() {
        sizes.push(page.len());
    }
    assert_eq!(sizes, [7, 7, 6]);
    assert_eq!(pages.next().await.unwrap(), None, "the end stays the end");
}

async fn a_zombies_write_changes_nothing(db: Db) {
    let first = opening("drop", 10, orders(0, 1, 2));
    let second = following(&first, orders(0, 3, 4));
    let zombie = following(&first, orders(0, 3, 6));
    write(&db, std::slice::from_ref(&first)).await;
    write(&db, std::slice::from_ref(&second)).await;

    assert_conflict(&db, &zombie).await;
    let others: [fn(&mut Position); 3] = [
        |p| p.chain = Digest([1; 20]),
        |p| p.generation.0 += 1,
        |p| p.seq.0 += 1,
    ];
    for other in others {
        let mut write = following(&second, orders(0, 5, 6));
        other(write.from.as_mut().unwrap());
        assert_conflict(&db, &write).await;
    }
    assert_conflict(&db, &opening("drop", 10, orders(0, 1, 2))).await;
    let mut no_row = following(&second, orders(1, 5, 6));
    no_row.sale = sale_id("unwritten");
    assert_conflict(&db, &no_row).await;
}

async fn the_same_write_again_is_a_conflict_and_the_position_tells(db: Db) {
    let first = opening("drop", 10, orders(0, 1, 2));
    write(&db, std::slice::from_ref(&first)).await;
    assert_conflict(&db, &first).await;
    let second = following(&first, orders(0, 3, 5));
    write(&db, std::slice::from_ref(&second)).await;
    assert_conflict(&db, &second).await;
    let row = db.store.sale(&first.sale).await.unwrap().expect("a row");
    assert_eq!(row.position, second.to);
}

async fn a_unit_with_an_owner_is_refused_with_all_of_its_transaction(db: Db) {
    let bad = opening("bad", 10, orders(0, 1, 3));
    let good = opening("good", 10, orders(1, 1, 3));
    write(&db, &[bad.clone(), good.clone()]).await;
    let good_next = following(&good, orders(1, 4, 4));
    let bad_next = following(&bad, vec![order(0, 4, 2, "thief")]);
    let before = db.store.sale(&good.sale).await.unwrap();

    assert_refused(&db, &[good_next.clone(), bad_next.clone()], "bad").await;
    assert_eq!(db.store.sale(&good.sale).await.unwrap(), before);
    assert_eq!(all_orders(&db.store, &good.sale).await, good.orders);
    assert_eq!(all_orders(&db.store, &bad.sale).await, bad.orders);

    write(&db, &[good_next]).await;
    assert_refused(&db, &[bad_next], "bad").await;
    assert_eq!(all_orders(&db.store, &good.sale).await, orders(1, 1, 4));
}

async fn a_seq_or_a_claim_twice_is_refused(db: Db) {
    let first = opening("drop", 10, orders(0, 1, 3));
    write(&db, std::slice::from_ref(&first)).await;
    let mut seq_twice = following(&first, vec![order(5, 3, 4, "u")]);
    seq_twice.to = position(1, 4);
    assert_refused(&db, &[seq_twice], "drop").await;
    let mut claim_twice = following(&first, vec![order(0, 4, 4, "u")]);
    claim_twice.orders[0].claim = first.orders[0].claim;
    assert_refused(&db, &[claim_twice], "drop").await;
    let twice_in_one = vec![order(0, 4, 4, "u"), order(0, 5, 4, "v")];
    assert_refused(&db, &[following(&first, twice_in_one)], "drop").await;
    let unit_zero = following(&first, vec![order(0, 4, 0, "u")]);
    assert_refused(&db, &[unit_zero], "drop").await;
    assert_eq!(all_orders(&db.store, &first.sale).await, first.orders);
}

async fn counts_beyond_the_stock_are_refused(db: Db) {
    assert_refused(&db, &[opening("drop", 2, orders(0, 1, 3))], "drop").await;
    assert_eq!(db.store.sale(&sale_id("drop")).await.unwrap(), None);
    let first = opening("drop", 3, orders(0, 1, 3));
    write(&db, std::slice::from_ref(&first)).await;
    assert_refused(&db, &[following(&first, orders(0, 4, 4))], "drop").await;
    assert_eq!(all_orders(&db.store, &first.sale).await, first.orders);
    write(&db, &[opening("nothing", 0, Vec::new())]).await;
}

async fn numbers_beyond_the_database_are_refused(db: Db) {
    let big = i64::MAX as u64;
    let mut largest = opening("largest", big, Vec::new());
    largest.to = position(u32::MAX, big);
    write(&db, std::slice::from_ref(&largest)).await;
    let row = db.store.sale(&largest.sale).await.unwrap().expect("a row");
    assert_eq!((row.stock, row.position), (big, largest.to));

    assert_refused(&db, &[opening("drop", big + 1, Vec::new())], "drop").await;
    let mut seq = opening("drop", 1, Vec::new());
    seq.to = position(1, u64::MAX);
    assert_refused(&db, &[seq], "drop").await;
    let unit = opening("drop", 9, vec![order(0, 1, u64::MAX, "u")]);
    assert_refused(&db, &[unit], "drop").await;
    assert_eq!(db.store.sale(&sale_id("drop")).await.unwrap(), None);
}

async fn a_sale_twice_in_one_transaction_is_refused(db: Db) {
    let first = opening("drop", 10, orders(0, 1, 2));
    let second = following(&first, orders(0, 3, 4));
    assert_refused(&db, &[first, second], "drop").await;
    assert_eq!(db.store.sale(&sale_id("drop")).await.unwrap(), None);
    write(&db, &[]).await;
}

async fn a_transaction_may_have_more_rows_than_binds_fit_in_a_statement(db: Db) {
    // 2,000 rows of one sale, and 7,000 of another: 70,000 values.
    let (a, b) = (
        opening("a", 10_000, orders(0, 1, 2000)),
        opening("b", 10_000, orders(1, 1, 7000)),
    );
    write(&db, &[a.clone(), b.clone()]).await;
    for sale in [a, b] {
        let stored = all_orders(&db.store, &sale.sale).await;
        assert!(
            stored == sale.orders,
            "{} rows of {}",
            stored.len(),
            sale.orders.len()
        );
    }
}

async fn ids_are_compared_byte_for_byte(db: Db) {
    let long = "x".repeat(255);
    let wide = "é".repeat(127);
    let users = [
        "alice",
        "Alice",
        "ALICE",
        "alice\u{a0}x",
        "alicе",
        "aliçe",
        "alic\u{327}e",
        "al ice",
        "straße",
        "strasse",
        "ﬀ",
        "ff",
        "사용자",
        "🦀",
        "ı",
        "i",
        "'; DROP TABLE orders; --",
        "%_",
        "\\",
        &long,
        &wide,
    ];
    let wins = (1..)
        .zip(users)
        .map(|(n, user)| order(0, n, n, user))
        .collect();
    let sale = opening("drop", 100, wins);
    write(&db, std::slice::from_ref(&sale)).await;
    assert_eq!(all_orders(&db.store, &sale.sale).await, sale.orders);
    let counts = db.store.counts(&sale.sale).await.unwrap();
    assert_eq!(
        counts.users,
        users.len() as u64,
        "all of them are different"
    );
}

async fn a_user_may_own_several_units(db: Db) {
    let wins = (1..=6).map(|n| order(0, n, n, if n % 2 == 0 { "even" } else { "odd" }));
    let sale = opening("drop", 100, wins.collect());
    write(&db, std::slice::from_ref(&sale)).await;
    let counts = db.store.counts(&sale.sale).await.unwrap();
    assert_eq!((counts.rows, counts.users), (6, 2));
}

async fn a_write_without_orders_moves_the_position(db: Db) {
    let first = opening("drop", 10, orders(0, 1, 2));
    write(&db, std::slice::from_ref(&first)).await;
    // A new generation begins where the one before had come to.
    let mut recovered = following(&first, Vec::new());
    recovered.to = position(2, 2);
    write(&db, std::slice::from_ref(&recovered)).await;
    assert_conflict(&db, &following(&first, orders(0, 3, 3))).await;
    let mut third = following(&recovered, orders(0, 3, 3));
    third.to = position(2, 3);
    write(&db, &[third]).await;
}

async fn what_was_fixed_at_the_opening_stays(db: Db) {
    let first = opening("drop", 10, orders(0, 1, 2));
    write(&db, std::slice::from_ref(&first)).await;
    let before = db.store.sale(&first.sale).await.unwrap().expect("a row");
    let mut second = following(&first, orders(0, 3, 3));
    second.pin.from_offset.0 += 1;
    second.pin.log_id.0 = [0; 16];
    second.opened_at = None;
    second.stock = 99;
    write(&db, &[second]).await;
    let after = db.store.sale(&first.sale).await.unwrap().expect("a row");
    assert_eq!((after.pin, after.stock), (before.pin, before.stock));
    assert_eq!(after.opened_at, before.opened_at);
}

/// Four writers write the same history in batches of different sizes, as if each were alone.
async fn racing_writers_leave_one_history(db: Db) {
    const EVENTS: u64 = 120;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 1..=4_u64 {
        let store = db.store.clone();
        writers.spawn(async move {
            let (mut won, mut lost) = (0, 0);
            loop {
                let row = store.sale(&sale_id("drop")).await.unwrap();
                let at = row.as_ref().map_or(0, |row| row.position.seq.0);
                if at == EVENTS {
                    return (won, lost);
                }
                let batch = orders(0, at + 1, (at + writer).min(EVENTS));
                let write = match row {
                    None => opening("drop", EVENTS, batch),
                    Some(row) => {
                        let mut before = opening("drop", EVENTS, Vec::new());
                        (before.to, before.sold) = (row.position, row.sold);
                        following(&before, batch)
                    }
                };
                match store.write(&[write]).await {
                    Ok(()) => won += 1,
                    Err(WriteError::Conflict { .. }) => lost += 1,
                    Err(other) => panic!("neither written nor a conflict: {other}"),
                }
            }
        });
    }
    let turns = writers.join_all().await;
    let stored = all_orders(&db.store, &sale_id("drop")).await;
    assert_eq!(
        stored,
        orders(0, 1, EVENTS),
        "turns won and lost: {turns:?}"
    );
    let row = db
        .store
        .sale(&sale_id("drop"))
        .await
        .unwrap()
        .expect("a row");
    assert_eq!((row.position, row.sold), (position(1, EVENTS), EVENTS));
}

async fn two_sales_written_in_opposite_orders_do_not_deadlock(db: Db) {
    let (a, b) = (
        opening("a", 1000, Vec::new()),
        opening("b", 1000, Vec::new()),
    );
    write(&db, &[a.clone(), b.clone()]).await;
    let mut writers = tokio::task::JoinSet::new();
    for swapped in [false, true] {
        let (store, a, b) = (db.store.clone(), a.clone(), b.clone());
        writers.spawn(async move {
            let mut won = 0;
            while won < 20 {
                let next = |stored: &SaleWrite, row: dropgate_store::SaleRow, salt| {
                    let seq = row.position.seq.0 + 1;
                    let mut before = stored.clone();
                    (before.to, before.sold) = (row.position, row.sold);
                    following(&before, orders(salt, seq, seq))
                };
                let row = store.sale(&a.sale).await.unwrap().expect("a row");
                let first = next(&a, row, 0);
                let row = store.sale(&b.sale).await.unwrap().expect("a row");
                let second = next(&b, row, 1);
                let both = if swapped {
                    [second, first]
                } else {
                    [first, second]
                };
                match store.write(&both).await {
                    Ok(()) => won += 1,
                    Err(WriteError::Conflict { .. }) => {}
                    Err(other) => panic!("neither written nor a conflict: {other}"),
                }
            }
        });
    }
    writers.join_all().await;
    assert_eq!(all_orders(&db.store, &a.sale).await, orders(0, 1, 40));
    assert_eq!(all_orders(&db.store, &b.sale).await, orders(1, 1, 40));
}
