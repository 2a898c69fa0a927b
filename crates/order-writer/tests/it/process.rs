//! The binary: what it says when something is missing, and how it ends.

use crate::world::{Author, BOUND, World, blocking, wait};
use dropgate_stream::{Backend, LogConfig};
use dropgate_testkit::ports::Port;
use dropgate_testkit::process::{Process, ProcessOptions, Ready};
use dropgate_testkit::{Database, Postgres, http};

fn options(log: &LogConfig, url: &str, ops: u16) -> ProcessOptions {
    let mut options = ProcessOptions::of_ours("dropgate-order-writer")
        .unwrap()
        .env("DROPGATE_STORE__URL", url)
        .env("DROPGATE_OPS__BIND", format!("127.0.0.1:{ops}"))
        .env("DROPGATE_WRITER__BACKOFF_MAX", "200ms")
        .env("DROPGATE_STORE__CONNECT_TIMEOUT", "500ms");
    if log.backend == Backend::Kafka {
        options = options
            .env("DROPGATE_LOG__BACKEND", "kafka")
            .env("DROPGATE_LOG__KAFKA__BROKERS", &log.kafka.brokers)
            .env("DROPGATE_LOG__KAFKA__TOPIC_INDEX", &log.kafka.topic_index)
            .env("DROPGATE_LOG__KAFKA__TOPIC_CLAIMS", &log.kafka.topic_claims);
    } else {
        let path = log.embedded.path.display().to_string();
        options = options.env("DROPGATE_LOG__EMBEDDED__PATH", path);
    }
    options
}

async fn started(options: ProcessOptions, ready: Ready) -> Process {
    blocking(move || Ok(options.ready(ready).start()?)).await
}

fn is_ready(ops: u16) -> Ready {
    Ready::Http(ops, "/readyz".into())
}

async fn metric(ops: u16, name: &'static str) -> Option<i64> {
    let body = blocking(move || Ok(http::get(ops, "/metrics")?.body)).await;
    let line = body
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_process_writes_on_after_its_restart_with_few_transactions() {
    let world = World::large().await;
    let database = world.database.as_ref().expect("a database");
    let ops = Port::reserve().unwrap();
    let options = || options(&world.log_config, &database.url(), ops.number());
    let mut a = Author::open(&world.log, "a", 100_000).await;
    let mut process = started(options(), is_ready(ops.number())).await;
    for _ in 0..5 {
        a.win(40).await;
        process.kill9().unwrap();
        a.win(40).await;
        process = started(options(), is_ready(ops.number())).await;
    }
    world.is_written(&a).await;
    let transactions = database
        .sql("SELECT count(DISTINCT xmin::text) FROM orders")
        .unwrap();
    let transactions: usize = transactions.parse().unwrap();
    assert!(transactions <= a.wins.len(), "{transactions}");
    assert!(metric(ops.number(), "dropgate_writer_pending_events").await == Some(0));

    assert_eq!(process.terminate(BOUND).unwrap(), Some(0));
    let log = process.output().unwrap();
    assert!(log.contains("order-writer ended"), "{log}");
    for step in [
        "readiness: Done",
        "writer: Done",
        "log: Done",
        "database: Done",
        "ops: Done",
    ] {
        assert!(log.contains(step), "{step} is missing:\n{log}");
    }
    assert!(!log.contains(dropgate_testkit::postgres::PASSWORD), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_log_and_database_it_waits_says_so_and_begins_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let mut log = LogConfig::default();
    log.embedded.path = folder.path().join("log.db");
    let ops = Port::reserve().unwrap();
    let nobody = Port::reserve().unwrap();
    let url = format!("postgres://user:hunter2@127.0.0.1:{}/db", nobody.number());
    let live = Ready::Http(ops.number(), "/livez".into());
    let mut process = started(options(&log, &url, ops.number()), live.clone()).await;
    says(ops.number(), "the database did not answer").await;
    assert_eq!(process.terminate(BOUND).unwrap(), Some(0));
    let output = process.output().unwrap();
    assert!(
        output.contains("order-writer ended") && !output.contains("hunter2"),
        "{output}"
    );
    drop(process);

    let database: Database = blocking(|| Ok(Postgres::shared_database()?)).await;
    let mut process = started(options(&log, &database.url(), ops.number()), live).await;
    says(ops.number(), "does not exist").await;
    let author = dropgate_stream::Log::open(&log).await.unwrap();
    let mut a = Author::open(&author, "a", 10).await;
    a.win(3).await;
    wait(|| async {
        match database.sql("SELECT count(*) FROM orders") {
            Ok(count) if count == "3" => Ok(()),
            seen => Err(format!("{seen:?}\n{}", process.output().unwrap())),
        }
    })
    .await;
    assert_eq!(process.terminate(BOUND).unwrap(), Some(0));
}

async fn says(ops: u16, text: &str) {
    wait(|| async {
        let answer = blocking(move || Ok(http::get(ops, "/readyz")?)).await;
        if answer.status == 503 && answer.body.contains(text) {
            Ok(())
        } else {
            Err(format!("{answer:?}"))
        }
    })
    .await;
}

#[test]
fn a_wrong_configuration_ends_it_with_every_problem_named() {
    let ended = std::process::Command::new(env!("CARGO_BIN_EXE_dropgate-order-writer"))
        .env("DROPGATE_STORE__URL", "mysql://user:hunter2@h/d")
        .env("DROPGATE_WRITER__STANDBY", "1ms")
        .env("DROPGATE_WRITER__BATCH", "5")
        .output()
        .unwrap();
    let output = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{output}");
    for path in ["store.url", "writer.standby", "writer.batch"] {
        assert!(output.contains(path), "{path} is missing:\n{output}");
    }
    assert!(!output.contains("hunter2"), "{output}");
}
