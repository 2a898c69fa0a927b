//! The databases that the suite runs against, each test in one of its own.

use dropgate_store::{Store, StoreConfig};
use std::sync::atomic::{AtomicU32, Ordering};
use tempfile::TempDir;

pub struct Db {
    pub store: Store,
    pub config: StoreConfig,
    _folder: Option<TempDir>,
}

impl Db {
    async fn open(config: StoreConfig, folder: Option<TempDir>) -> Self {
        let store = Store::connect(&config).await.expect("the database opens");
        store.migrate().await.expect("the schema is applied");
        Self {
            store,
            config,
            _folder: folder,
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
    Db::open(config, Some(folder)).await
}

pub async fn postgres_config() -> StoreConfig {
    use sea_orm::{ConnectionTrait, Database};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let server = "postgres://postgres:secret@127.0.0.1:21543";
    let name = format!(
        "t{}_{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    );
    let admin = Database::connect(format!("{server}/postgres"))
        .await
        .unwrap();
    admin
        .execute_unprepared(&format!("CREATE DATABASE {name}"))
        .await
        .unwrap();
    admin.close().await.unwrap();
    StoreConfig::with_url(format!("{server}/{name}"))
}

pub async fn postgres() -> Db {
    Db::open(postgres_config().await, None).await
}
