use anyhow::Result;
use dropgate_testkit::{Postgres, PostgresOptions, Proxy};

#[test]
fn every_test_gets_a_database_of_its_own_in_the_shared_server() -> Result<()> {
    let a = Postgres::shared_database()?;
    let b = Postgres::shared_database()?;
    assert_eq!(a.port(), b.port());
    assert!(a.port() < 22_000);
    a.sql("CREATE TABLE t (n int); INSERT INTO t VALUES (1), (2)")?;
    assert_eq!(a.sql("SELECT n FROM t ORDER BY n")?, "1\n2");
    assert!(b.sql("SELECT n FROM t").is_err());
    let name = a.name().to_owned();
    drop(a);
    let left = b.sql(&format!(
        "SELECT 1 FROM pg_database WHERE datname = '{name}'"
    ))?;
    assert_eq!(left, "", "a dropped database is still there");
    Ok(())
}

#[test]
fn a_killed_postgres_comes_back_with_what_was_committed() -> Result<()> {
    let mut postgres = Postgres::start(&PostgresOptions {
        durable: true,
        ..PostgresOptions::default()
    })?;
    let database = postgres.database()?;
    database.sql("CREATE TABLE t (n int); INSERT INTO t VALUES (1)")?;
    let sessions = tempfile::NamedTempFile::new()?;
    let mut session = database.sql_in_background("SELECT pg_sleep(1000)", sessions.path())?;
    let (port, pid) = (postgres.port(), postgres.pid());
    postgres.kill9()?;
    assert!(
        database.sql("SELECT 1").is_err(),
        "a killed Postgres answered"
    );
    assert!(!session.wait(std::time::Duration::from_secs(60))?.success());
    postgres.restart()?;
    assert_eq!(postgres.port(), port);
    assert_ne!(postgres.pid(), pid);
    assert_eq!(database.sql("SELECT n FROM t")?, "1");
    Ok(())
}

#[test]
fn a_paused_postgres_answers_nothing_until_it_goes_on() -> Result<()> {
    let mut postgres = Postgres::start(&PostgresOptions::default())?;
    let database = postgres.database()?;
    database.sql("CREATE TABLE t (n int)")?;
    let log = tempfile::NamedTempFile::new()?;
    postgres.pause()?;
    let mut insert = database.sql_in_background("INSERT INTO t VALUES (7)", log.path())?;
    // It cannot have ended: nobody serves it.
    assert!(insert.wait(std::time::Duration::from_millis(300)).is_err());
    postgres.resume()?;
    assert!(insert.wait(std::time::Duration::from_secs(60))?.success());
    assert_eq!(database.sql("SELECT n FROM t")?, "7");
    Ok(())
}

#[test]
fn a_cut_stands_between_a_client_and_its_database() -> Result<()> {
    let database = Postgres::shared_database()?;
    let proxy = Proxy::start(database.port())?;
    assert!(
        database
            .url_at(proxy.port())
            .contains(&proxy.port().to_string())
    );
    proxy.cut()?;
    assert!(std::net::TcpStream::connect(("127.0.0.1", proxy.port())).is_err());
    assert_eq!(database.sql("SELECT 1")?, "1");
    Ok(())
}
