//! Rolls a new release out in the middle of a sale, under load.
//!
//! The sale is opened by the binaries of an earlier commit, with scripts of theirs. While users
//! click, each gateway and the order-writer is told to end and its successor, of this build, takes
//! its place. The live sale must keep its scripts, no claim must be lost, and nobody must hear an
//! error but 503 from a gateway that is going away. Then the sale is moved to its next generation,
//! which must have this build's scripts, and sells on.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use dropgate_chaos::records;
use dropgate_domain::{Body, Offset, Record, ScriptHash};
use dropgate_testkit::ports::Port;
use dropgate_testkit::stack::verdict::{dump_log, reconcile};
use dropgate_testkit::stack::{
    Admin, Backing, Crowd, GatewayPorts, Heard, Oracle, Settings, Shape, Venue,
};
use dropgate_testkit::{Process, ProcessOptions, Ready, tools};

const SALE: &str = "rolled";
/// Units, half of which each crowd gets.
const STOCK: u64 = 2_000;
/// Liveness bound of a service's orderly end.
const ENDS: Duration = Duration::from_secs(120);

/// Rolls this build out over the binaries of an earlier commit, in the middle of a sale.
#[derive(Parser)]
#[command(name = "rollout", version)]
struct Args {
    /// The folder of the earlier binaries
    #[arg(long, value_name = "FOLDER")]
    previous: PathBuf,
    /// Where reports and logs go
    #[arg(long, default_value = "target/rollout", value_name = "FOLDER")]
    out: PathBuf,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    std::fs::create_dir_all(&args.out)?;
    let out = std::path::absolute(&args.out)?;
    let previous = std::path::absolute(&args.previous)?;
    let mut rollout = Rollout::start(&previous, &out)?;
    rollout.roll()?;
    rollout.next_generation()?;
    rollout.judge()?;
    say("the rollout lost nothing, and the next generation has the new scripts");
    Ok(ExitCode::SUCCESS)
}

struct Rollout {
    gateways: Vec<(GatewayPorts, Process)>,
    writer: Process,
    writer_ops: u16,
    settings: Settings,
    backing: Backing,
    told: Vec<PathBuf>,
    _ports: Vec<Port>,
}

impl Venue for Rollout {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn urls(&self) -> Vec<String> {
        let url = |ports: &GatewayPorts| format!("http://127.0.0.1:{}", ports.public);
        self.gateways.iter().map(|(ports, _)| url(ports)).collect()
    }

    fn readiness_urls(&self) -> Vec<String> {
        let url = |ports: &GatewayPorts| format!("http://127.0.0.1:{}/readyz", ports.admin);
        self.gateways.iter().map(|(ports, _)| url(ports)).collect()
    }
}

impl Rollout {
    /// Two gateways and an order-writer of the earlier commit, and a sale opened by them.
    fn start(previous: &Path, out: &Path) -> Result<Self> {
        say("starting Redis, Kafka, Postgres, and the services of the earlier commit");
        let backing = Backing::start(Shape::Full)?;
        let settings = Settings::new(out, &backing)?;
        let (mut gateways, mut ports) = (Vec::new(), Vec::new());
        for nth in 1..=2 {
            let (public, admin) = (Port::reserve()?, Port::reserve()?);
            let numbers = GatewayPorts {
                public: public.number(),
                admin: admin.number(),
            };
            let file = settings.gateway(&format!("gateway-{nth}"), numbers)?;
            let gateway = ProcessOptions::program(&previous.join("dropgate-gateway"));
            gateways.push((numbers, service(gateway, &file, numbers.admin)?));
            ports.extend([public, admin]);
        }
        let ops = Port::reserve()?;
        let file = settings.order_writer("order-writer", ops.number())?;
        let writer = ProcessOptions::program(&previous.join("dropgate-order-writer"));
        let writer = service(writer, &file, ops.number())?;
        let first = gateways.first().context("a gateway")?.0;
        settings.dropgate(first, ops.number())?;
        settings.reconciler("reconciler")?;
        let writer_ops = ops.number();
        ports.push(ops);
        let rollout = Self {
            gateways,
            writer,
            writer_ops,
            settings,
            backing,
            told: Vec::new(),
            _ports: ports,
        };
        let admin = Admin {
            port: first.admin,
            key: &rollout.settings.admin_key,
        };
        admin.open_new(SALE, STOCK)?;
        Ok(rollout)
    }

    /// Replaces one service after the other while a crowd buys the first half.
    fn roll(&mut self) -> Result<()> {
        let crowd = Crowd {
            users: STOCK / 2,
            rate: 30,
            patience: 60,
        };
        let mut clicking = crowd.come_as(self, SALE, "during-")?;
        for nth in 0..self.gateways.len() {
            say(&format!("replacing gateway {}", nth + 1));
            let (ports, process) = self.gateways.get_mut(nth).context("a gateway")?;
            let code = process.terminate(ENDS)?;
            ensure!(code == Some(0), "gateway {} ended with {code:?}", nth + 1);
            let file = self
                .settings
                .folder()
                .join(format!("gateway-{}.toml", nth + 1));
            let options = ProcessOptions::of_ours("dropgate-gateway")?;
            *process = service(options, &file, ports.admin)?;
        }
        say("replacing the order-writer");
        let code = self.writer.terminate(ENDS)?;
        ensure!(code == Some(0), "the order-writer ended with {code:?}");
        let file = self.settings.folder().join("order-writer.toml");
        let options = ProcessOptions::of_ours("dropgate-order-writer")?;
        self.writer = service(options, &file, self.writer_ops)?;
        ensure!(
            clicking.is_going_on(),
            "everybody was done before the last service was replaced"
        );
        let heard = clicking.done()?;
        self.heard(heard, "during the rollout")?;
        let starts = self.starts()?;
        ensure!(starts.len() == 1, "{} generations, not one", starts.len());
        Ok(())
    }

    /// Moves the sale to its next generation, and sells the other half.
    fn next_generation(&mut self) -> Result<()> {
        let config = self.settings.folder().join("dropgate.toml");
        let mut recover = ProcessOptions::of_ours("dropgate")?
            .args(["--config", &config.to_string_lossy()])
            .args(["recover", "--sale", SALE, "--force"])
            .start()?;
        let code = recover.wait(ENDS)?;
        ensure!(code == Some(0), "recover: {}", recover.output()?);
        let starts = self.starts()?;
        let [before, after] = &starts[..] else {
            anyhow::bail!("{} generations, not two", starts.len());
        };
        let changed = after.iter().zip(before).filter(|(a, b)| a != b).count();
        say(&format!(
            "the next generation has its own hashes: {changed} of {} scripts",
            after.len()
        ));
        let crowd = Crowd {
            users: STOCK / 2,
            rate: 300,
            patience: 60,
        };
        let heard = crowd.come_as(self, SALE, "after-")?.done()?;
        self.heard(heard, "after it")?;
        let admin = Admin {
            port: self.gateways.first().context("a gateway")?.0.admin,
            key: &self.settings.admin_key,
        };
        admin.close(SALE)
    }

    fn heard(&mut self, heard: Heard, when: &str) -> Result<()> {
        let report = &heard.report;
        say(&format!(
            "{when}: {} won, answers by status {:?}",
            report.won, report.http
        ));
        ensure!(
            heard.all_final && report.errors == 0 && report.pending == 0,
            "{when}: {report:?}"
        );
        ensure!(report.won == STOCK / 2, "{when}: {report:?}");
        let fine = |status: &u16| matches!(status, 200 | 201 | 202 | 503);
        ensure!(report.http.keys().all(fine), "{when}: {:?}", report.http);
        self.told.push(heard.told);
        Ok(())
    }

    /// The scripts of each generation, by the log.
    fn starts(&self) -> Result<Vec<Vec<ScriptHash>>> {
        let folder = self.settings.folder();
        let dump = folder.join("log.jsonl");
        dump_log(&folder.join("dropgate.toml"), &dump)?;
        let events = records::of_sale(&dump, SALE)?.into_iter();
        let scripts = |(_, record): (Offset, Record)| match record.event.body {
            Body::Started(started) => Some(started.scripts),
            _ => None,
        };
        Ok(events.filter_map(scripts).collect())
    }

    fn judge(&self) -> Result<()> {
        let folder = self.settings.folder();
        let told = folder.join("told.jsonl");
        let mut all = String::new();
        for part in &self.told {
            all.push_str(&std::fs::read_to_string(part)?);
        }
        std::fs::write(&told, all)?;
        let reconciled = reconcile(&folder.join("reconciler.toml"), SALE, &told)?;
        ensure!(reconciled.holds, "the reconciler: {}", reconciled.text);
        let dump = folder.join("log.jsonl");
        dump_log(&folder.join("dropgate.toml"), &dump)?;
        let durable = self.backing.durable.as_ref().context("the full stack")?;
        let judged = Oracle {
            sale: SALE,
            log: &dump,
            told: Some(&told),
            redis: Some(self.backing.redis.url()),
            sql: Some(durable.database.url()),
            complete: true,
        }
        .ask()?;
        ensure!(judged.holds, "the oracle: {}", judged.text);
        Ok(())
    }
}

/// Starts a service with its file; what it prints is added beside that.
fn service(options: ProcessOptions, file: &Path, ops: u16) -> Result<Process> {
    let started = options
        .args(["--config", &file.to_string_lossy()])
        .log(&file.with_extension("log"))
        .ready(Ready::Http(ops, "/readyz".to_owned()))
        .start();
    started.with_context(|| tools::tail_of(&file.with_extension("log")))
}

fn say(text: &str) {
    // Nobody is left to tell when standard output is gone.
    let _ = writeln!(std::io::stdout(), "rollout: {text}");
}
