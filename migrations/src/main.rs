//! `dropgate-migrate`: brings a database's schema up to date, or says what is pending.

use anyhow::Context;
use clap::{Parser, ValueEnum};
use dropgate_migrations::{migrate, pending};
use sea_orm_migration::sea_orm::sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sea_orm_migration::sea_orm::sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sea_orm_migration::sea_orm::{DatabaseConnection, SqlxPostgresConnector, SqlxSqliteConnector};
use secrecy::{ExposeSecret, SecretString};
use std::process::ExitCode;
use std::time::Duration;

/// Brings the database's schema up to date. Safe to run from many processes at once.
#[derive(Parser)]
#[command(name = "dropgate-migrate", version)]
struct Args {
    /// What to do
    #[arg(value_enum, default_value_t = Action::Up)]
    action: Action,
    /// The database: postgres://user:password@host/name or sqlite:path. It holds a password,
    /// so give it by the environment
    #[arg(long, env = "DROPGATE_STORE__URL", hide_env_values = true)]
    url: SecretString,
    /// How long to wait for a connection, in seconds
    #[arg(long, default_value_t = 10)]
    connect_timeout_seconds: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Action {
    /// Apply what is pending
    Up,
    /// List what is pending and change nothing; exits with 1 when something is
    Status,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<ExitCode> {
    let args = Args::parse();
    let wait = Duration::from_secs(args.connect_timeout_seconds);
    let db = open(&args.url, wait)
        .await
        .context("the database cannot be opened")?;
    let names = match args.action {
        Action::Up => migrate(&db).await?,
        Action::Status => pending(&db).await?,
    };
    let done = matches!(args.action, Action::Up);
    report(done, &names);
    db.close().await?;
    let behind = !done && !names.is_empty();
    Ok(ExitCode::from(u8::from(behind)))
}

#[expect(clippy::print_stdout, reason = "the command's output")]
fn report(done: bool, names: &[String]) {
    if names.is_empty() {
        println!("nothing is pending");
    }
    for name in names {
        println!("{} {name}", if done { "applied" } else { "pending" });
    }
}

/// Built by hand: sea-orm's own connector writes the whole url into a trace span.
async fn open(url: &SecretString, wait: Duration) -> anyhow::Result<DatabaseConnection> {
    let url = url.expose_secret();
    if url.starts_with("sqlite:") {
        let options: SqliteConnectOptions = url.parse().context("the url is not a sqlite url")?;
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .acquire_timeout(wait);
        let pool = pool
            .connect_with(options.create_if_missing(true).busy_timeout(wait))
            .await?;
        return Ok(SqlxSqliteConnector::from_sqlx_sqlite_pool(pool));
    }
    anyhow::ensure!(
        url.starts_with("postgres://") || url.starts_with("postgresql://"),
        "the url must begin with postgres:// or sqlite:"
    );
    let options: PgConnectOptions = url.parse().context("the url is not a postgres url")?;
    let pool = PgPoolOptions::new()
        .max_connections(1)
        .acquire_timeout(wait);
    Ok(SqlxPostgresConnector::from_sqlx_postgres_pool(
        pool.connect_with(options).await?,
    ))
}
