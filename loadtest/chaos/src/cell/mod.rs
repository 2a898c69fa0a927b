//! A whole installation on this machine, each part a process that can be hurt alone: two gateways,
//! an order-writer, a watch; master, replica and three sentinels; a broker that each service
//! reaches by a way of its own; a database that the order-writer reaches by a proxy.
//!
//! It outlives sales: it is started once, hurt many times, and healed after each.

mod clock;
mod redis;
mod service;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use dropgate_testkit::stack::{GatewayPorts, Settings, Venue};
use dropgate_testkit::wait::{self, Seen};
use dropgate_testkit::{
    AppendOnly, Database, Kafka, KafkaOptions, Postgres, PostgresOptions, Proxy, RedisTrio,
    TrioOptions, http,
};

pub use clock::Shift;
pub use redis::{Hurt, Servers};
pub use service::Service;

use crate::weakness::Weakness;
use service::Program;

/// The broker's proxies: one for each gateway, one for the order-writer, one for the watch.
const WAYS: usize = 4;

/// Knobs of the second gateway: it is content with a log that it has not heard of for longer, and
/// waits longer for what it published. Different gateways may be configured differently, and what
/// is rare with one that is nervous is common with one that is patient.
const PATIENT: &str = "[engine]\nfresh_for = \"6s\"\nconfirm_max = \"8s\"";

/// The watch may recover as often as faults are injected.
const WATCH: &str = "recoveries_max = 1000";

/// The running installation. It ends with this value: the services before what they need.
pub struct Cell {
    /// The gateways.
    pub gateways: Vec<Mutex<Service>>,
    /// The order-writer.
    pub writer: Mutex<Service>,
    /// The watch.
    pub watch: Mutex<Service>,
    /// Between the order-writer and the database.
    pub database_way: Proxy,
    /// Where the orders are.
    pub database: Database,
    /// The database's server.
    pub postgres: Mutex<Postgres>,
    /// The broker.
    pub kafka: Mutex<Kafka>,
    /// Master, replica, sentinels.
    pub redis: RwLock<Servers>,
    settings: Settings,
    ports: Vec<GatewayPorts>,
    folder: PathBuf,
}

/// Locks what another thread may have left when it failed: it is healed before it is used again.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cell {
    /// Starts everything, with its files in this folder, and waits until all is ready. Of services
    /// that were built to be weakened, this mechanism is switched off.
    ///
    /// # Errors
    /// When something is not installed or does not come up.
    pub fn start(folder: &Path, weakness: Option<Weakness>) -> Result<Self> {
        std::fs::create_dir_all(folder)?;
        let (kafka, postgres, trio) = servers()?;
        let database = postgres.database()?.keep();
        let database_way = Proxy::start(postgres.port())?;
        let redis = Servers::new(trio);
        let of_log = |way| -> Result<String> { Ok(log_lines(&kafka.proxied_brokers(way)?)) };
        let direct = log_lines(&kafka.brokers());
        let settings = Settings::of(folder, redis.first(), direct, database.url())?;
        let (gateway, operator) = redis.config_lines();
        let settings = settings.with_redis(gateway, operator);
        let mut services = Services::default();
        for (nth, knobs) in ["", PATIENT].into_iter().enumerate() {
            let of_this = settings.with_log(of_log(nth)?).with_more(knobs);
            services.gateway(&of_this, &format!("gateway-{}", nth + 1), weakness)?;
        }
        let behind_proxy = database.url_at(database_way.port());
        let of_writer = settings.with_log(of_log(2)?).with_database(behind_proxy);
        let writer = Service::start(&of_writer, &Program::OrderWriter, weakness)?;
        let of_watch = settings.with_log(of_log(3)?);
        let watch = Service::start(&of_watch, &Program::Watch(WATCH), weakness)?;
        let first = services.ports.first().copied().context("a gateway")?;
        settings.dropgate(first, writer.ops_port())?;
        settings.reconciler("reconciler")?;
        let cell = Self {
            gateways: services.gateways,
            writer: Mutex::new(writer),
            watch: Mutex::new(watch),
            database_way,
            database,
            postgres: Mutex::new(postgres),
            kafka: Mutex::new(kafka),
            redis: RwLock::new(redis),
            settings,
            ports: services.ports,
            folder: folder.to_owned(),
        };
        cell.wait_ready(wait::START)?;
        Ok(cell)
    }

    /// The services, by the names that timelines give them.
    pub fn services(&self) -> impl Iterator<Item = &Mutex<Service>> {
        self.gateways.iter().chain([&self.writer, &self.watch])
    }

    /// Where its files and logs are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The ports of a gateway, counted from 0.
    #[must_use]
    pub fn ports(&self, gateway: usize) -> Option<GatewayPorts> {
        self.ports.get(gateway).copied()
    }

    /// Undoes every fault that may be left.
    ///
    /// # Errors
    /// When a process cannot be started, or does not answer.
    pub fn heal(&self) -> Result<()> {
        {
            let mut postgres = lock(&self.postgres);
            postgres.resume().or_else(|_| postgres.restart())?;
            let mut kafka = lock(&self.kafka);
            kafka.resume().or_else(|_| kafka.restart())?;
            for way in 0..WAYS {
                kafka.proxy(way)?.heal()?;
            }
        }
        self.database_way.heal()?;
        self.redis_mut().heal()?;
        for service in self.services() {
            lock(service).heal()?;
        }
        Ok(())
    }

    /// Read access to Redis: questions, and faults that need no process.
    pub fn redis(&self) -> std::sync::RwLockReadGuard<'_, Servers> {
        self.redis.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Write access to Redis: faults of its processes. Never held over a wait.
    pub fn redis_mut(&self) -> std::sync::RwLockWriteGuard<'_, Servers> {
        self.redis.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until Redis is one master with a replica that all sentinels agree on, and every service
    /// is ready.
    ///
    /// # Errors
    /// When that does not happen within the bound.
    pub fn wait_ready(&self, bound: Duration) -> Result<()> {
        self.redis().wait_healthy()?;
        for service in self.services() {
            let port = lock(service).ops_port();
            wait::until("every service to be ready", bound, || {
                let mut service = lock(service);
                if !service.alive() {
                    bail!(
                        "{} ended by itself: {}",
                        service.name(),
                        service.last_words()
                    );
                }
                Ok(match http::get(port, "/readyz") {
                    Ok(answer) if answer.status == 200 => Seen::Done(()),
                    other => Seen::NotYet(format!("{}: {other:?}", service.name())),
                })
            })?;
        }
        Ok(())
    }
}

impl Venue for Cell {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn urls(&self) -> Vec<String> {
        let url = |ports: &GatewayPorts| format!("http://127.0.0.1:{}", ports.public);
        self.ports.iter().map(url).collect()
    }

    fn readiness_urls(&self) -> Vec<String> {
        let url = |ports: &GatewayPorts| format!("http://127.0.0.1:{}/readyz", ports.admin);
        self.ports.iter().map(url).collect()
    }

    /// More than ever wait at once: whoever waits for a gateway that stands still, or cannot see
    /// the log, must not keep others from asking.
    fn connections(&self) -> Option<u32> {
        Some(1500)
    }
}

#[derive(Default)]
struct Services {
    gateways: Vec<Mutex<Service>>,
    ports: Vec<GatewayPorts>,
}

impl Services {
    fn gateway(
        &mut self,
        settings: &Settings,
        name: &str,
        weakness: Option<Weakness>,
    ) -> Result<()> {
        let gateway = Service::start(settings, &Program::Gateway(name), weakness)?;
        self.ports.push(gateway.gateway_ports()?);
        self.gateways.push(Mutex::new(gateway));
        Ok(())
    }
}

fn log_lines(brokers: &str) -> String {
    format!("{}\npartitions = 2", Settings::kafka(brokers))
}

/// Starts the servers next to each other.
fn servers() -> Result<(Kafka, Postgres, RedisTrio)> {
    std::thread::scope(|scope| {
        let kafka = scope.spawn(|| {
            Kafka::start(&KafkaOptions {
                proxies: WAYS,
                // A broker that was killed is let in again when its session has run out.
                extra: vec![
                    "broker.session.timeout.ms=1500".to_owned(),
                    "broker.heartbeat.interval.ms=300".to_owned(),
                ],
            })
        });
        let postgres = scope.spawn(|| {
            Postgres::start(&PostgresOptions {
                durable: true,
                ..PostgresOptions::default()
            })
        });
        let trio = RedisTrio::start(&TrioOptions {
            append_only: AppendOnly::Everysec,
            proxied: true,
            ..TrioOptions::default()
        })?;
        let kafka = kafka
            .join()
            .ok()
            .context("the thread that starts Kafka")??;
        let postgres = postgres
            .join()
            .ok()
            .context("the thread that starts Postgres")??;
        Ok((kafka, postgres, trio))
    })
}
