//! The processes of a full stack, and the servers behind them.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dropgate_testkit::ports::Port;
use dropgate_testkit::stack::{GatewayPorts, Settings, Venue};
use dropgate_testkit::wait::{self, Seen};
use dropgate_testkit::{
    Database, Kafka, KafkaOptions, Postgres, PostgresOptions, Process, ProcessOptions, Ready,
    Redis, RedisOptions, http, tools,
};
use tempfile::TempDir;

use crate::client::Client;

/// Which servers are the stack's own, because they will be stopped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Own {
    pub kafka: bool,
    pub postgres: bool,
}

/// A running stack. Everything ends with this value, the processes before what they need.
pub struct Stack {
    pub gateways: Vec<Gateway>,
    pub writer: Writer,
    pub database: Database,
    pub postgres: Option<Postgres>,
    pub kafka: Option<Kafka>,
    pub redis: Redis,
    pub settings: Settings,
    /// Begins the names of the topics.
    pub run: String,
    _folder: TempDir,
}

#[derive(Debug)]
pub struct Gateway {
    pub process: Process,
    pub ports: Ports,
}

#[derive(Debug)]
pub struct Writer {
    pub process: Process,
    pub ops: Port,
}

/// The ports of a gateway, kept while it is down.
#[derive(Debug)]
pub struct Ports {
    pub public: Port,
    pub admin: Port,
}

/// The servers, before anybody uses them.
#[derive(Debug)]
pub struct Servers {
    pub redis: Redis,
    pub kafka: Option<Kafka>,
    brokers: String,
    pub postgres: Option<Postgres>,
    database: Database,
}

impl Servers {
    pub fn start(own: Own) -> Result<Self> {
        std::thread::scope(|scope| {
            let kafka = scope.spawn(move || match own.kafka {
                true => Kafka::start(&KafkaOptions::default()).map(Some),
                false => Ok(None),
            });
            let redis = Redis::start(&RedisOptions::default())?;
            let postgres = match own.postgres {
                true => Some(Postgres::start(&PostgresOptions::default())?),
                false => None,
            };
            let database = match &postgres {
                Some(postgres) => postgres.database()?.keep(),
                None => Postgres::shared_database()?,
            };
            let kafka = kafka
                .join()
                .ok()
                .context("the thread that starts Kafka")??;
            let brokers = match &kafka {
                Some(kafka) => kafka.brokers(),
                None => Kafka::shared_brokers()?,
            };
            Ok(Self {
                redis,
                kafka,
                brokers,
                postgres,
                database,
            })
        })
    }
}

impl Stack {
    /// Two gateways and an order-writer on new servers, all ready.
    pub fn start(own: Own) -> Result<Self> {
        Self::on(Servers::start(own)?, "/readyz")
    }

    /// The same on these servers. The order-writer is waited for by this path: with its database
    /// down it is alive, and not ready.
    pub fn on(servers: Servers, writer_path: &str) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("dropgate-stack-")
            .tempdir()?;
        let run = unique();
        let url = servers.database.url();
        // Topics of its own names: others use the broker.
        let log = format!(
            "{}\ntopic_index = \"{run}-sales\"\ntopic_claims = \"{run}-claims\"\npartitions = 4",
            Settings::kafka(&servers.brokers)
        );
        let settings = Settings::of(folder.path(), &servers.redis, log, url)?;
        let (gateways, writer) = std::thread::scope(|scope| {
            let settings = &settings;
            let spawn = |name| scope.spawn(move || Gateway::start(settings, name, true));
            let gateways = [spawn("gateway-1"), spawn("gateway-2")];
            let writer = Writer::start(settings, writer_path)?;
            let joined = gateways
                .into_iter()
                .map(|gateway| gateway.join().ok().context("a gateway's thread")?);
            Ok::<_, anyhow::Error>((joined.collect::<Result<Vec<_>>>()?, writer))
        })?;
        let first = gateways.first().context("a gateway")?;
        settings.dropgate(first.ports.numbers(), writer.ops.number())?;
        settings.reconciler("reconciler")?;
        Ok(Self {
            gateways,
            writer,
            database: servers.database,
            postgres: servers.postgres,
            kafka: servers.kafka,
            redis: servers.redis,
            settings,
            run,
            _folder: folder,
        })
    }

    /// Runs a test's steps on this stack; when one fails, the error tells what the processes said
    /// last.
    pub fn play(mut self, steps: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        steps(&mut self).map_err(|error| error.context(self.last_words()))
    }

    fn last_words(&self) -> String {
        let gateways = self.gateways.iter().map(|gateway| &gateway.process);
        let tails = gateways.chain([&self.writer.process]).map(|process| {
            let name = process.log().display();
            format!("--- {name}\n{}", tools::tail_of(process.log()))
        });
        tails.collect::<Vec<_>>().join("\n")
    }

    /// A client of the first or second gateway.
    pub fn client(&self, gateway: usize) -> Client {
        Client::new(self.gateways[gateway].ports.public.number(), &self.settings)
    }

    pub fn admin(&self, gateway: usize) -> Client {
        Client::new(self.gateways[gateway].ports.admin.number(), &self.settings)
    }

    /// Creates and opens a sale, and waits until both gateways sell it.
    pub fn open(&self, sale: &str, stock: u64) -> Result<()> {
        let mut admin = self.admin(0);
        let body = format!("{{\"id\":\"{sale}\",\"stock\":{stock}}}");
        let created = admin.admin("POST", "", &body)?;
        ensure!(created.status == 201, "create answers {created:?}");
        let opened = admin.admin("POST", &format!("/{sale}/open"), "{}")?;
        ensure!(opened.status == 200, "open answers {opened:?}");
        for gateway in 0..self.gateways.len() {
            let mut client = self.client(gateway);
            wait::until("the sale to be open everywhere", wait::START, || {
                let state = client.state(sale)?;
                Ok(match state.text("state") {
                    "open" => Seen::Done(()),
                    _ => Seen::NotYet(format!("{state:?}")),
                })
            })?;
        }
        Ok(())
    }

    pub fn close(&self, sale: &str) -> Result<()> {
        let closed = self
            .admin(0)
            .admin("POST", &format!("/{sale}/close"), "{}")?;
        ensure!(closed.status == 200, "close answers {closed:?}");
        Ok(())
    }

    /// Waits until this gateway has applied, and so told or soon tells, so many wins.
    pub fn sold(&self, gateway: usize, sale: &str, at_least: u64) -> Result<u64> {
        let mut admin = self.admin(gateway);
        wait::until(&format!("{at_least} units to be sold"), wait::START, || {
            let shown = admin.admin("GET", &format!("/{sale}"), "")?;
            Ok(match shown.body["sold"].as_u64() {
                Some(sold) if sold >= at_least => Seen::Done(sold),
                _ => Seen::NotYet(format!("{shown:?}")),
            })
        })
    }

    /// Waits until `/readyz` of a gateway answers this status, and gives the answer.
    pub fn readiness(&self, gateway: usize, status: u16) -> Result<String> {
        readiness(self.gateways[gateway].ports.admin.number(), status, "")
    }

    /// The file of one of the other programs.
    pub fn file(&self, name: &str) -> PathBuf {
        self.settings.folder().join(name)
    }
}

impl Venue for Stack {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn urls(&self) -> Vec<String> {
        self.gateways.iter().map(Gateway::url).collect()
    }
}

impl Ports {
    pub fn reserve() -> Result<Self> {
        Ok(Self {
            public: Port::reserve()?,
            admin: Port::reserve()?,
        })
    }

    pub fn numbers(&self) -> GatewayPorts {
        GatewayPorts {
            public: self.public.number(),
            admin: self.admin.number(),
        }
    }
}

impl Gateway {
    /// Only with the operator's credentials it may open sales.
    pub fn start(settings: &Settings, name: &str, operator: bool) -> Result<Self> {
        let ports = Ports::reserve()?;
        let file = match operator {
            true => settings.gateway(name, ports.numbers())?,
            false => settings.restricted_gateway(name, ports.numbers())?,
        };
        let ready = Ready::Http(ports.admin.number(), "/readyz".to_owned());
        let process = service("dropgate-gateway", name, &file, ready)?;
        Ok(Self { process, ports })
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.public.number())
    }
}

impl Writer {
    fn start(settings: &Settings, path: &str) -> Result<Self> {
        let ops = Port::reserve()?;
        let file = settings.order_writer("order-writer", ops.number())?;
        let ready = Ready::Http(ops.number(), path.to_owned());
        let process = service("dropgate-order-writer", "order-writer", &file, ready)?;
        Ok(Self { process, ops })
    }
}

/// Waits until `/readyz` on this port answers this status and says this; gives the whole answer.
pub fn readiness(port: u16, status: u16, says: &str) -> Result<String> {
    let what = format!("/readyz to answer {status} and say {says:?}");
    wait::until(&what, wait::START, || {
        Ok(match http::get(port, "/readyz") {
            Ok(answer) if answer.status == status && answer.body.contains(says) => {
                Seen::Done(answer.body)
            }
            other => Seen::NotYet(format!("{other:?}")),
        })
    })
}

/// Starts one of our services with its file; what it prints goes to a file beside that.
pub fn service(binary: &str, name: &str, file: &Path, ready: Ready) -> Result<Process> {
    ProcessOptions::of_ours(binary)?
        .args(["--config", &file.to_string_lossy()])
        .log(&file.with_file_name(format!("{name}.log")))
        .ready(ready)
        .start()
}

/// How long a pause is that only makes time pass.
pub const TICK: Duration = Duration::from_millis(50);

/// A name that no other stack on a shared server has.
fn unique() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("stack-{}-{number}", std::process::id())
}
