//! The schema.

use crate::db;
use dropgate_store::{Store, StoreConfig};

async fn many_migrators_at_once(config: StoreConfig) {
    let mut migrators = tokio::task::JoinSet::new();
    for _ in 0..6 {
        let config = config.clone();
        migrators.spawn(async move {
            let store = Store::connect(&config).await.expect("the database opens");
            store.migrate().await.expect("every migrator succeeds")
        });
    }
    let applied = migrators.join_all().await.concat();
    assert_eq!(applied, ["m0001_sales_and_orders"], "by one of them, once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_migrators_at_once_apply_it_once_in_sqlite() {
    let (config, _folder) = db::sqlite_config();
    many_migrators_at_once(config).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_migrators_at_once_apply_it_once_in_postgres() {
    let database = db::postgres_database().await;
    many_migrators_at_once(StoreConfig::with_url(database.url())).await;
}

#[tokio::test]
async fn a_schema_that_is_up_to_date_is_left_alone() {
    for db in [db::sqlite().await, db::postgres().await] {
        assert_eq!(db.store.migrate().await.unwrap(), Vec::<String>::new());
    }
}
