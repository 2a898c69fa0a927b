//! What happens while a database is away, held, or wrong.

use crate::db;
use crate::fixture::{all_orders, following, opening, orders};
use dropgate_store::{OpenError, Store, StoreConfig, StoreError, TransientKind, WriteError};
use sea_orm::{
    ConnectionTrait, Database, SqliteTransactionMode, TransactionOptions, TransactionTrait,
};
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

    let other = Database::connect(db.config.url.expose_secret())
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

    let other = Database::connect(db.config.url.expose_secret())
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
    for config in [config, db::postgres_config().await] {
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
