//! A Redis Cluster of three masters, with two sales on two of them.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use dropgate_testkit::ports::Port;
use dropgate_testkit::redis::{GATEWAY_PASSWORD, OPERATOR_PASSWORD};
use dropgate_testkit::stack::verdict::{dump_log, reconcile};
use dropgate_testkit::stack::{Admin, Clicking, Crowd, Heard, Oracle, Settings, Venue};
use dropgate_testkit::wait::{self, Seen};
use dropgate_testkit::{
    AppendOnly, ClusterOptions, Database, Kafka, Postgres, Process, Ready, RedisCluster,
};
use tempfile::TempDir;

use crate::client::Client;
use crate::from_env;
use crate::stack::{Gateway, service};

/// Units of each sale.
const STOCK: u64 = 500;

struct Installation {
    gateways: Vec<Gateway>,
    _writer: Process,
    _watch: Process,
    settings: Settings,
    database: Database,
    cluster: RedisCluster,
    _ports: Vec<Port>,
    _folder: TempDir,
}

impl Venue for Installation {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn urls(&self) -> Vec<String> {
        self.gateways.iter().map(Gateway::url).collect()
    }
}

/// The lines of `[redis]` for a user.
fn lines(cluster: &RedisCluster, user: &str, password: &str) -> String {
    let nodes = cluster.addresses().join("\", \"");
    format!(
        "topology = \"cluster\"\nnodes = [\"{nodes}\"]\nusername = \"{user}\"\n\
         password = \"{password}\""
    )
}

/// The key that names a sale's current generation: all its keys are on one master.
fn key(sale: &str) -> String {
    format!("dropgate:{{{sale}}}:current")
}

impl Installation {
    fn start() -> Result<Self> {
        static RUNS: AtomicU32 = AtomicU32::new(0);
        let cluster = RedisCluster::start(&ClusterOptions {
            append_only: AppendOnly::Everysec,
            ..ClusterOptions::default()
        })?;
        let database = Postgres::shared_database()?;
        let folder = tempfile::Builder::new()
            .prefix("dropgate-cluster-")
            .tempdir()?;
        let run = RUNS.fetch_add(1, Ordering::Relaxed);
        let run = format!("cluster-{}-{run}", std::process::id());
        let log = format!(
            "{}\ntopic_index = \"{run}-sales\"\ntopic_claims = \"{run}-claims\"\npartitions = 2",
            Settings::kafka(&Kafka::shared_brokers()?)
        );
        let settings = Settings::of(folder.path(), cluster.node(0), log, database.url())?;
        let settings = settings.with_redis(
            lines(&cluster, "gateway", GATEWAY_PASSWORD),
            lines(&cluster, "operator", OPERATOR_PASSWORD),
        );
        let ports = [Port::reserve()?, Port::reserve()?];
        let [writer_ops, watch_ops] = [ports[0].number(), ports[1].number()];
        let ready = |port| Ready::Http(port, "/readyz".to_owned());
        let gateways = ["gateway-1", "gateway-2"].map(|name| Gateway::start(&settings, name, true));
        let gateways = gateways.into_iter().collect::<Result<Vec<_>>>()?;
        let file = settings.order_writer("order-writer", writer_ops)?;
        let binary = "dropgate-order-writer";
        let writer = service(binary, "order-writer", &file, ready(writer_ops))?;
        let file = settings.watch("watch", watch_ops, "")?;
        let watch = dropgate_testkit::ProcessOptions::of_ours("dropgate-reconciler")?
            .args(["watch", "--config", &file.to_string_lossy()])
            .log(&file.with_extension("log"))
            .ready(ready(watch_ops))
            .start()?;
        let first = gateways.first().context("a gateway")?;
        settings.dropgate(first.ports.numbers(), writer_ops)?;
        settings.reconciler("reconciler")?;
        Ok(Self {
            gateways,
            _writer: writer,
            _watch: watch,
            settings,
            database,
            cluster,
            _ports: ports.into(),
            _folder: folder,
        })
    }

    fn admin(&self) -> Result<Admin<'_>> {
        let gateway = self.gateways.first().context("a gateway")?;
        Ok(Admin {
            port: gateway.ports.admin.number(),
            key: &self.settings.admin_key,
        })
    }

    /// Two sales that two masters hold.
    fn two_sales(&self, nth: usize) -> Result<[String; 2]> {
        let names = (0..100).map(|other| format!("sale-{nth}-{other}"));
        let first = format!("sale-{nth}");
        let master = self.cluster.master_of(&key(&first))?;
        for name in names {
            if self.cluster.master_of(&key(&name))? != master {
                return Ok([first, name]);
            }
        }
        anyhow::bail!("all slots are on one master")
    }

    /// What the admin API shows of a sale, once it looks right.
    fn shows<T>(&self, sale: &str, look: impl Fn(&serde_json::Value) -> Option<T>) -> Result<T> {
        let gateway = self.gateways.first().context("a gateway")?;
        let mut admin = Client::new(gateway.ports.admin.number(), &self.settings);
        wait::until(
            &format!("what is waited for of {sale}"),
            wait::START,
            || {
                let shown = admin.admin("GET", &format!("/{sale}"), "")?;
                Ok(match look(&shown.body) {
                    Some(found) => Seen::Done(found),
                    None => Seen::NotYet(format!("{shown:?}")),
                })
            },
        )
    }

    fn books(&self, sale: &str, heard: &Heard) -> Result<()> {
        heard.sold_all(STOCK)?;
        self.admin()?.close(sale)?;
        let folder = self.settings.folder();
        let reconciled = reconcile(&folder.join("reconciler.toml"), sale, &heard.told)?;
        ensure!(reconciled.holds, "the reconciler: {}", reconciled.text);
        let log = folder.join(format!("{sale}.jsonl"));
        dump_log(&folder.join("dropgate.toml"), &log)?;
        let master = self.cluster.master_of(&key(sale))?;
        let judged = Oracle {
            sale,
            log: &log,
            told: Some(&heard.told),
            redis: Some(self.cluster.node(master).url()),
            sql: Some(self.database.url()),
            complete: true,
        }
        .ask()?;
        ensure!(judged.holds, "the oracle: {}", judged.text);
        Ok(())
    }
}

/// What happens to the master of one of the two sales.
#[derive(Clone, Copy, Debug)]
enum Hurt {
    Killed,
    Paused,
    /// Its replica takes over, with its consent.
    Replaced,
    Emptied,
}

const HURTS: [Hurt; 4] = [Hurt::Killed, Hurt::Paused, Hurt::Replaced, Hurt::Emptied];

impl Installation {
    fn hurt(&mut self, sale: &str, hurt: Hurt) -> Result<usize> {
        let key = key(sale);
        let master = self.cluster.master_of(&key)?;
        match hurt {
            Hurt::Killed => {
                self.cluster.node_mut(master).kill9()?;
                self.cluster.wait_for_new_master(&key, master)?;
            }
            Hurt::Paused => {
                self.cluster.node_mut(master).pause()?;
                self.cluster.wait_for_new_master(&key, master)?;
                // What it was sent meanwhile it carries out now.
                self.cluster.node_mut(master).resume()?;
            }
            Hurt::Replaced => {
                self.cluster.failover(&key)?;
            }
            Hurt::Emptied => {
                self.cluster.node(master).cli(&["FLUSHALL"])?;
            }
        }
        Ok(master)
    }
}

#[test]
fn when_a_master_of_a_cluster_is_hurt_its_sales_go_on_and_the_others_hear_nothing() -> Result<()> {
    let seeds = usize::try_from(from_env("SEEDS", 1)?)?;
    let mut stack = Installation::start()?;
    for (nth, hurt) in HURTS.into_iter().cycle().take(seeds).enumerate() {
        let master = two_crowds(&mut stack, nth, hurt)?;
        if matches!(hurt, Hurt::Killed) {
            stack.cluster.node_mut(master).restart()?;
        }
        stack.cluster.wait_healthy()?;
    }
    Ok(())
}

/// Two sales, one of which loses its master in the middle; gives the master that was hurt.
fn two_crowds(stack: &mut Installation, nth: usize, hurt: Hurt) -> Result<usize> {
    let [hit, spared] = stack.two_sales(nth)?;
    for sale in [&hit, &spared] {
        stack.admin()?.open_new(sale, STOCK)?;
    }
    let crowd = Crowd {
        users: STOCK + 100,
        rate: 100,
        patience: 90,
    };
    let clicking = [crowd.come(stack, &hit)?, crowd.come(stack, &spared)?];
    stack.shows(&hit, |body| {
        body["sold"].as_u64().filter(|sold| *sold >= 150)
    })?;
    let master = stack.hurt(&hit, hurt)?;
    let [heard_hit, heard_spared] = clicking.map(Clicking::done);
    let (heard_hit, heard_spared) = (heard_hit?, heard_spared?);
    let generation = |sale: &str| {
        stack.shows(sale, |body| {
            let version = body["version"].as_str()?;
            Some(version.split('.').next()?.to_owned())
        })
    };
    let (of_hit, of_spared) = (generation(&hit)?, generation(&spared)?);
    println!(
        "{hurt:?}: {hit} in generation {of_hit}, answers {:?}; {spared} in generation {of_spared}, \
         answers {:?}",
        heard_hit.report.http, heard_spared.report.http
    );
    ensure!(of_spared == "1", "{spared} is in generation {of_spared}");
    ensure!(of_hit != "1", "{hit} is in generation {of_hit}");
    stack.books(&hit, &heard_hit)?;
    stack.books(&spared, &heard_spared)?;
    Ok(master)
}
