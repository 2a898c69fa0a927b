//! The databases that the suite runs against, each test in one of its own.

use dropgate_store::{Store, StoreConfig};
use dropgate_testkit::{Database, Postgres};
use tempfile::TempDir;

/// What goes with the database.
#[expect(dead_code, reason = "held for its end")]
pub enum Keep {
    Folder(TempDir),
    Database(Database),
}

pub struct Db {
    pub store: Store,
    pub config: StoreConfig,
    _keep: Keep,
}

impl Db {
    pub async fn open(config: StoreConfig, keep: Keep) -> Self {
        let store = Store::connect(&config).await.expect("the database opens");
        store.migrate().await.expect("the schema is applied");
        Self {
            store,
            config,
            _keep: keep,
        }
    }
}

pub fn sqlite_config() -> (StoreConfig, TempDir) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let url = format!("sqlite:{}/store.db", folder.path().display());
    (StoreConfig::with_url(url), folder)
}

pub async fn sqlite() -> Db {
    let (config, folder) = sqlite_config();
    Db::open(config, Keep::Folder(folder)).await
}

/// A fresh database in the Postgres that the ordinary tests share.
pub async fn postgres_database() -> Database {
    let made = tokio::task::spawn_blocking(Postgres::shared_database).await;
    made.expect("no panic").expect("a database in Postgres")
}

pub async fn postgres() -> Db {
    let database = postgres_database().await;
    let config = StoreConfig::with_url(database.url());
    Db::open(config, Keep::Database(database)).await
}
