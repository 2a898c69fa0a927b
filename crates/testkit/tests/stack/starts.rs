//! Services that cannot start: they say why, name what it is, and show no password.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use dropgate_testkit::ports::Port;
use dropgate_testkit::redis::{GATEWAY_PASSWORD, OPERATOR_PASSWORD};
use dropgate_testkit::stack::Settings;
use dropgate_testkit::{ProcessOptions, Ready, Redis, RedisOptions, postgres};

use crate::stack::{Ports, readiness, service};

/// Ten times what opening the log may take.
const BOUND: Duration = Duration::from_secs(100);

/// Settings of servers that are not there.
fn nowhere(folder: &Path) -> Result<(Settings, Vec<Port>)> {
    let redis = Redis::start(&RedisOptions::default())?;
    let (broker, database) = (Port::reserve()?, Port::reserve()?);
    let url = format!(
        "postgres://{}:{}@127.0.0.1:{}/nowhere",
        postgres::USER,
        postgres::PASSWORD,
        database.number()
    );
    let brokers = format!("127.0.0.1:{}", broker.number());
    let settings = Settings::of(folder, &redis, Settings::kafka(&brokers), url)?;
    Ok((settings, vec![broker, database]))
}

fn shows_no_secret(settings: &Settings, output: &str) -> Result<()> {
    let secrets = [
        GATEWAY_PASSWORD,
        OPERATOR_PASSWORD,
        postgres::PASSWORD,
        &settings.admin_key,
        settings.token_secret(),
    ];
    let shown = secrets.into_iter().find(|secret| output.contains(secret));
    ensure!(shown.is_none(), "{shown:?} is in {output}");
    Ok(())
}

#[test]
fn a_gateway_without_its_broker_ends_and_names_it() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (settings, servers) = nowhere(folder.path())?;
    let ports = Ports::reserve()?;
    let file = settings.gateway("gateway", ports.numbers())?;
    let mut gateway = service("dropgate-gateway", "gateway", &file, Ready::AtOnce)?;
    let code = gateway.wait(BOUND)?;
    let output = gateway.output()?;
    let broker = servers[0].number().to_string();
    ensure!(
        code.is_some_and(|code| code != 0) && output.contains(&broker),
        "{code:?}: {output}"
    );
    shows_no_secret(&settings, &output)
}

#[test]
fn an_order_writer_without_its_database_waits_and_says_for_what() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (settings, _servers) = nowhere(folder.path())?;
    let ops = Port::reserve()?;
    let file = settings.order_writer("order-writer", ops.number())?;
    let ready = Ready::Http(ops.number(), "/livez".to_owned());
    let mut writer = service("dropgate-order-writer", "order-writer", &file, ready)?;
    let says = readiness(ops.number(), 503, "the database did not answer")?;
    ensure!(writer.alive(), "it ended: {}", writer.output()?);
    ensure!(writer.terminate(BOUND)? == Some(0), "{}", writer.output()?);
    shows_no_secret(&settings, &says)?;
    shows_no_secret(&settings, &writer.output()?)
}

#[test]
fn a_reconciler_that_cannot_ask_ends_and_says_whom() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (settings, servers) = nowhere(folder.path())?;
    let file = settings.reconciler("reconciler")?;
    let mut reconciler = ProcessOptions::of_ours("dropgate-reconciler")?
        .args(["--sale", "any", "--config", &file.to_string_lossy()])
        .start()?;
    let code = reconciler.wait(BOUND)?;
    let output = reconciler.output()?;
    let named = servers
        .iter()
        .any(|server| output.contains(&server.number().to_string()))
        || output.contains("database")
        || output.contains("redis");
    // 1 would say that a promise is broken.
    ensure!(code == Some(2) && named, "{code:?}: {output}");
    shows_no_secret(&settings, &output)
}

/// Each service refuses keys that it does not know or that cannot be, all at once.
#[test]
fn wrong_settings_are_all_told_at_once_by_every_service() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("wrong.toml");
    let text = "[log]\nbackend = \"paper\"\n[telemetry]\nformat = \"html\"\n\
                [store]\nurl = \"mysql://user:hunter2@nowhere/orders\"\npool_max = 0\n[typo]\nx = 1\n";
    std::fs::write(&file, text)?;
    let wrong = [
        "log.backend",
        "store.pool_max",
        "store.url",
        "telemetry.format",
        "typo",
    ];
    let programs: [(&str, &[&str]); 4] = [
        ("dropgate-gateway", &[]),
        ("dropgate-order-writer", &[]),
        ("dropgate-reconciler", &["--sale", "any"]),
        ("dropgate", &["serve"]),
    ];
    for (binary, args) in programs {
        let mut process = ProcessOptions::of_ours(binary)?
            .args(args.iter().copied())
            .args(["--config", &file.to_string_lossy()])
            .start()?;
        let code = process.wait(BOUND)?;
        let output = process.output()?;
        let missing = wrong.into_iter().find(|path| !output.contains(path));
        ensure!(
            code.is_some_and(|code| code != 0) && missing.is_none() && !output.contains("hunter2"),
            "{binary} ended with {code:?} and did not tell {missing:?}: {output}"
        );
    }
    Ok(())
}
