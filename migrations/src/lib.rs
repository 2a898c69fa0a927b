//! The database schema, as migrations under a lock.
//!
//! Any number of processes may call [`migrate`] at once: one of them applies what is pending,
//! the others wait for it and find nothing to do. What is pending is applied in one
//! transaction, so a crash leaves the schema as it was.

mod m0001_sales_and_orders;
mod text;

use sea_orm_migration::sea_orm::{
    ConnectionTrait, DatabaseConnection, DatabaseTransaction, DbBackend, DbErr,
    SqliteTransactionMode, Statement, TransactionOptions, TransactionTrait,
};
use sea_orm_migration::{MigrationTrait, MigratorTrait};
use std::time::Duration;

/// How long one process waits for another's migration, and how long one statement of a
/// migration may take.
const MIGRATION_TIMEOUT: Duration = Duration::from_secs(300);

/// The advisory lock of Postgres that every migrating process takes: "dropgate" in ASCII.
const LOCK_KEY: i64 = i64::from_be_bytes(*b"dropgate");

/// Why the schema could not be brought up to date; nothing of it was applied.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// The database is of a kind that has no migrations.
    #[error("the schema exists for postgres and sqlite, not for {0}")]
    Unsupported(&'static str),
    /// It took longer than anybody should wait.
    #[error("the migration did not end within {} s", MIGRATION_TIMEOUT.as_secs())]
    TimedOut,
    /// The database refused, or could not be reached, or holds a newer schema than this release.
    #[error("the migration failed")]
    Database(#[from] DbErr),
}

struct Migrator;

impl MigratorTrait for Migrator {
    fn migrations() -> Vec<Box<dyn MigrationTrait>> {
        vec![Box::new(m0001_sales_and_orders::Migration)]
    }
}

/// Applies every pending migration and returns the names of those that it applied.
///
/// Cancel safe: a dropped call rolls back.
///
/// # Errors
/// [`MigrateError`]; the schema is then as it was.
pub async fn migrate(db: &DatabaseConnection) -> Result<Vec<String>, MigrateError> {
    let work = async {
        let txn = begin_locked(db).await?;
        let pending = names(Migrator::get_pending_migrations(&txn).await?);
        if !pending.is_empty() {
            Migrator::up(&txn, None).await?;
        }
        txn.commit().await?;
        for name in &pending {
            tracing::info!(migration = name, "migration applied");
        }
        Ok(pending)
    };
    tokio::time::timeout(MIGRATION_TIMEOUT, work)
        .await
        .map_err(|_| MigrateError::TimedOut)?
}

/// The names of the migrations that [`migrate`] would apply. Changes nothing.
///
/// # Errors
/// [`MigrateError`].
pub async fn pending(db: &DatabaseConnection) -> Result<Vec<String>, MigrateError> {
    let pending = Migrator::get_pending_migrations_read_only(db);
    let pending = tokio::time::timeout(MIGRATION_TIMEOUT, pending)
        .await
        .map_err(|_| MigrateError::TimedOut)??;
    Ok(names(pending))
}

fn names(migrations: Vec<sea_orm_migration::Migration>) -> Vec<String> {
    migrations.iter().map(|m| m.name().to_owned()).collect()
}

/// A transaction that no other migrating process can hold at the same time.
///
/// DDL is transactional in both back ends. MariaDB's is not: there the lock would have to be
/// `GET_LOCK` on a connection of its own.
async fn begin_locked(db: &DatabaseConnection) -> Result<DatabaseTransaction, MigrateError> {
    match db.get_database_backend() {
        DbBackend::Postgres => {
            let txn = db.begin().await?;
            // The pool's limits are those of a write; a migration may take longer.
            let limit_ms = MIGRATION_TIMEOUT.as_millis();
            for setting in ["statement_timeout", "lock_timeout"] {
                txn.execute_unprepared(&format!("SET LOCAL {setting} = {limit_ms}"))
                    .await?;
            }
            let lock = "SELECT pg_advisory_xact_lock($1)";
            let lock = Statement::from_sql_and_values(DbBackend::Postgres, lock, [LOCK_KEY.into()]);
            txn.execute_raw(lock).await?;
            Ok(txn)
        }
        DbBackend::Sqlite => Ok(db
            .begin_with_options(TransactionOptions {
                sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
                ..TransactionOptions::default()
            })
            .await?),
        other => Err(MigrateError::Unsupported(other.as_str())),
    }
}
