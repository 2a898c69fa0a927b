//! A log to be written into, a database, and writers between them.

use dropgate_domain::{
    AttemptId, Body, CALLS_VERSION, Definition, Digest, Event, Generation, IdempotencyKey,
    Identity, Link, Nonce, PartitionId, RULE_VERSION, SaleCreated, SaleId, ScriptHash, Seq,
    Started, TimeMs, Unit, UserId, Won,
};
use dropgate_events::{digest, encode_event, encode_sale_created};
use dropgate_order_writer::{Metrics, OrderWriter, Status, WriterConfig};
use dropgate_store::{Order, Store, StoreConfig};
use dropgate_stream::{Backend, Lane, Log, LogConfig};
use dropgate_testkit::{Database, Kafka, Postgres};
use prometheus_client::registry::Registry;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

/// How long anything may take before a test says that it hangs.
pub const BOUND: Duration = Duration::from_secs(60);

const PARTITIONS: u32 = 3;

pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Box<dyn std::error::Error>> + Send + 'static,
) -> T {
    let done = tokio::task::spawn_blocking(move || work().map_err(|error| format!("{error:?}")));
    done.await.expect("no panic").expect("the test's servers")
}

/// What a test needs, from real servers.
pub struct World {
    pub log: Log,
    pub log_config: LogConfig,
    pub store: Store,
    pub store_config: StoreConfig,
    pub folder: TempDir,
    pub database: Option<Database>,
    /// Of all writers so far, for failures.
    writers: Mutex<Vec<(Status, Arc<Registry>)>>,
}

impl World {
    /// One machine: the embedded log and SQLite.
    pub async fn small() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/orders.db", folder.path().display());
        Self::with(embedded(&folder), StoreConfig::with_url(url), folder, None).await
    }

    /// Kafka and Postgres.
    pub async fn large() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let brokers = blocking(|| Ok(Kafka::shared_brokers()?)).await;
        let database = blocking(|| Ok(Postgres::shared_database()?)).await;
        let store = StoreConfig::with_url(database.url());
        Self::with(kafka(&brokers), store, folder, Some(database)).await
    }

    /// The broker that is given, and SQLite.
    pub async fn beside(brokers: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/orders.db", folder.path().display());
        Self::with(kafka(brokers), StoreConfig::with_url(url), folder, None).await
    }

    /// The embedded log, and the database that is given.
    pub async fn over(database: Database) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = StoreConfig::with_url(database.url());
        Self::with(embedded(&folder), store, folder, Some(database)).await
    }

    async fn with(
        log_config: LogConfig,
        store_config: StoreConfig,
        folder: TempDir,
        database: Option<Database>,
    ) -> Self {
        let log = Log::open(&log_config).await.unwrap();
        let store = Store::connect(&store_config).await.unwrap();
        store.migrate().await.unwrap();
        Self {
            log,
            log_config,
            store,
            store_config,
            folder,
            database,
            writers: Mutex::default(),
        }
    }

    /// A writer, as a process of its own would open log and database.
    pub async fn writer(&self, config: &WriterConfig) -> Writer {
        let log = Log::open_read_only(&self.log_config).await.unwrap();
        let store_config = StoreConfig {
            connect_timeout: Duration::from_millis(500),
            statement_timeout: Duration::from_secs(1),
            call_timeout: Duration::from_secs(3),
            ..self.store_config.clone()
        };
        let mut registry = Registry::default();
        let metrics = Metrics::register(&mut registry);
        let store = Store::lazy(&store_config).unwrap();
        let running = OrderWriter::start(config, log, store, metrics);
        let registry = Arc::new(registry);
        let seen = (running.status(), Arc::clone(&registry));
        self.writers.lock().unwrap().push(seen);
        Writer { running, registry }
    }

    /// Waits until all that `author` wrote is stored, and checks it row by row.
    pub async fn is_written(&self, author: &Author) {
        let expected = author.position();
        let seen = wait(|| async {
            let row = self.store.sale(&author.sale).await.ok().flatten();
            let at = row
                .as_ref()
                .map(|row| (row.position.generation, row.position.seq));
            if at == Some(expected) {
                return Ok(row);
            }
            let writers = self.writers.lock().unwrap();
            let seen = writers.iter().map(|(status, registry)| {
                let numbers = ["lag_records", "pending_events", "standing_by"]
                    .map(|name| (name, metric(registry, &format!("dropgate_writer_{name}"))));
                format!("{:?} {numbers:?}", status.ready())
            });
            let seen: Vec<_> = seen.collect();
            Err(format!("{at:?} of {expected:?}; the writers: {seen:?}"))
        });
        let row = seen.await.expect("a row");
        assert_eq!(row.sold, author.wins.len() as u64);
        assert_eq!(self.orders(&author.sale).await, author.wins);
    }

    pub async fn orders(&self, sale: &SaleId) -> Vec<Order> {
        let mut pages = self.store.orders(sale, 1000);
        let mut orders = Vec::new();
        while let Some(page) = pages.next().await.unwrap() {
            orders.extend(page);
        }
        orders
    }
}

fn embedded(folder: &TempDir) -> LogConfig {
    let mut config = LogConfig::default();
    config.embedded.path = folder.path().join("log.db");
    config.embedded.partitions = PARTITIONS;
    config.embedded.append_timeout = BOUND;
    config.embedded.probe_timeout = BOUND;
    config
}

fn kafka(brokers: &str) -> LogConfig {
    let mut name = [0; 8];
    getrandom::fill(&mut name).unwrap();
    let name = u64::from_le_bytes(name);
    let mut config = LogConfig {
        backend: Backend::Kafka,
        ..LogConfig::default()
    };
    let kafka = &mut config.kafka;
    kafka.brokers = brokers.to_owned();
    kafka.topic_index = format!("sales-{name:x}");
    kafka.topic_claims = format!("claims-{name:x}");
    kafka.create = true;
    kafka.partitions = PARTITIONS;
    kafka.replication_factor = 1;
    kafka.append_timeout = BOUND;
    kafka.probe_timeout = BOUND;
    kafka.open_timeout = BOUND;
    config
}

/// A writer with its metrics.
pub struct Writer {
    pub running: OrderWriter,
    registry: Arc<Registry>,
}

impl Writer {
    /// The value of a metric, by its name and labels as the text format has them.
    pub fn metric(&self, name: &str) -> Option<i64> {
        metric(&self.registry, name)
    }

    /// Stops it in order; gives the number of events that it still had.
    pub async fn stop(self) -> Option<i64> {
        let Self { running, registry } = self;
        running.stop().await.unwrap();
        metric(&registry, "dropgate_writer_pending_events")
    }

    pub fn reasons(&self) -> Vec<String> {
        self.running.status().ready().err().unwrap_or_default()
    }

    /// Waits until a reason contains `text`.
    pub async fn says(&self, text: &str) {
        wait(|| async {
            let reasons = self.reasons();
            let said = reasons.iter().any(|reason| reason.contains(text));
            if said {
                Ok(())
            } else {
                Err(format!("{reasons:?}"))
            }
        })
        .await;
    }

    pub async fn is_ready(&self) {
        wait(|| async {
            let reasons = self.reasons();
            if reasons.is_empty() {
                Ok(())
            } else {
                Err(format!("{reasons:?}"))
            }
        })
        .await;
    }
}

fn metric(registry: &Registry, name: &str) -> Option<i64> {
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, registry).unwrap();
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

/// Asks until the answer is good, and fails with the last one.
pub async fn wait<T, Fut: Future<Output = Result<T, String>>>(mut ask: impl FnMut() -> Fut) -> T {
    let began = tokio::time::Instant::now();
    loop {
        match ask().await {
            Ok(value) => return value,
            Err(seen) if began.elapsed() > BOUND => panic!("waited {BOUND:?}; last seen: {seen}"),
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Writes one sale's log, as scripts and gateways would.
pub struct Author {
    pub sale: SaleId,
    log: Log,
    lane: Lane,
    generation: u32,
    seq: u64,
    head: Digest,
    /// The rows that must come of it.
    pub wins: Vec<Order>,
}

impl Author {
    /// Creates a sale in the index, and opens it.
    pub async fn open(log: &Log, sale: &str, stock: u64) -> Self {
        let sale = SaleId::new(sale).unwrap();
        let partition = sale.as_str().bytes().map(u32::from).sum::<u32>() % PARTITIONS;
        let lane = Lane::Claims(PartitionId(partition));
        let probe = log.probe(lane).await.unwrap();
        let created = SaleCreated {
            sale: sale.clone(),
            log_id: probe.log_id,
            partition: PartitionId(partition),
            from_offset: probe.end,
            definition: definition(stock),
            created_at: TimeMs(1),
            attempt: AttemptId([1; 16]),
        };
        log.append(Lane::Index, encode_sale_created(&created))
            .await
            .unwrap();
        let mut author = Self {
            sale,
            log: log.clone(),
            lane,
            generation: 0,
            seq: 0,
            head: Digest([0; 20]),
            wins: Vec::new(),
        };
        author.start(stock).await;
        author
    }

    /// Writes into the log by another handle from now on.
    pub fn go_on_with(&mut self, log: Log) {
        self.log = log;
    }

    async fn append(&mut self, body: Body) -> Digest {
        let event = Event {
            sale: self.sale.clone(),
            generation: Generation(self.generation),
            body,
        };
        let bytes = encode_event(&event);
        let digest = digest(&bytes);
        self.log.append(self.lane, bytes).await.unwrap();
        digest
    }

    /// Begins the next generation.
    pub async fn start(&mut self, stock: u64) {
        self.generation += 1;
        let opening = self.generation == 1;
        let started = Started {
            identity: Identity([self.generation as u8; 16]),
            nonce: Nonce([2; 16]),
            scripts: vec![ScriptHash {
                name: "claim_unit".into(),
                sha1: Digest([5; 20]),
            }],
            rule: RULE_VERSION,
            calls: CALLS_VERSION,
            window: NonZeroU32::new(10_000).unwrap(),
            definition: opening.then(|| definition(stock)),
            by: "test".into(),
            reason: "test".into(),
            at: None,
        };
        self.head = self.append(Body::Started(Box::new(started))).await;
    }

    fn link(&self) -> Link {
        Link {
            seq: Seq(self.seq + 1),
            time: TimeMs(1_700_000_000_000 + self.seq),
            prev: self.head,
        }
    }

    fn won(&self, user: &str) -> Won {
        let mut attempt = [3; 16];
        attempt[..8].copy_from_slice(&self.seq.to_le_bytes());
        attempt[8..12].copy_from_slice(&self.generation.to_le_bytes());
        attempt[12] = self.sale.as_str().as_bytes()[0];
        Won {
            link: self.link(),
            user: UserId::new(user).unwrap(),
            attempt: AttemptId(attempt),
            key: IdempotencyKey::none(),
            unit: Unit(self.wins.len() as u64 + 1),
        }
    }

    /// `count` more users win.
    pub async fn win(&mut self, count: u64) {
        for _ in 0..count {
            let won = self.won(&format!("user-{}", self.seq));
            self.wins.push(Order::from(&dropgate_domain::Win {
                generation: Generation(self.generation),
                seq: won.link.seq,
                unit: won.unit,
                user: won.user.clone(),
                attempt: won.attempt,
                key: won.key.clone(),
                won_at: won.link.time,
            }));
            self.head = self.append(Body::Won(won)).await;
            self.seq += 1;
        }
    }

    /// Redis forgot the last win and gives its number again: void, and so is all after it.
    pub async fn lose_writes(&mut self) {
        let mut again = self.won("thief");
        again.link.seq = Seq(self.seq);
        self.append(Body::Won(again)).await;
        let late = self.won("late");
        self.append(Body::Won(late)).await;
    }

    pub async fn close(&mut self) {
        let link = self.link();
        self.head = self.append(Body::Closed(link)).await;
        self.seq += 1;
    }

    /// A record of a later release.
    pub async fn unreadable(&mut self) {
        let event = Event {
            sale: self.sale.clone(),
            generation: Generation(self.generation),
            body: Body::Won(self.won("later")),
        };
        let mut bytes = encode_event(&event).to_vec();
        assert_eq!(bytes[..2], [0x08, 1], "the version comes first");
        bytes[1] = 99;
        self.log.append(self.lane, bytes.into()).await.unwrap();
    }

    pub fn position(&self) -> (Generation, Seq) {
        (Generation(self.generation), Seq(self.seq))
    }
}

fn definition(stock: u64) -> Definition {
    Definition {
        per_user_limit: 1,
        ..Definition::of(stock)
    }
}

/// A writer that does not wait long for anything.
pub fn quick() -> WriterConfig {
    WriterConfig {
        backoff_max: Duration::from_millis(200),
        standby: Duration::from_millis(150),
        ..WriterConfig::default()
    }
}

impl World {
    /// Empties the database.
    pub async fn forget(&self) {
        self.sql("DELETE FROM orders; DELETE FROM sales").await;
    }

    /// Runs SQL, from outside of the writers.
    pub async fn sql(&self, sql: &str) {
        match &self.database {
            Some(database) => drop(database.sql(sql).unwrap()),
            None => {
                let path = self.folder.path().join("orders.db");
                let sql = sql.to_owned();
                blocking(move || {
                    let database = rusqlite::Connection::open(path)?;
                    database.busy_timeout(BOUND)?;
                    Ok(database.execute_batch(&sql)?)
                })
                .await;
            }
        }
    }
}
