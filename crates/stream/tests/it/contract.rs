//! The contract that both back ends keep.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use dropgate_domain::{Offset, PartitionId};
use dropgate_stream::{AppendError, Lane, Log, LogError, Refused, VALUE_BYTES_MAX};
use futures::future::{join_all, try_join_all};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};

use crate::support::{
    BOUND, Fixture, P0, P1, START, by_lane, cancelled_after, offsets, read, value,
};

macro_rules! contract {
    ($($property:ident,)*) => {
        mod embedded {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $property() {
                super::$property(crate::support::Fixture::embedded()).await;
            })*
        }
        mod kafka {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $property() {
                super::$property(crate::support::Fixture::kafka().await).await;
            })*
        }
    };
}

contract! {
    records_come_back_byte_for_byte_at_consecutive_offsets,
    a_record_above_the_bound_is_refused_and_one_at_it_is_not,
    every_concurrent_append_is_in_the_log_once_at_its_offset,
    a_tail_begins_at_any_offset_and_ends_with_the_log,
    a_call_returns_no_more_than_was_asked_for,
    lanes_are_added_to_a_running_tail,
    cancelled_calls_lose_nothing_and_repeat_nothing,
    a_cancelled_add_has_no_effect_or_all,
    a_probe_follows_the_end_and_keeps_the_identity,
    a_reopened_log_goes_on_where_it_was,
    two_tails_read_the_same,
    an_offset_that_is_not_there_is_an_error_that_names_it,
    a_lane_that_is_not_there_is_an_error,
    a_log_that_is_missing_is_an_error_and_is_not_created,
    a_log_opened_for_reading_follows_and_refuses_appends,
    a_closed_log_refuses_and_has_kept_what_it_accepted,
    a_tail_that_nobody_reads_stays_bounded,
}

async fn append_all(log: &Log, lane: Lane, count: usize) {
    let appends = (0..count).map(|n| log.append(lane, value(n)));
    for (n, offset) in try_join_all(appends).await.unwrap().into_iter().enumerate() {
        assert!(offset.0 < count as u64, "record {n} of {count} at {offset}");
    }
}

async fn records_come_back_byte_for_byte_at_consecutive_offsets(fixture: Fixture) {
    let log = fixture.open().await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let values = [
        Bytes::new(),
        Bytes::from(every_byte),
        Bytes::from_static(b"\0"),
        Bytes::from(vec![0xff; 100_000]),
        Bytes::new(),
    ];
    for lane in [Lane::Index, P0, P1] {
        for (n, value) in values.iter().enumerate() {
            let offset = log.append(lane, value.clone()).await.unwrap();
            assert_eq!(offset, Offset(n as u64), "{lane}");
        }
    }
    let mut tail = log.tail(&START).await.unwrap();
    let lanes = by_lane(read(&mut tail, 3 * values.len()).await);
    for lane in [Lane::Index, P0, P1] {
        let got: Vec<_> = lanes[&lane].iter().map(|i| i.value.clone()).collect();
        assert_eq!(got, values, "{lane}");
    }
}

async fn a_record_above_the_bound_is_refused_and_one_at_it_is_not(fixture: Fixture) {
    let log = fixture.open().await;
    let too_large = Bytes::from(vec![7; VALUE_BYTES_MAX + 1]);
    let refused = log.append(P0, too_large).await.unwrap_err();
    let expected = Refused::TooLarge {
        bytes: VALUE_BYTES_MAX + 1,
        bytes_max: VALUE_BYTES_MAX,
    };
    assert_eq!(refused, AppendError::Refused(expected));
    let largest = Bytes::from(vec![8; VALUE_BYTES_MAX]);
    for n in 0..6 {
        assert_eq!(log.append(P0, largest.clone()).await, Ok(Offset(n)));
    }
    let mut tail = log.tail(&[(P0, Offset(0))]).await.unwrap();
    let items = read(&mut tail, 6).await;
    assert!(items.iter().all(|item| item.value == largest));
}

async fn every_concurrent_append_is_in_the_log_once_at_its_offset(fixture: Fixture) {
    const WRITERS: usize = 64;
    const EACH: usize = 50;
    let log = fixture.open().await;
    let writers = (0..WRITERS).map(|writer| {
        let log = log.clone();
        tokio::spawn(async move {
            let lane = [Lane::Index, P0, P1][writer % 3];
            let mut told = Vec::with_capacity(EACH);
            for n in 0..EACH {
                let value = value(writer * EACH + n);
                let offset = log.append(lane, value.clone()).await.unwrap();
                told.push(((lane, offset), value));
            }
            told
        })
    });
    let told: Vec<_> = join_all(writers).await;
    let told: Vec<_> = told.into_iter().flat_map(Result::unwrap).collect();
    let by_place: HashMap<_, _> = told.into_iter().collect();
    assert_eq!(by_place.len(), WRITERS * EACH, "no offset twice");
    let mut tail = log.tail(&START).await.unwrap();
    let items = read(&mut tail, WRITERS * EACH).await;
    let more = tail.next(10, Duration::from_millis(300)).await.unwrap();
    assert_eq!(more, [], "nothing but what was told");
    for item in &items {
        assert_eq!(by_place.get(&(item.lane, item.offset)), Some(&item.value));
    }
    assert_eq!(by_lane(items).len(), 3);
}

async fn a_tail_begins_at_any_offset_and_ends_with_the_log(fixture: Fixture) {
    const COUNT: usize = 20;
    let log = fixture.open().await;
    append_all(&log, P0, COUNT).await;
    for from in [0, 1, 7, COUNT - 1] {
        let mut tail = log.tail(&[(P0, Offset(from as u64))]).await.unwrap();
        let items = read(&mut tail, COUNT - from).await;
        let expected: Vec<_> = (from as u64..COUNT as u64).collect();
        assert_eq!(offsets(&items), expected);
    }
    let mut at_end = log.tail(&[(P0, Offset(COUNT as u64))]).await.unwrap();
    let nothing = at_end.next(10, Duration::from_millis(200)).await.unwrap();
    assert_eq!(nothing, []);
    log.append(P0, value(99)).await.unwrap();
    let items = read(&mut at_end, 1).await;
    assert_eq!((items[0].offset.0, &items[0].value), (20, &value(99)));
}

async fn a_call_returns_no_more_than_was_asked_for(fixture: Fixture) {
    let log = fixture.open().await;
    append_all(&log, P0, 25).await;
    append_all(&log, P1, 25).await;
    let mut tail = log.tail(&START).await.unwrap();
    assert_eq!(tail.next(0, Duration::ZERO).await.unwrap(), []);
    let mut items = Vec::new();
    while items.len() < 50 {
        let more = tail.next(3, BOUND).await.unwrap();
        assert!((1..=3).contains(&more.len()), "{}", more.len());
        items.extend(more);
    }
    let lanes = by_lane(items);
    assert_eq!((lanes[&P0].len(), lanes[&P1].len()), (25, 25));
}

async fn lanes_are_added_to_a_running_tail(fixture: Fixture) {
    let log = fixture.open().await;
    append_all(&log, Lane::Index, 2).await;
    append_all(&log, P1, 5).await;
    let mut tail = log.tail(&[]).await.unwrap();
    let nothing = tail.next(10, Duration::from_millis(100)).await.unwrap();
    assert_eq!(nothing, []);
    tail.add(Lane::Index, Offset(0)).await.unwrap();
    assert_eq!(offsets(&read(&mut tail, 2).await), [0, 1]);
    tail.add(P1, Offset(3)).await.unwrap();
    assert_eq!(offsets(&read(&mut tail, 2).await), [3, 4]);
    let again = tail.add(P1, Offset(0)).await.unwrap_err();
    assert_eq!(again, LogError::LaneTaken { lane: P1 });
    tail.add(P0, Offset(0)).await.unwrap();
    for lane in [Lane::Index, P0, P1] {
        log.append(lane, value(9)).await.unwrap();
    }
    let lanes = by_lane(read(&mut tail, 3).await);
    assert_eq!(offsets(&lanes[&Lane::Index]), [2]);
    assert_eq!(offsets(&lanes[&P0]), [0]);
    assert_eq!(offsets(&lanes[&P1]), [5]);
}

async fn cancelled_calls_lose_nothing_and_repeat_nothing(fixture: Fixture) {
    const COUNT: usize = 40;
    let log = fixture.open().await;
    append_all(&log, P0, COUNT).await;
    // Pairs of (after how many polls a call is dropped, for how many records it asks).
    let calls = proptest::collection::vec((0usize..6, 1usize..40), 1..60);
    let handle = tokio::runtime::Handle::current();
    let run = move || {
        let mut runner = TestRunner::new(Config {
            cases: 12,
            // A case that fails takes as long as the bound.
            max_shrink_iters: 4,
            ..Config::default()
        });
        let case = |calls| handle.block_on(cancelled_calls(&log, COUNT, calls));
        runner.run(&calls, case).unwrap();
    };
    crate::support::blocking(run).await;
}

/// Half of the records are there before the first call, the others come one by one.
async fn cancelled_calls(
    log: &Log,
    count: usize,
    calls: Vec<(usize, usize)>,
) -> Result<(), TestCaseError> {
    let from = log.probe(P1).await.unwrap().end;
    let mut tail = log.tail(&[(P0, Offset(0)), (P1, from)]).await.unwrap();
    let appending = {
        let log = log.clone();
        tokio::spawn(async move {
            for n in 0..count {
                log.append(P1, value(n)).await.unwrap();
            }
        })
    };
    let mut items = Vec::new();
    let mut calls = calls.into_iter().cycle();
    while !appending.is_finished() {
        let Some((polls, max)) = calls.next() else {
            break;
        };
        let next = tail.next(max, Duration::from_millis(5));
        if let Some(more) = cancelled_after(polls, next).await {
            items.extend(more.unwrap());
        }
        tokio::task::yield_now().await;
    }
    let left = 2 * count - items.len();
    items.extend(read(&mut tail, left).await);
    let lanes = by_lane(items);
    for (lane, first) in [(P0, Offset(0)), (P1, from)] {
        prop_assert_eq!(lanes[&lane].len(), count);
        prop_assert_eq!(lanes[&lane][0].offset, first);
    }
    Ok(())
}

async fn a_cancelled_add_has_no_effect_or_all(fixture: Fixture) {
    let log = fixture.open().await;
    append_all(&log, P0, 10).await;
    for polls in 0..8 {
        let mut tail = log.tail(&[]).await.unwrap();
        let added = cancelled_after(polls, tail.add(P0, Offset(4))).await;
        let again = tail.add(P0, Offset(4)).await;
        let taken = Err(LogError::LaneTaken { lane: P0 });
        assert!(again == Ok(()) || again == taken, "{again:?}");
        assert!(added.is_none() || again == taken, "an add that was told");
        let items = read(&mut tail, 6).await;
        assert_eq!(offsets(&items), [4, 5, 6, 7, 8, 9]);
    }
}

async fn a_probe_follows_the_end_and_keeps_the_identity(fixture: Fixture) {
    let log = fixture.open().await;
    let empty = log.probe(P0).await.unwrap();
    assert_eq!((empty.low, empty.end), (Offset(0), Offset(0)));
    let index = log.probe(Lane::Index).await.unwrap();
    assert_ne!(
        index.log_id, empty.log_id,
        "each topic has its own identity"
    );
    assert_eq!(log.probe(P1).await.unwrap().log_id, empty.log_id);
    for n in 1..=5 {
        log.append(P0, value(n)).await.unwrap();
        let probe = log.probe(P0).await.unwrap();
        assert_eq!((probe.low, probe.end), (Offset(0), Offset(n as u64)));
    }
    assert_eq!(log.probe(P1).await.unwrap().end, Offset(0));
    log.close(BOUND).await;
    drop(log);
    let log = fixture.open().await;
    let reopened = log.probe(P0).await.unwrap();
    assert_eq!(reopened.log_id, empty.log_id);
    assert_eq!(reopened.end, Offset(5));
    assert_eq!(log.probe(Lane::Index).await.unwrap().log_id, index.log_id);
}

async fn a_reopened_log_goes_on_where_it_was(fixture: Fixture) {
    for round in 0..3u64 {
        let log = fixture.open().await;
        assert_eq!(log.partitions(), crate::support::PARTITIONS);
        for n in 0..10u64 {
            let offset = log.append(P1, value(n as usize)).await.unwrap();
            assert_eq!(offset, Offset(round * 10 + n));
        }
        let mut tail = log.tail(&[(P1, Offset(0))]).await.unwrap();
        let count = (round as usize + 1) * 10;
        let items = read(&mut tail, count).await;
        for (n, item) in items.iter().enumerate() {
            assert_eq!((item.offset.0, &item.value), (n as u64, &value(n % 10)));
        }
        log.close(BOUND).await;
    }
}

async fn two_tails_read_the_same(fixture: Fixture) {
    const COUNT: usize = 200;
    let log = fixture.open().await;
    let mut early = log.tail(&START).await.unwrap();
    let appending = {
        let log = log.clone();
        tokio::spawn(async move { append_all(&log, P0, COUNT).await })
    };
    let seen_early = read(&mut early, COUNT).await;
    appending.await.unwrap();
    let mut late = log.tail(&START).await.unwrap();
    assert_eq!(read(&mut late, COUNT).await, seen_early);
}

async fn an_offset_that_is_not_there_is_an_error_that_names_it(fixture: Fixture) {
    let log = fixture.open().await;
    append_all(&log, P0, 3).await;
    let expected = LogError::OutOfRange {
        lane: P0,
        offset: Offset(4),
        low: Offset(0),
        end: Offset(3),
    };
    let start = [(Lane::Index, Offset(0)), (P0, Offset(4))];
    assert_eq!(log.tail(&start).await.unwrap_err(), expected);
    let mut tail = log.tail(&[(Lane::Index, Offset(0))]).await.unwrap();
    assert_eq!(tail.add(P0, Offset(4)).await, Err(expected));
    // A tail that was refused a lane goes on with the others.
    tail.add(P0, Offset(2)).await.unwrap();
    assert_eq!(offsets(&read(&mut tail, 1).await), [2]);
}

async fn a_lane_that_is_not_there_is_an_error(fixture: Fixture) {
    let log = fixture.open().await;
    let lane = Lane::Claims(PartitionId(3));
    let unknown = LogError::UnknownLane {
        lane,
        partitions: 3,
    };
    assert_eq!(log.probe(lane).await, Err(unknown.clone()));
    assert_eq!(log.tail(&[(lane, Offset(0))]).await.unwrap_err(), unknown);
    let mut tail = log.tail(&[]).await.unwrap();
    assert_eq!(tail.add(lane, Offset(0)).await, Err(unknown));
    let twice = log.tail(&[(P0, Offset(0)), (P0, Offset(0))]).await;
    assert_eq!(twice.unwrap_err(), LogError::LaneTaken { lane: P0 });
    assert_eq!(
        log.append(lane, value(0)).await,
        Err(AppendError::Refused(Refused::UnknownLane {
            lane,
            partitions: 3
        }))
    );
}

async fn a_log_that_is_missing_is_an_error_and_is_not_created(mut fixture: Fixture) {
    fixture.config.embedded.create = false;
    fixture.config.kafka.create = false;
    for _ in 0..2 {
        let error = Log::open(&fixture.config).await.unwrap_err();
        let text = error.to_string();
        let name = fixture.config.embedded.path.display().to_string();
        assert!(
            text.contains(&fixture.config.kafka.topic_index) || text.contains(&name),
            "{text}"
        );
        assert!(
            matches!(error, dropgate_stream::OpenError::Missing { .. }),
            "{error:?}"
        );
    }
    // Reading alone never creates, whatever the configuration says.
    fixture.config.embedded.create = true;
    fixture.config.kafka.create = true;
    let error = Log::open_read_only(&fixture.config).await.unwrap_err();
    assert!(
        matches!(error, dropgate_stream::OpenError::Missing { .. }),
        "{error:?}"
    );
}

async fn a_log_opened_for_reading_follows_and_refuses_appends(fixture: Fixture) {
    let log = fixture.open().await;
    let reading = Log::open_read_only(&fixture.config).await.unwrap();
    let mut tail = reading.tail(&START).await.unwrap();
    let refused = reading.append(P0, value(0)).await.unwrap_err();
    assert_eq!(refused, AppendError::Refused(Refused::ReadOnly));
    for n in 0..20 {
        log.append(P0, value(n)).await.unwrap();
        let items = read(&mut tail, 1).await;
        assert_eq!(items[0].value, value(n));
    }
    assert_eq!(reading.probe(P0).await, log.probe(P0).await);
    assert_eq!(
        reading.settings().await.unwrap(),
        log.settings().await.unwrap()
    );
}

async fn a_closed_log_refuses_and_has_kept_what_it_accepted(fixture: Fixture) {
    const COUNT: usize = 500;
    let log = fixture.open().await;
    let appends: Vec<_> = (0..COUNT)
        .map(|n| {
            let log = log.clone();
            tokio::spawn(async move { log.append(P0, value(n)).await })
        })
        .collect();
    // Some are on their way, some not begun: each is told the truth.
    let first = log.append(P0, value(COUNT)).await.unwrap();
    log.close(BOUND).await;
    let refused = log.append(P0, value(0)).await.unwrap_err();
    assert_eq!(refused, AppendError::Refused(Refused::Closed));
    let mut told = vec![first];
    for append in appends {
        match append.await.unwrap() {
            Ok(offset) => told.push(offset),
            Err(error) => assert_eq!(error, AppendError::Refused(Refused::Closed)),
        }
    }
    told.sort_unstable();
    let expected: Vec<_> = (0..told.len() as u64).map(Offset).collect();
    assert_eq!(told, expected);
    let end = log.probe(P0).await.unwrap().end;
    assert_eq!(end, Offset(told.len() as u64), "nothing else was written");
}

async fn a_tail_that_nobody_reads_stays_bounded(mut fixture: Fixture) {
    const COUNT: usize = 100_000;
    const BYTES: usize = 400;
    fixture.config.kafka.queued_kib_max = 1024;
    let log = fixture.open().await;
    let mut tail = log.tail(&START).await.unwrap();
    let before = log.append(P0, Bytes::from(vec![1; BYTES])).await.unwrap();
    read(&mut tail, 1).await;
    let writers = (0..256).map(|_| {
        let log = log.clone();
        tokio::spawn(async move {
            for _ in 0..COUNT / 256 {
                log.append(P0, Bytes::from(vec![1; BYTES])).await.unwrap();
            }
        })
    });
    let mut queued_max = 0;
    let mut writing = std::pin::pin!(join_all(writers));
    loop {
        tokio::select! {
            done = &mut writing => break done.into_iter().for_each(Result::unwrap),
            () = tokio::time::sleep(Duration::from_millis(5)) => {
                queued_max = queued_max.max(tail.queued());
            }
        }
    }
    queued_max = queued_max.max(tail.queued());
    // The bound may be passed by what one fetch brings, 1 MiB.
    let bytes = queued_max as usize * BYTES;
    assert!(
        bytes <= 2 * 1024 * 1024 + 512 * 1024,
        "{queued_max} records"
    );
    // It goes on from there without a gap.
    let items = read(&mut tail, COUNT / 256 * 256).await;
    assert_eq!(items[0].offset, before.next());
    assert_eq!(by_lane(items).len(), 1);
}
