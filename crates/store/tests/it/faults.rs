//! What happens while a database is away, held, or wrong.

use crate::db;
use crate::fixture::{all_orders, following, opening, orders};
use dropgate_store::{
    OpenError, SaleWrite, Store, StoreConfig, StoreError, TransientKind, WriteError,
};
use dropgate_testkit::{Database, Postgres, PostgresOptions, Proxy};
use sea_orm::{ConnectionTrait, SqliteTransactionMode, TransactionOptions, TransactionTrait};
use secrecy::ExposeSecret;
use std::time::Duration;

fn impatient(config: &StoreConfig) -> StoreConfig {
    StoreConfig {
        connect_timeout: Duration::from_millis(300),
        statement_timeout: Duration::from_millis(300),
        call_timeout: Duration::from_secs(2),
        ..config.clone()
    }
}

fn transient_kind(result: Result<(), WriteError>) -> TransientKind {
    match result {
        Err(WriteError::Transient(transient)) => transient.kind,
        other => panic!("expected a transient failure, saw {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_lock_is_transient_and_not_stuck_in_sqlite() {
    let db = db::sqlite().await;
    let first = opening("drop", 10, orders(0, 1, 2));
    db.store.write(std::slice::from_ref(&first)).await.unwrap();

    let other = sea_orm::Database::connect(db.config.url.expose_secret())
        .await
        .unwrap();
    let immediate = TransactionOptions {
        sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
        ..TransactionOptions::default()
    };
    let held = other.begin_with_options(immediate).await.unwrap();
    let second = following(&first, orders(0, 3, 4));
    let store = Store::connect(&impatient(&db.config)).await.unwrap();
    let kind = transient_kind(store.write(std::slice::from_ref(&second)).await);
    assert_eq!(kind, TransientKind::Lock);
    assert_eq!(
        all_orders(&store, &first.sale).await,
        first.orders,
        "reads go on"
    );
    held.rollback().await.unwrap();
    store.write(&[second]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_held_table_is_transient_and_not_stuck_in_postgres() {
    let db = db::postgres().await;
    let first = opening("drop", 10, orders(0, 1, 2));
    db.store.write(std::slice::from_ref(&first)).await.unwrap();

    let other = sea_orm::Database::connect(db.config.url.expose_secret())
        .await
        .unwrap();
    let held = other.begin().await.unwrap();
    held.execute_unprepared("LOCK TABLE orders").await.unwrap();
    let second = following(&first, orders(0, 3, 4));
    let store = Store::connect(&impatient(&db.config)).await.unwrap();
    for _ in 0..6 {
        // More often than the pool has connections: none may be lost.
        let kind = transient_kind(store.write(std::slice::from_ref(&second)).await);
        assert_eq!(kind, TransientKind::Timeout);
    }
    held.rollback().await.unwrap();
    store.write(std::slice::from_ref(&second)).await.unwrap();
    assert_eq!(all_orders(&store, &first.sale).await, orders(0, 1, 4));
}

#[tokio::test]
async fn a_database_without_its_schema_is_transient() {
    let (config, _folder) = db::sqlite_config();
    let database = db::postgres_database().await;
    for config in [config, StoreConfig::with_url(database.url())] {
        let store = Store::connect(&config).await.unwrap();
        let first = opening("drop", 10, orders(0, 1, 2));
        let kind = transient_kind(store.write(std::slice::from_ref(&first)).await);
        assert_eq!(kind, TransientKind::Other);
        store.migrate().await.unwrap();
        store.write(&[first]).await.unwrap();
    }
}

#[tokio::test]
async fn no_error_names_the_password() {
    let urls = [
        "postgres://user:hunter2@127.0.0.1:1/db",
        "postgres://user:hunter2@[127.0.0.1:1/db",
        "postgres://user:hunter2@127.0.0.1:99999/db",
        "postgres://user:hun?ter2@127.0.0.1:1/db",
        "postgres://user:p#hunter2@127.0.0.1:1/db",
        "mysql://user:hunter2@127.0.0.1:1/db",
    ];
    for url in urls {
        let error = Store::connect(&impatient(&StoreConfig::with_url(url)))
            .await
            .unwrap_err();
        let text = format!("{error} {error:?}");
        assert!(
            !text.contains("hunter2") && !text.contains("ter2"),
            "{text}"
        );
    }
    let nowhere = StoreConfig::with_url(urls[0]);
    let error = Store::connect(&impatient(&nowhere)).await.unwrap_err();
    assert!(matches!(error, OpenError::Transient(_)), "{error:?}");
    let lazy = Store::lazy(&impatient(&nowhere)).unwrap();
    let error = lazy.ping().await.unwrap_err();
    assert!(matches!(error, StoreError::Transient(_)), "{error:?}");
}

/// A Postgres of the test's own, with a sale in it, as a writer without patience sees it.
struct OwnServer {
    server: Postgres,
    database: Option<Database>,
    store: Store,
    first: SaleWrite,
}

impl OwnServer {
    async fn start() -> Self {
        let (server, database) = blocking(|| {
            let server = Postgres::start(&PostgresOptions {
                durable: true,
                ..Default::default()
            })?;
            let database = server.database()?;
            Ok((server, database))
        })
        .await;
        let config = StoreConfig::with_url(database.url());
        Store::connect(&config)
            .await
            .unwrap()
            .migrate()
            .await
            .unwrap();
        let store = Store::connect(&impatient(&config)).await.unwrap();
        let first = opening("drop", 1000, orders(0, 1, 2));
        store.write(std::slice::from_ref(&first)).await.unwrap();
        Self {
            server,
            // It goes with its server.
            database: Some(database.keep()),
            store,
            first,
        }
    }

    /// The write of the next orders fails for now, and in time; how it fails depends on the fault.
    async fn fails_in_time(&self, next: &SaleWrite) -> TransientKind {
        let write = self.store.write(std::slice::from_ref(next));
        let result = tokio::time::timeout(Duration::from_secs(30), write).await;
        transient_kind(result.expect("a call ends in its time"))
    }

    /// Writes `next` as soon as that goes again, which must be soon.
    async fn recovers(&self, next: &SaleWrite) {
        let recovered = async {
            loop {
                match self.store.write(std::slice::from_ref(next)).await {
                    Ok(()) => return,
                    // An earlier try's commit may have gone through.
                    Err(WriteError::Conflict { .. }) => return,
                    Err(WriteError::Transient(_)) => {
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                    Err(refused) => panic!("{refused}"),
                }
            }
        };
        tokio::time::timeout(Duration::from_secs(60), recovered)
            .await
            .expect("writing goes on after the fault");
        let row = self.store.sale(&next.sale).await.unwrap().expect("a row");
        assert_eq!(row.position, next.to);
        let through = next.to.seq.0;
        assert_eq!(
            all_orders(&self.store, &next.sale).await,
            orders(0, 1, through)
        );
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> T {
    tokio::task::spawn_blocking(work)
        .await
        .expect("no panic")
        .expect("the test's server")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_postgres_is_transient_until_it_is_back_with_all_that_was_committed() {
    let mut own = OwnServer::start().await;
    let next = following(&own.first, orders(0, 3, 9));
    own.server.kill9().unwrap();
    for _ in 0..6 {
        own.fails_in_time(&next).await;
    }
    own.server.restart().unwrap();
    own.recovers(&next).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_postgres_is_transient_until_it_is_back() {
    let mut own = OwnServer::start().await;
    let next = following(&own.first, orders(0, 3, 9));
    own.server.stop().unwrap();
    own.fails_in_time(&next).await;
    own.server.restart().unwrap();
    own.recovers(&next).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_postgres_that_hangs_is_transient_and_keeps_no_connection_for_ever() {
    let mut own = OwnServer::start().await;
    let next = following(&own.first, orders(0, 3, 9));
    own.server.pause().unwrap();
    for _ in 0..6 {
        // More often than the pool has connections.
        own.fails_in_time(&next).await;
    }
    own.server.resume().unwrap();
    own.recovers(&next).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_write_whose_answers_are_lost_at_any_point_is_written_once() {
    let own = OwnServer::start().await;
    let port = own.server.port();
    let proxy = blocking(move || Proxy::start(port)).await;
    let database = own.database.as_ref().expect("a database");
    let config = impatient(&StoreConfig::with_url(database.url_at(proxy.port())));
    let store = Store::connect(&config).await.unwrap();
    let mut last = own.first.clone();
    for round in 0..10 {
        let seq = last.to.seq.0;
        let next = following(&last, orders(0, seq + 1, seq + 2));
        // A write is some five questions and answers: the loss comes before, between or after.
        proxy.delay(Duration::from_millis(5)).unwrap();
        let write = store.write(std::slice::from_ref(&next));
        let loss = async {
            tokio::time::sleep(Duration::from_millis(8 * round)).await;
            proxy.swallow_replies().unwrap();
        };
        let (result, ()) = tokio::join!(write, loss);
        if result.is_err() {
            transient_kind(result);
        }
        proxy.cut().unwrap();
        proxy.heal().unwrap();
        own.recovers(&next).await;
        last = next;
    }
    assert!(proxy.bytes_to_server() > 0, "the writes went by the proxy");
}
