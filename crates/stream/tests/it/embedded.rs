//! The embedded log when its process dies, its disk says no or its file is not its own.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use dropgate_domain::Offset;
use dropgate_stream::{AppendError, Lane, Log, LogConfig, LogError, OpenError, Refused};
use futures::stream::{FuturesUnordered, StreamExt};
use rusqlite::Connection;

use crate::support::{BOUND, Fixture, P0, P1, START, blocking, offsets, read, value};

/// Tells [`child_that_appends`] which file it writes.
const CHILD_PATH: &str = "DROPGATE_STREAM_CHILD_PATH";

/// Not a test: the process that the tests below start, and kill. It appends 16 records at a
/// time and says for each what it was told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn child_that_appends() {
    let Some(path) = std::env::var_os(CHILD_PATH) else {
        return;
    };
    let mut config = LogConfig::default();
    config.embedded.path = path.into();
    let log = Log::open(&config).await.unwrap();
    let append = |n: usize| {
        let (log, lane) = (log.clone(), [P0, P1][n % 2]);
        async move { (n, log.append(lane, payload(n)).await) }
    };
    let mut waiting: FuturesUnordered<_> = (0..16).map(append).collect();
    for next in 16..100_000 {
        let (n, told) = waiting.next().await.unwrap();
        let line = match told {
            Ok(offset) => format!("told {n} {offset}\n"),
            Err(AppendError::Unknown(_)) => format!("unknown {n} 0\n"),
            Err(AppendError::Refused(Refused::Broken(_))) => format!("broken {n} 0\n"),
            Err(AppendError::Refused(_)) => format!("refused {n} 0\n"),
        };
        // Not `print!`, which the test harness would keep.
        std::io::stdout().write_all(line.as_bytes()).unwrap();
        waiting.push(append(next));
    }
}

fn payload(n: usize) -> Bytes {
    Bytes::from(format!("{n} {}", "x".repeat(n % 500)))
}

/// What the child was told of one record.
#[derive(Debug, PartialEq)]
struct Told {
    what: String,
    n: usize,
    offset: Offset,
}

struct Appender {
    process: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Appender {
    /// Starts the child; `limit` is a shell command that runs before it.
    fn start(path: &Path, limit: &str) -> Self {
        let me = std::env::current_exe().unwrap();
        let mut process = Command::new("sh")
            .arg("-c")
            .arg(format!("{limit} exec \"$0\" \"$@\""))
            .arg(me)
            .args(["--exact", "embedded::child_that_appends", "--nocapture"])
            .env(CHILD_PATH, path)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    /// What it says next; none when it has ended.
    fn next(&mut self) -> Option<Told> {
        loop {
            let line = self.lines.next()?.unwrap();
            let words: Vec<_> = line.split(' ').collect();
            if let ["told" | "unknown" | "broken" | "refused", n, offset] = words[..] {
                return Some(Told {
                    what: words[0].to_owned(),
                    n: n.parse().unwrap(),
                    offset: Offset(offset.parse().unwrap()),
                });
            }
        }
    }

    /// SIGKILL; what it had said by then.
    fn kill9(mut self) -> Vec<Told> {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let mut said = Vec::new();
        while let Some(told) = self.next() {
            said.push(told);
        }
        said
    }
}

/// Opens what a child left, and finds every record that it was told of at its offset.
async fn assert_kept(config: &LogConfig, told: &[Told]) {
    let log = Log::open(config).await.unwrap();
    let ends = [
        log.probe(P0).await.unwrap().end,
        log.probe(P1).await.unwrap().end,
    ];
    let mut tail = log.tail(&START).await.unwrap();
    let items = read(&mut tail, (ends[0].0 + ends[1].0) as usize).await;
    for told in told.iter().filter(|told| told.what == "told") {
        let lane = [P0, P1][told.n % 2];
        let kept = items
            .iter()
            .find(|item| (item.lane, item.offset) == (lane, told.offset));
        assert_eq!(
            kept.map(|item| &item.value),
            Some(&payload(told.n)),
            "{told:?}"
        );
    }
    let next = log.append(P0, value(0)).await.unwrap();
    assert_eq!(next, ends[0], "it goes on behind what was kept");
    log.close(BOUND).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_outlives_a_killed_writer() {
    let fixture = Fixture::embedded();
    let path = fixture.config.embedded.path.clone();
    let mut said = Vec::new();
    for round in 0..3 {
        let mut child = Appender::start(&path, "");
        for _ in 0..300 + 137 * round {
            said.push(child.next().unwrap());
        }
        // While it lives nobody else may write, whatever this process knows.
        let error = Log::open(&fixture.config).await.unwrap_err();
        assert!(matches!(error, OpenError::InUse { .. }), "{error:?}");
        assert!(error.to_string().contains("another process"), "{error}");
        said.extend(child.kill9());
        assert!(said.iter().all(|told| told.what == "told"), "{said:?}");
        assert_kept(&fixture.config, &said).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_disk_that_says_no_is_never_an_acknowledgement() {
    let fixture = Fixture::embedded();
    let path = fixture.config.embedded.path.clone();
    Log::open(&fixture.config).await.unwrap().close(BOUND).await;
    // No file may grow above 512 KiB: writes fail with EFBIG, an I/O error to SQLite.
    let mut child = Appender::start(&path, "trap '' XFSZ; ulimit -f 1024;");
    let said = blocking(move || {
        let mut said = Vec::new();
        while said
            .iter()
            .filter(|told: &&Told| told.what == "broken")
            .count()
            < 100
        {
            said.push(child.next().unwrap());
        }
        said.extend(child.kill9());
        said
    })
    .await;
    let count = |what| said.iter().filter(|told| told.what == what).count();
    assert!(count("told") > 100, "{} told", count("told"));
    assert!(count("unknown") > 0, "a failed commit is unknown");
    let first = said.iter().position(|told| told.what != "told").unwrap();
    assert!(
        said[first..].iter().all(|told| told.what != "told"),
        "after an I/O error nothing is acknowledged any more"
    );
    assert_kept(&fixture.config, &said).await;
}

#[tokio::test]
async fn a_second_writer_is_refused_and_a_reader_is_not() {
    let fixture = Fixture::embedded();
    let log = fixture.open().await;
    let second = Log::open(&fixture.config).await.unwrap_err();
    assert!(matches!(second, OpenError::InUse { .. }), "{second:?}");
    // Another spelling is the same file.
    let mut other = fixture.config.clone();
    let link = fixture.config.embedded.path.with_extension("link");
    std::os::unix::fs::symlink(&fixture.config.embedded.path, &link).unwrap();
    other.embedded.path = link;
    let second = Log::open(&other).await.unwrap_err();
    assert!(matches!(second, OpenError::InUse { .. }), "{second:?}");
    Log::open_read_only(&other).await.unwrap();
    log.close(BOUND).await;
    Log::open(&other).await.unwrap();
}

#[tokio::test]
async fn a_deleted_file_is_an_error_for_writers_and_readers() {
    let fixture = Fixture::embedded();
    let log = fixture.open().await;
    log.append(P0, value(0)).await.unwrap();
    let mut idle = log.tail(&[(P0, Offset(1))]).await.unwrap();
    let reading = Log::open_read_only(&fixture.config).await.unwrap();
    let mut elsewhere = reading.tail(&[(P0, Offset(1))]).await.unwrap();
    std::fs::remove_file(&fixture.config.embedded.path).unwrap();

    for tail in [&mut idle, &mut elsewhere] {
        let error = tail.next(1, Duration::from_millis(50)).await.unwrap_err();
        assert!(
            matches!(error, LogError::WrongLog { found: None, .. }),
            "{error:?}"
        );
        assert_eq!(tail.next(1, BOUND).await, Err(error), "for good");
    }
    for log in [&log, &reading] {
        let error = log.probe(P0).await.unwrap_err();
        assert!(matches!(error, LogError::WrongLog { .. }), "{error:?}");
        let error = log.tail(&START).await.unwrap_err();
        assert!(matches!(error, LogError::WrongLog { .. }), "{error:?}");
    }
    let told = log.append(P0, value(1)).await.unwrap_err();
    assert!(
        matches!(
            told,
            AppendError::Refused(Refused::Broken(_)) | AppendError::Unknown(_)
        ),
        "{told:?}"
    );
    let told = log.append(P0, value(2)).await.unwrap_err();
    assert!(
        matches!(told, AppendError::Refused(Refused::Broken(_))),
        "{told:?}"
    );
}

#[tokio::test]
async fn a_replaced_file_is_an_error_and_never_a_new_beginning() {
    let (fixture, other) = (Fixture::embedded(), Fixture::embedded());
    let log = fixture.open().await;
    log.append(P0, value(0)).await.unwrap();
    let mut tail = log.tail(&[(P0, Offset(0))]).await.unwrap();
    read(&mut tail, 1).await;
    let other_log = other.open().await;
    other_log.append(P0, value(10)).await.unwrap();
    other_log.append(P0, value(11)).await.unwrap();
    other_log.close(BOUND).await;
    std::fs::rename(&other.config.embedded.path, &fixture.config.embedded.path).unwrap();
    // The append is first to find out: it may be in a file that nobody will read again.
    let told = log.append(P0, value(1)).await.unwrap_err();
    assert!(matches!(told, AppendError::Unknown(_)), "{told:?}");
    let error = tail.next(10, Duration::from_millis(50)).await.unwrap_err();
    assert!(matches!(error, LogError::WrongLog { .. }), "{error:?}");
}

#[tokio::test]
async fn the_file_says_how_many_partitions_there_are() {
    let mut fixture = Fixture::embedded();
    fixture.open().await.close(BOUND).await;
    fixture.config.embedded.partitions = 99;
    fixture.config.embedded.create = false;
    assert_eq!(fixture.open().await.partitions(), 3);
}

#[tokio::test]
async fn what_is_not_a_log_of_ours_is_refused_and_left_alone() {
    let fixture = Fixture::embedded();
    let path = &fixture.config.embedded.path;
    std::fs::write(path, "these are notes, and quite a lot of them ".repeat(50)).unwrap();
    let before = std::fs::read(path).unwrap();
    let error = Log::open(&fixture.config).await.unwrap_err();
    assert!(matches!(error, OpenError::Unusable { .. }), "{error:?}");
    assert_eq!(std::fs::read(path).unwrap(), before);

    std::fs::remove_file(path).unwrap();
    let foreign = Connection::open(path).unwrap();
    foreign.execute_batch("CREATE TABLE orders (id)").unwrap();
    drop(foreign);
    for error in [
        Log::open(&fixture.config).await.unwrap_err(),
        Log::open_read_only(&fixture.config).await.unwrap_err(),
    ] {
        assert!(error.to_string().contains("not a log"), "{error}");
    }

    std::fs::remove_file(path).unwrap();
    fixture.open().await.close(BOUND).await;
    let newer = Connection::open(path).unwrap();
    newer.pragma_update(None, "user_version", 2).unwrap();
    drop(newer);
    let error = Log::open(&fixture.config).await.unwrap_err();
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[tokio::test]
async fn a_creation_that_was_cut_off_is_finished_or_missing() {
    let mut fixture = Fixture::embedded();
    std::fs::write(&fixture.config.embedded.path, "").unwrap();
    fixture.config.embedded.create = false;
    let error = Log::open(&fixture.config).await.unwrap_err();
    assert!(matches!(error, OpenError::Missing { .. }), "{error:?}");
    fixture.config.embedded.create = true;
    let log = fixture.open().await;
    assert_eq!(log.append(P0, value(0)).await, Ok(Offset(0)));
}

#[tokio::test]
async fn a_missing_record_is_a_gap_after_what_was_in_order() {
    let fixture = Fixture::embedded();
    let log = fixture.open().await;
    for n in 0..10 {
        log.append(P0, value(n)).await.unwrap();
    }
    let mut tail = log.tail(&[(P0, Offset(0))]).await.unwrap();
    let raw = Connection::open(&fixture.config.embedded.path).unwrap();
    raw.execute("DELETE FROM claims WHERE off = 6", []).unwrap();
    assert_eq!(offsets(&read(&mut tail, 6).await), [0, 1, 2, 3, 4, 5]);
    let gap = LogError::Gap {
        lane: P0,
        expected: Offset(6),
        found: Offset(7),
    };
    assert_eq!(tail.next(10, BOUND).await, Err(gap.clone()));
    assert_eq!(tail.next(10, BOUND).await, Err(gap), "for good");

    raw.execute("DELETE FROM claims WHERE off < 3", []).unwrap();
    let error = log.tail(&[(P0, Offset(2))]).await.unwrap_err();
    let expected = LogError::OutOfRange {
        lane: P0,
        offset: Offset(2),
        low: Offset(3),
        end: Offset(10),
    };
    assert_eq!(error, expected);
}

#[tokio::test]
async fn a_writer_beside_the_lock_stops_the_log() {
    let fixture = Fixture::embedded();
    let log = fixture.open().await;
    log.append(P0, value(0)).await.unwrap();
    let raw = Connection::open(&fixture.config.embedded.path).unwrap();
    raw.execute("INSERT INTO claims VALUES (0, 1, x'00')", [])
        .unwrap();
    for lane in [P0, Lane::Index] {
        let told = log.append(lane, value(1)).await.unwrap_err();
        assert!(
            matches!(told, AppendError::Refused(Refused::Broken(_))),
            "{told:?}"
        );
    }
}

#[tokio::test]
async fn a_locked_file_is_busy_for_a_while_and_nothing_more() {
    let mut fixture = Fixture::embedded();
    fixture.config.embedded.append_timeout = Duration::from_millis(200);
    fixture.config.embedded.probe_timeout = Duration::from_millis(50);
    let log = fixture.open().await;
    let mut raw = Connection::open(&fixture.config.embedded.path).unwrap();
    let locked = raw
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .unwrap();
    let told = log.append(P0, value(0)).await.unwrap_err();
    assert!(
        matches!(told, AppendError::Refused(Refused::Backend(_))),
        "{told:?}"
    );
    drop(locked);
    assert_eq!(log.append(P0, value(1)).await, Ok(Offset(0)));
}

#[tokio::test]
async fn what_is_unknown_may_still_come() {
    let mut fixture = Fixture::embedded();
    fixture.config.embedded.append_timeout = Duration::from_millis(100);
    let log = fixture.open().await;
    let mut tail = log.tail(&START).await.unwrap();
    let mut raw = Connection::open(&fixture.config.embedded.path).unwrap();
    let locked = raw
        .transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)
        .unwrap();
    let told = log.append(P0, value(7)).await.unwrap_err();
    assert!(matches!(told, AppendError::Unknown(_)), "{told:?}");
    drop(locked);
    assert_eq!(read(&mut tail, 1).await[0].value, value(7));
}

#[tokio::test]
async fn a_tail_of_a_closed_log_follows_the_next_writer() {
    let fixture = Fixture::embedded();
    let log = fixture.open().await;
    let mut tail = log.tail(&START).await.unwrap();
    log.append(P0, value(0)).await.unwrap();
    log.close(BOUND).await;
    let next = fixture.open().await;
    next.append(P0, value(1)).await.unwrap();
    assert_eq!(offsets(&read(&mut tail, 2).await), [0, 1]);
    let waiting = tokio::spawn(async move { read(&mut tail, 1).await });
    next.append(P0, value(2)).await.unwrap();
    assert_eq!(waiting.await.unwrap()[0].value, value(2));
}
