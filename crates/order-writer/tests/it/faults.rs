//! What happens while the database is away, held, in another's hands, or says no.

use crate::world::{Author, BOUND, World, blocking, quick, wait};
use dropgate_order_writer::{RunError, WriterConfig};
use dropgate_stream::Log;
use dropgate_testkit::{Database, Kafka, KafkaOptions, Postgres, PostgresOptions};

const CONFLICTS: &str = r#"dropgate_write_transactions_total{outcome="Conflict"}"#;

async fn own_postgres() -> (Postgres, Database) {
    blocking(|| {
        let server = Postgres::start(&PostgresOptions::default())?;
        let database = server.database()?;
        Ok((server, database))
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_follow_when_a_stopped_database_is_back_and_memory_is_bounded() {
    let (mut server, database) = own_postgres().await;
    let world = World::over(database.keep()).await;
    let config = WriterConfig {
        batch_events_max: 50,
        pending_events_max: 100,
        ..quick()
    };
    let writer = world.writer(&config).await;
    let mut a = Author::open(&world.log, "a", 100_000).await;
    a.win(10).await;
    world.is_written(&a).await;
    server.stop().unwrap();
    for _ in 0..50 {
        a.win(100).await;
    }
    writer.says("the database did not answer").await;
    let pending = writer.metric("dropgate_writer_pending_events").unwrap();
    assert!(
        pending <= 100 + 2000,
        "one read beyond the bound at most: {pending}"
    );
    wait(|| async {
        match writer.metric("dropgate_writer_lag_records") {
            Some(5000) => Ok(()),
            lag => Err(format!("{lag:?}")),
        }
    })
    .await;
    server.restart().unwrap();
    world.is_written(&a).await;
    writer.is_ready().await;
    writer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_follow_when_a_killed_or_hung_database_is_back() {
    let (mut server, database) = own_postgres().await;
    let world = World::over(database.keep()).await;
    let writer = world.writer(&quick()).await;
    let mut a = Author::open(&world.log, "a", 100_000).await;
    for round in 0..3 {
        a.win(50).await;
        if round == 1 {
            server.pause().unwrap();
        } else {
            server.kill9().unwrap();
        }
        a.win(50).await;
        writer.says("the database did not answer").await;
        if round == 1 {
            server.resume().unwrap();
        } else {
            server.restart().unwrap();
        }
        a.win(50).await;
        world.is_written(&a).await;
    }
    writer.is_ready().await;
    writer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_that_is_held_only_delays() {
    let database = blocking(|| Ok(Postgres::shared_database()?)).await;
    let world = World::over(database).await;
    let writer = world.writer(&quick()).await;
    let mut a = Author::open(&world.log, "a", 1000).await;
    a.win(5).await;
    world.is_written(&a).await;
    let database = world.database.as_ref().expect("a database");
    let log = world.folder.path().join("psql.log");
    let hold = "BEGIN; LOCK TABLE orders; SELECT pg_sleep(600)";
    let held = database.sql_in_background(hold, &log).unwrap();
    let granted = "SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND granted \
                   AND relation = 'orders'::regclass";
    wait(|| async {
        match database.sql(granted) {
            Ok(count) if count == "1" => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
    a.win(5).await;
    writer.says("the database did not answer (timeout)").await;
    let release = "SELECT pg_terminate_backend(pid) FROM pg_locks \
                   WHERE mode = 'AccessExclusiveLock' AND relation = 'orders'::regclass";
    database.sql(release).unwrap();
    drop(held);
    world.is_written(&a).await;
    assert_eq!(writer.metric(CONFLICTS), None);
    writer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_row_stops_its_sale_and_no_other() {
    for world in [World::small().await, World::large().await] {
        let mut a = Author::open(&world.log, "a", 1000).await;
        let mut b = Author::open(&world.log, "b", 1000).await;
        // Somebody wrote into the table by hand: unit 3 of sale a has an owner.
        let stranger = "INSERT INTO orders VALUES ('a', 3, '1-99-x', 'stranger', 'x', '', 1, 99, \
                        'won', 1)";
        world.sql(stranger).await;
        a.win(5).await;
        b.win(5).await;
        let writer = world.writer(&quick()).await;
        writer
            .says("sale a is not written: the database refuses a row")
            .await;
        b.win(5).await;
        a.win(5).await;
        world.is_written(&b).await;
        assert_eq!(
            world.store.sale(&a.sale).await.unwrap(),
            None,
            "nothing of it is half there"
        );
        let refused = r#"dropgate_write_transactions_total{outcome="Refused"}"#;
        assert_eq!(
            writer.metric(refused),
            Some(1),
            "it is not tried again and again"
        );
        let blocked = r#"dropgate_writer_blocked_sales{reason="Refused"}"#;
        assert_eq!(writer.metric(blocked), Some(1));
        writer.stop().await;

        // Once an operator has looked, a new start writes it.
        world
            .sql("DELETE FROM orders WHERE user_id = 'stranger'")
            .await;
        let writer = world.writer(&quick()).await;
        world.is_written(&a).await;
        writer.is_ready().await;
        writer.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_another_history_stops_the_sale_and_no_other() {
    for world in [World::small().await, World::large().await] {
        let mut a = Author::open(&world.log, "a", 1000).await;
        let mut b = Author::open(&world.log, "b", 1000).await;
        a.win(5).await;
        let writer = world.writer(&quick()).await;
        world.is_written(&a).await;
        writer.stop().await;
        let zeros = "00".repeat(20);
        let chain = match &world.database {
            Some(_) => format!(r"'\x{zeros}'"),
            None => format!("x'{zeros}'"),
        };
        world
            .sql(&format!(
                "UPDATE sales SET chain = {chain} WHERE sale_id = 'a'"
            ))
            .await;

        let writer = world.writer(&quick()).await;
        a.win(5).await;
        b.win(5).await;
        world.is_written(&b).await;
        writer
            .says("sale a is not written: the database belongs to another history")
            .await;
        assert_eq!(world.orders(&a.sale).await, a.wins[..5]);
        let blocked = r#"dropgate_writer_blocked_sales{reason="OtherHistory"}"#;
        assert_eq!(writer.metric(blocked), Some(1));
        writer.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_cannot_be_read_stops_its_sale_after_what_was_read() {
    let world = World::small().await;
    let writer = world.writer(&quick()).await;
    let mut a = Author::open(&world.log, "a", 1000).await;
    let mut b = Author::open(&world.log, "b", 1000).await;
    a.win(5).await;
    let stored = a.position();
    a.unreadable().await;
    b.win(5).await;
    world.is_written(&b).await;
    writer.says("sale a is not written: ").await;
    world.is_written(&a).await;
    assert_eq!(a.position(), stored);
    writer.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopping_writes_what_was_read() {
    let world = World::small().await;
    let mut a = Author::open(&world.log, "a", 10_000).await;
    a.win(1000).await;
    let config = WriterConfig {
        batch_events_max: 10,
        ..quick()
    };
    let writer = world.writer(&config).await;
    wait(|| async {
        match writer.metric("dropgate_orders_written_total") {
            Some(1..) => Ok(()),
            written => Err(format!("{written:?}")),
        }
    })
    .await;
    assert_eq!(
        writer.stop().await,
        Some(0),
        "events that were read and not written"
    );
    let rows = world.orders(&a.sale).await;
    assert_eq!(rows, a.wins[..rows.len()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writing_goes_on_when_a_killed_broker_is_back() {
    let mut server = blocking(|| Ok(Kafka::start(&KafkaOptions::default())?)).await;
    let world = World::beside(&server.brokers()).await;
    let writer = world.writer(&quick()).await;
    let mut a = Author::open(&world.log, "a", 1000).await;
    a.win(50).await;
    world.is_written(&a).await;
    server = blocking(move || {
        server.kill9()?;
        server.restart()?;
        Ok(server)
    })
    .await;
    // What another writes afterwards is read by the same reader.
    a.go_on_with(Log::open(&world.log_config).await.unwrap());
    a.win(50).await;
    world.is_written(&a).await;
    writer.is_ready().await;
    writer.stop().await;
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_that_was_made_anew_ends_the_writer() {
    let world = World::small().await;
    let mut writer = world.writer(&quick()).await;
    let mut a = Author::open(&world.log, "a", 1000).await;
    a.win(5).await;
    world.is_written(&a).await;
    world.log.close(BOUND).await;
    let path = world.log_config.embedded.path.clone();
    for suffix in ["", "-wal", "-shm"] {
        let mut file = path.clone().into_os_string();
        file.push(suffix);
        let _ = std::fs::remove_file(file);
    }
    let other = Log::open(&world.log_config).await.unwrap();
    let mut b = Author::open(&other, "a", 1000).await;
    b.win(9).await;
    let ended = tokio::time::timeout(BOUND, writer.running.ended()).await;
    let error = ended.expect("the writer ends").unwrap_err();
    assert!(matches!(error, RunError::Log(_)), "{error}");
    assert!(!writer.reasons().is_empty());
    assert_eq!(
        world.orders(&a.sale).await,
        a.wins,
        "nothing of the other log was written"
    );
}
