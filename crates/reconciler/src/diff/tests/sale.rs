//! What each source says of the sale as a whole.

use super::super::{
    Differences, Kind, RedisSale, SaleRows, compare_log, compare_redis, compare_row,
};
use super::world::{LOG, World};
use dropgate_admission::StoredState;
use dropgate_domain::{Digest, Generation, LogId, Position, Seq, TimeMs, Unit};
use dropgate_store::{SaleRow, SaleState};

fn world() -> World {
    World::new(10, 1, &[1, 2, 3, 4], true)
}

fn kinds(found: &Differences) -> Vec<Kind> {
    found.iter().map(|(kind, _)| kind).collect()
}

fn of_row(world: &World, rows: &SaleRows) -> Vec<Kind> {
    let mut found = Differences::new(1);
    compare_row(
        &world.ledger,
        &world.pin,
        world.ledger.position(),
        rows,
        &mut found,
    );
    kinds(&found)
}

fn of_redis(world: &World, redis: &RedisSale) -> Vec<Kind> {
    let mut found = Differences::new(1);
    let end = world.ledger.position();
    compare_redis(&world.ledger, &world.pin, end, redis, &mut found);
    kinds(&found)
}

#[test]
fn a_correct_sale_has_no_differences() {
    for closed in [false, true] {
        let world = World::new(10, 2, &[2, 1, 3], closed);
        let mut found = Differences::new(1);
        compare_log(&world.ledger, None, &mut found);
        assert_eq!(kinds(&found), []);
        assert_eq!(of_row(&world, &world.rows()), []);
        let mut redis = world.redis();
        // Units that were taken out of their order: the next fresh one is above them all.
        redis.state.as_mut().unwrap().next = Unit(4);
        assert_eq!(of_redis(&world, &redis), []);
    }
}

#[test]
fn every_change_of_the_row_is_found_by_its_kind() {
    let world = world();
    let end = world.ledger.position().unwrap();
    let at = |generation, seq, chain| Position {
        generation: Generation(generation),
        seq: Seq(seq),
        chain,
    };
    type Change = Box<dyn Fn(&mut SaleRow)>;
    let changes: [(Change, &[Kind]); 11] = [
        (
            Box::new(|row| row.pin.log_id = LogId([0; 16])),
            &[Kind::WrongLog],
        ),
        (
            Box::new(|row| row.pin.from_offset.0 += 1),
            &[Kind::WrongLog],
        ),
        (Box::new(|row| row.stock += 1), &[Kind::StockDiffers]),
        (Box::new(|row| row.sold -= 1), &[Kind::CountsDiffer]),
        (Box::new(|row| row.held = 1), &[Kind::CountsDiffer]),
        (
            Box::new(|row| row.state = SaleState::Open),
            &[Kind::StateDiffers],
        ),
        (
            Box::new(|row| row.closed_at = Some(TimeMs(1))),
            &[Kind::StateDiffers],
        ),
        (
            Box::new(move |row| row.position = at(1, end.seq.0, Digest([7; 20]))),
            &[Kind::ChainDiffers],
        ),
        (
            Box::new(move |row| row.position = at(1, end.seq.0 + 1, end.chain)),
            &[Kind::PositionAhead],
        ),
        (
            Box::new(move |row| row.position = at(2, 0, end.chain)),
            &[Kind::PositionAhead],
        ),
        (
            Box::new(move |row| row.position = at(1, end.seq.0 - 1, end.chain)),
            &[Kind::PositionBehind, Kind::StateDiffers],
        ),
    ];
    for (n, (change, expected)) in changes.iter().enumerate() {
        let mut rows = world.rows();
        change(rows.after.as_mut().unwrap());
        assert_eq!(of_row(&world, &rows), *expected, "change {n}");
    }
}

#[test]
fn a_row_that_is_missing_or_should_not_be_is_found() {
    let world = world();
    assert_eq!(of_row(&world, &SaleRows::default()), [Kind::SaleRowMissing]);
    let unopened = dropgate_domain::Ledger::new(world.pin.sale.clone());
    let mut found = Differences::new(1);
    compare_row(&unopened, &world.pin, None, &world.rows(), &mut found);
    compare_redis(&unopened, &world.pin, None, &world.redis(), &mut found);
    assert_eq!(kinds(&found), [Kind::SaleRowExtra, Kind::RedisSaleExtra]);
    let mut found = Differences::new(1);
    compare_row(
        &unopened,
        &world.pin,
        None,
        &SaleRows::default(),
        &mut found,
    );
    compare_redis(
        &unopened,
        &world.pin,
        None,
        &RedisSale::default(),
        &mut found,
    );
    assert_eq!(kinds(&found), []);
}

#[test]
fn orders_must_be_as_many_as_were_sold_while_they_were_read() {
    let world = world();
    let mut rows = world.rows();
    rows.orders = Some(3);
    assert_eq!(of_row(&world, &rows), [Kind::CountsDiffer]);
    rows.orders = Some(5);
    assert_eq!(of_row(&world, &rows), [Kind::CountsDiffer]);
    // One was sold between the two looks at the row: it may have been read or not.
    let before = rows.before.as_mut().unwrap();
    before.sold = 3;
    for orders in [3, 4] {
        rows.orders = Some(orders);
        assert_eq!(of_row(&world, &rows), []);
    }
    // Not all could be read: the number says nothing.
    rows.orders = None;
    assert_eq!(of_row(&world, &rows), []);
}

#[test]
fn a_database_that_wrote_on_meanwhile_is_held_to_what_it_has_written() {
    let early = World::new(10, 1, &[1, 2], false);
    let late = World::new(10, 1, &[1, 2, 3, 4], true);
    let between = World::new(10, 1, &[1, 2, 3], false);
    let rows = between.rows();
    let mut found = Differences::new(1);
    compare_row(
        &late.ledger,
        &late.pin,
        early.ledger.position(),
        &rows,
        &mut found,
    );
    assert_eq!(kinds(&found), []);
}

#[test]
fn every_change_in_redis_is_found_by_its_kind() {
    let world = world();
    type Change = fn(&mut StoredState);
    let changes: [(Change, &[Kind]); 14] = [
        (|state| state.seq.0 -= 1, &[Kind::RedisBehind]),
        (|state| state.seq.0 += 1, &[Kind::RedisAhead]),
        (
            |state| state.head = Digest([7; 20]),
            &[Kind::RedisChainDiffers],
        ),
        (|state| state.open = true, &[Kind::RedisStateDiffers]),
        (|state| state.stock += 1, &[Kind::RedisStateDiffers]),
        (
            |state| state.per_user_limit += 1,
            &[Kind::RedisStateDiffers],
        ),
        (|state| state.window += 1, &[Kind::RedisStateDiffers]),
        (
            |state| state.opens_at = Some(TimeMs(1)),
            &[Kind::RedisStateDiffers],
        ),
        (
            |state| state.closes_at = Some(TimeMs(1)),
            &[Kind::RedisStateDiffers],
        ),
        (|state| state.time.0 -= 1, &[Kind::RedisStateDiffers]),
        (|state| state.next.0 -= 1, &[Kind::RedisStateDiffers]),
        (|state| state.next.0 += 1, &[Kind::RedisUnitLost]),
        // What says nothing of the promises may be as it is.
        (|state| state.applied.0 = 0, &[]),
        (|state| state.time.0 += 1, &[]),
    ];
    for (n, (change, expected)) in changes.iter().enumerate() {
        let mut redis = world.redis();
        change(redis.state.as_mut().unwrap());
        assert_eq!(of_redis(&world, &redis), *expected, "change {n}");
    }
    let mut redis = world.redis();
    redis.current = Some("another:1".into());
    assert_eq!(of_redis(&world, &redis), [Kind::RedisGenerationDiffers]);
    redis.current = None;
    redis.state = None;
    let expected = [Kind::RedisSaleMissing, Kind::RedisStateMissing];
    assert_eq!(of_redis(&world, &redis), expected);
    assert_eq!(world.pin.log_id, LOG);
}

#[test]
fn a_log_that_went_on_after_the_look_at_redis_makes_no_difference() {
    let looked = World::new(10, 1, &[1, 2], false);
    let late = World::new(10, 1, &[1, 2, 3, 4], true);
    let mut found = Differences::new(1);
    let before = looked.ledger.position();
    compare_redis(&late.ledger, &late.pin, before, &looked.redis(), &mut found);
    assert_eq!(kinds(&found), []);
    let mut other = looked.redis();
    other.state.as_mut().unwrap().head = Digest([7; 20]);
    compare_redis(&late.ledger, &late.pin, before, &other, &mut found);
    assert_eq!(kinds(&found), [Kind::RedisChainDiffers]);
}
