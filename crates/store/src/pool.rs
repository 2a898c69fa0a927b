//! The connections to the database.

use crate::config::{Backend, StoreConfig};
use crate::error::{Class, OpenError, StoreError, Transient, TransientKind, classify};
use sea_orm::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sea_orm::sqlx::sqlite::{
    SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous,
};
use sea_orm::sqlx::{Connection, Error as SqlxError};
use sea_orm::{DatabaseConnection, DbErr, SqlxPostgresConnector, SqlxSqliteConnector};
use secrecy::ExposeSecret;
use std::time::Duration;

/// The database. Cheap to clone: clones share the connections.
#[derive(Clone, Debug)]
pub struct Store {
    pub(crate) db: DatabaseConnection,
    pub(crate) call_timeout: Duration,
}

impl Store {
    /// Opens the database. One connection is made, so that a wrong address or password shows
    /// here; a SQLite file is created when it is not there, its folder is not.
    ///
    /// # Errors
    /// [`OpenError::Config`] when no repetition will help, else [`OpenError::Transient`].
    pub async fn connect(config: &StoreConfig) -> Result<Self, OpenError> {
        if let Some((name, expected)) = config.problems().into_iter().next() {
            return Err(OpenError::Config { name, expected });
        }
        let store = Self::lazy(config)?;
        store.ping().await.map_err(|error| match error {
            StoreError::Transient(transient) => transient,
            other => Transient {
                kind: TransientKind::Other,
                detail: other.to_string(),
            },
        })?;
        Ok(store)
    }

    /// Like [`Store::connect`], without making a connection: calls fail until there is one.
    ///
    /// # Errors
    /// [`OpenError::Config`].
    pub fn lazy(config: &StoreConfig) -> Result<Self, OpenError> {
        let url_problem = |expected: &str| OpenError::Config {
            name: "url",
            expected: expected.to_owned(),
        };
        let backend = config.backend().map_err(url_problem)?;
        // sea-orm's own connectors are not used: they write the url, password and all, into a
        // trace span. The driver's parse error is not shown, for the same reason.
        let db = match backend {
            Backend::Postgres => postgres(config),
            Backend::Sqlite => sqlite(config),
        };
        Ok(Self {
            db: db.map_err(|_| url_problem("is not a url that the database's driver can read"))?,
            call_timeout: config.call_timeout,
        })
    }

    /// Brings the schema up to date. Any number of processes may do so at once.
    ///
    /// # Errors
    /// [`StoreError::Transient`] when the database cannot be reached, else
    /// [`StoreError::Migrate`].
    pub async fn migrate(&self) -> Result<Vec<String>, StoreError> {
        use dropgate_migrations::MigrateError;
        dropgate_migrations::migrate(&self.db)
            .await
            .map_err(|error| match error {
                MigrateError::Database(cause) => match classify(&cause) {
                    Class::Transient(t) if t.kind != TransientKind::Other => {
                        StoreError::Transient(t)
                    }
                    _ => StoreError::Migrate(MigrateError::Database(cause)),
                },
                other => StoreError::Migrate(other),
            })
    }

    /// Whether the database answers.
    ///
    /// # Errors
    /// [`StoreError::Transient`] when it does not.
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.bounded(self.db.ping()).await
    }

    /// Closes the connections, waiting at most `deadline` for those in use.
    pub async fn close(&self, deadline: Duration) {
        if tokio::time::timeout(deadline, self.db.close_by_ref())
            .await
            .is_err()
        {
            tracing::warn!("database connections were still in use at the deadline");
        }
    }

    /// Runs one call within its time.
    pub(crate) async fn bounded<T>(
        &self,
        call: impl Future<Output = Result<T, DbErr>>,
    ) -> Result<T, StoreError> {
        match tokio::time::timeout(self.call_timeout, call).await {
            Ok(result) => result.map_err(|error| classify(&error).into_store_error()),
            Err(_) => Err(Transient::timeout("the call's time ran out").into()),
        }
    }
}

/// The longest that a connection may take to show that it is still good when it goes back to
/// the pool. The driver asks it without a bound: connections to a server that hangs would never
/// come back, and neither would their places in the pool.
const RELEASE_TIMEOUT: Duration = Duration::from_secs(5);

fn postgres(config: &StoreConfig) -> Result<DatabaseConnection, SqlxError> {
    let statement_ms = config.statement_timeout.as_millis().to_string();
    let options: PgConnectOptions = config.url.expose_secret().parse()?;
    let options = match options.get_application_name() {
        Some(_) => options,
        None => options.application_name("dropgate"),
    };
    let options = options.options([
        ("statement_timeout", &statement_ms),
        // A writer that was paused in the middle of a transaction holds its locks no longer
        // than a statement may take.
        ("idle_in_transaction_session_timeout", &statement_ms),
    ]);
    let pool = PgPoolOptions::new()
        .max_connections(config.pool_max)
        .acquire_timeout(config.connect_timeout)
        .after_release(|connection, _| {
            Box::pin(async move {
                tokio::time::timeout(RELEASE_TIMEOUT, connection.ping())
                    .await
                    .map_err(|_| SqlxError::PoolTimedOut)??;
                Ok(true)
            })
        })
        .connect_lazy_with(options);
    Ok(SqlxPostgresConnector::from_sqlx_postgres_pool(pool))
}

fn sqlite(config: &StoreConfig) -> Result<DatabaseConnection, SqlxError> {
    let options: SqliteConnectOptions = config.url.expose_secret().parse()?;
    let options = options
        .create_if_missing(true)
        .busy_timeout(config.statement_timeout)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full);
    let pool = SqlitePoolOptions::new()
        .max_connections(config.pool_max)
        .acquire_timeout(config.connect_timeout)
        .connect_lazy_with(options);
    Ok(SqlxSqliteConnector::from_sqlx_sqlite_pool(pool))
}
