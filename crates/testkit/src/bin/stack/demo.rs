//! `demo`: a crowd buys a stock, and two independent programs check what came of it.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use dropgate_testkit::ports::Port;
use dropgate_testkit::stack::{Admin, Backing, Services, Settings, Shape, TOKEN_KID, limits};
use dropgate_testkit::tools;
use dropgate_testkit::{ProcessOptions, Ready};
use serde::Deserialize;

use crate::development::root;
use crate::output::say;
use crate::verdict;

const SALE: &str = "demo";
/// How many gateways the full stack has.
const GATEWAYS: usize = 2;
const PROBE_SALE: &str = "probe";
/// The share of what the system sustains that users come at.
const SHARE_OF_PROBED_RATE: f64 = 0.7;
/// The share of what the generator reaches by itself that users come at, at most. The generator
/// refuses to run above two thirds; the rest is for a machine that is busier a moment later.
const SHARE_OF_OWN_RATE: f64 = 0.5;

/// What stands behind the sale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Stack {
    /// One process with an embedded log and SQLite, beside Redis
    Embedded,
    /// Separate processes on Kafka and Postgres
    Full,
}

/// What is sold, and to whom.
#[derive(Args)]
pub struct DemoArgs {
    /// What stands behind the sale
    #[arg(long, value_enum, default_value = "embedded")]
    stack: Stack,
    /// Units for sale
    #[arg(long, default_value_t = 1_000)]
    stock: u64,
    /// Distinct users; one in ten clicks twice
    #[arg(long, default_value_t = 100_000)]
    users: u64,
    /// This many users instead, all at once, each on a new connection
    #[arg(long, conflicts_with = "rate")]
    spike: Option<u64>,
    /// Clicks a second; 70 % of a rate that is probed for two seconds, if not given
    #[arg(long)]
    rate: Option<f64>,
    /// Where reports, logs and configuration go
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Runs the demonstration. The exit code is 0 only when every promise holds.
///
/// # Errors
/// When something could not be run at all.
pub fn run(args: &DemoArgs) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // Ctrl-C goes to every process of the terminal, so the one that works ends, and with it this
    // one, in order: listening for the signal keeps it from ending before its servers.
    runtime.spawn(async { while tokio::signal::ctrl_c().await.is_ok() {} });
    runtime.block_on(async { tokio::task::yield_now().await });
    limits::raise_open_files()?;
    let out = match &args.out {
        Some(out) => std::path::absolute(out)?,
        None => tools::cache_dir()?.with_file_name("demo"),
    };
    clear(&out)?;
    Demo::start(args, &out)?.sell()
}

struct Demo<'a> {
    args: &'a DemoArgs,
    out: &'a Path,
    settings: Settings,
    // Before what they need.
    services: Services,
    backing: Backing,
}

impl<'a> Demo<'a> {
    fn start(args: &'a DemoArgs, out: &'a Path) -> Result<Self> {
        say(match args.stack {
            Stack::Embedded => "starting Redis and `dropgate serve` (embedded log, SQLite)",
            Stack::Full => "starting Redis, Kafka, Postgres, two gateways and an order-writer",
        });
        let backing = Backing::start(match args.stack {
            Stack::Embedded => Shape::Embedded,
            Stack::Full => Shape::Full,
        })?;
        let settings = Settings::new(out, &backing)?;
        let services = match args.stack {
            Stack::Embedded => Services::embedded(&settings, out)?,
            Stack::Full => Services::full(&settings, out, GATEWAYS)?,
        };
        Ok(Self {
            args,
            out,
            settings,
            services,
            backing,
        })
    }

    fn sell(&self) -> Result<ExitCode> {
        let rate = match (self.args.spike, self.args.rate) {
            (Some(_), _) => None,
            (None, Some(rate)) => Some(rate),
            (None, None) => Some(self.probed_rate()?),
        };
        self.admin()?.open_new(SALE, self.args.stock)?;
        let clients_hold = match self.load(rate) {
            // It has sold nothing yet: the machine got busier since the probe. Once more, slower.
            Err(error) if self.args.rate.is_none() && rate.is_some() => {
                say(&format!("{error:#}; once more at half the rate"));
                self.load(rate.map(|rate| rate / 2.0))?
            }
            other => other?,
        };
        self.admin()?.close(SALE)?;
        let reconciler_holds = self.reconcile()?;
        let oracle_holds = self.ask_the_oracle()?;
        let holds = verdict::tell(self.out, self.args.stock, self.users())?;
        let all = clients_hold && reconciler_holds && oracle_holds && holds;
        say(&format!(
            "reports, logs and configuration: {}",
            self.out.display()
        ));
        Ok(if all {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }

    fn users(&self) -> u64 {
        self.args.spike.unwrap_or(self.args.users)
    }

    fn admin(&self) -> Result<Admin<'_>> {
        let gateway = self.services.gateways.first().context("a gateway")?;
        Ok(Admin {
            port: gateway.admin,
            key: &self.settings.admin_key,
        })
    }

    /// The load generator, with what every use of it needs.
    fn generator(&self, sale: &str) -> Result<Command> {
        self.generator_to(&self.services.urls().join(","), sale)
    }

    fn generator_to(&self, urls: &str, sale: &str) -> Result<Command> {
        let mut command = ours("dropgate-loadtest")?;
        command
            .args(["--target", urls, "--sale", sale])
            .arg("--token-secret-file")
            .arg(&self.settings.token_secret_file)
            .args(["--token-kid", TOKEN_KID]);
        Ok(command)
    }

    /// The rate to come at: a share of what the system sustains, and no more than the generator
    /// can vouch for, which has to have room beyond the rate.
    fn probed_rate(&self) -> Result<f64> {
        self.admin()?.open_new(PROBE_SALE, self.args.stock)?;
        let system = self.probe(&mut self.generator(PROBE_SALE)?)?;
        let own = self.rate_of_the_generator()?;
        let rate = (system * SHARE_OF_PROBED_RATE).min(own * SHARE_OF_OWN_RATE);
        let rate = rate.floor().max(1.0);
        say(&format!(
            "the system sustains {system:.0} claims a second as far as the generator can ask \
             ({own:.0} by itself); users come at {rate:.0}"
        ));
        Ok(rate)
    }

    /// What the generator reaches by itself, against a handler that does nothing.
    fn rate_of_the_generator(&self) -> Result<f64> {
        let port = Port::reserve()?;
        let _target = ProcessOptions::of_ours("static-target")?
            .args(["--port".to_owned(), port.number().to_string()])
            .ready(Ready::Line("http".to_owned()))
            .start()?;
        let url = format!("http://127.0.0.1:{}", port.number());
        self.probe(&mut self.generator_to(&url, PROBE_SALE)?)
    }

    fn probe(&self, generator: &mut Command) -> Result<f64> {
        #[derive(Deserialize)]
        struct Found {
            claims_per_second: f64,
        }
        generator.args(["--probe-seconds", "2", "--user-prefix", "probe-"]);
        let output = generator.stderr(Stdio::inherit()).output()?;
        let found = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            bail!("the probe ended with {}: {found}", output.status);
        }
        let found: Found = serde_json::from_str(&found).context("what the probe found")?;
        Ok(found.claims_per_second)
    }

    fn load(&self, rate: Option<f64>) -> Result<bool> {
        let (stock, users) = (self.args.stock, self.users());
        say(&match rate {
            Some(rate) => {
                format!(
                    "{users} users for {stock} units, one in ten clicking twice, {rate:.0} clicks a second"
                )
            }
            None => {
                format!("{users} users for {stock} units, all at once, one in ten clicking twice")
            }
        });
        let mut generator = self.generator(SALE)?;
        generator
            .args(["--users", &users.to_string(), "--repeat-share", "0.1"])
            .arg("--report")
            .arg(self.out.join("load.json"))
            .arg("--transcript")
            .arg(self.out.join("told.jsonl"));
        match rate {
            Some(rate) => generator.args(["--rate", &rate.to_string(), "--headroom-seconds", "2"]),
            None => generator.arg("--spike"),
        };
        for (name, pid) in self.watched() {
            generator.args(["--watch-pid", &format!("{name}={pid}")]);
        }
        let status = generator.status()?;
        match status.code() {
            Some(0) => Ok(true),
            Some(1) => Ok(false),
            _ => bail!("the load generator ended with {status}"),
        }
    }

    fn watched(&self) -> Vec<(String, u32)> {
        let services = self.services.processes.iter();
        let mut watched: Vec<_> = services
            .map(|(name, process)| (name.clone(), process.pid()))
            .collect();
        watched.push(("redis-server".to_owned(), self.backing.redis.pid()));
        if let Some(durable) = &self.backing.durable {
            watched.push(("kafka".to_owned(), durable.kafka.pid()));
        }
        watched
    }

    fn reconcile(&self) -> Result<bool> {
        say("the reconciler compares Redis, log and database");
        // In the full stack every service is a process of its own, and so is this one.
        let mut command = match self.args.stack {
            Stack::Embedded => ours("dropgate")?,
            Stack::Full => ours("dropgate-reconciler")?,
        };
        match self.args.stack {
            Stack::Embedded => command
                .args(["reconcile", "--config"])
                .arg(&self.services.dropgate),
            Stack::Full => command.arg("--config").arg(&self.services.reconciler),
        };
        command
            .args(["--sale", SALE, "--told"])
            .arg(self.out.join("told.jsonl"))
            .arg("--json")
            .arg(self.out.join("reconcile.json"));
        holds(&mut command, "the reconciler")
    }

    fn ask_the_oracle(&self) -> Result<bool> {
        say("the oracle, a program of its own, compares what clients were told with all three");
        let log = self.out.join("log.jsonl");
        let mut dump = ours("dropgate")?;
        dump.args(["log", "dump", "--config"])
            .arg(&self.services.dropgate)
            .arg("--out")
            .arg(&log);
        let status = dump.status()?;
        if !status.success() {
            bail!("the dump of the log ended with {status}");
        }
        let mut command = Command::new(tools::find("python3", &[])?);
        command
            .arg(root().join("loadtest/oracle/oracle.py"))
            .args([
                "--sale",
                SALE,
                "--complete",
                "--redis",
                &self.backing.redis.url(),
            ])
            .args(["--sql", self.settings.database()])
            .arg("--log")
            .arg(&log)
            .arg("--told")
            .arg(self.out.join("told.jsonl"))
            .arg("--json")
            .arg(self.out.join("oracle.json"));
        holds(&mut command, "the oracle")
    }
}

/// One of our own programs, from the folder that this one lies in.
fn ours(binary: &str) -> Result<Command> {
    let mut command = Command::new(tools::profile_dir()?.join(binary));
    command.stdin(Stdio::null());
    Ok(command)
}

/// Runs a program that checks promises: 0 is yes, 1 is no, the rest is that it could not.
fn holds(command: &mut Command, name: &str) -> Result<bool> {
    let status = command.stdin(Stdio::null()).status()?;
    match status.code() {
        Some(0) => Ok(true),
        Some(1) => Ok(false),
        _ => bail!("{name} ended with {status}"),
    }
}

/// Removes what an earlier run has left in the folder: a report of then must not be taken for one
/// of now. Only files of the kinds that are written here.
fn clear(out: &Path) -> Result<()> {
    std::fs::create_dir_all(out)?;
    for entry in std::fs::read_dir(out)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let ours = [
            ".json", ".jsonl", ".toml", ".log", ".db", ".db-wal", ".db-shm", ".lock",
        ];
        if path.is_file() && ours.iter().any(|end| name.ends_with(end)) {
            std::fs::remove_file(&path)?;
        }
    }
    Ok(())
}
