//! Everybody who knows something of a sale, asked at once, each with a deadline.

use super::seen::{Asked, Ready};
use crate::args::Status as Args;
use crate::config::Config;
use crate::folded::{self, Folded, NotFolded};
use crate::http::Api;
use crate::keys;
use dropgate_admission::Operator;
use dropgate_domain::{Generation, SaleId, Seq};
use dropgate_engine::Survey;
use dropgate_reconciler::snapshot::open_store;
use dropgate_store::{SaleRow, Store};
use dropgate_stream::{Backend, Log};
use futures::future::join_all;
use secrecy::SecretString;
use serde_json::Value;
use std::fmt::Display;
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// How long the connections may take to be closed.
const CLOSE_DEADLINE: Duration = Duration::from_secs(1);
/// When the log took longer to be read than this, the others are asked again: they went on.
const OLD_AFTER: Duration = Duration::from_secs(1);

/// What everybody said.
pub struct Answers {
    /// `Known(None)`: there is no such sale.
    pub log: Asked<Option<Folded>>,
    pub redis: Asked<Redis>,
    /// `Known(None)`: nothing of it is written.
    pub database: Asked<Option<(Generation, Seq)>>,
    pub gateways: Vec<Gateway>,
    /// Whether the gateways were named, or are a guess.
    pub gateways_named: bool,
    pub watch: Option<Watch>,
}

/// What Redis said.
pub enum Redis {
    /// The log told what to look for.
    Survey(Box<Survey>),
    /// It did not: the tag that is current.
    Current(Option<String>),
}

/// What a gateway said.
pub struct Gateway {
    pub url: String,
    pub ready: Asked<Ready>,
    /// The admin view of the sale; `Known(None)`: it knows no such sale.
    pub sale: Asked<Option<Value>>,
}

/// What the watch said.
pub struct Watch {
    pub url: String,
    pub ready: Asked<Ready>,
    /// What it thinks of the sale; `Known(None)`: it sees no trouble.
    pub thought: Asked<Option<Value>>,
}

/// Whom to ask, and how.
struct Whom<'a> {
    sale: &'a SaleId,
    config: &'a Config,
    gateways: Vec<String>,
    watch: Option<String>,
    key: Result<SecretString, String>,
    patience: Duration,
}

/// The services, as they answered.
struct Services {
    gateways: Vec<Gateway>,
    watch: Option<Watch>,
    database: Asked<Option<(Generation, Seq)>>,
}

/// Asks everybody.
///
/// # Errors
/// A key file that was named and cannot be read.
pub async fn everybody(args: &Args, config: &Config) -> anyhow::Result<Answers> {
    let key = match keys::given(args.admin_key_file.as_deref())? {
        Some(key) => Ok(key),
        None => keys::admin_key(config).map_err(|error| error.to_string()),
    };
    let named = match args.gateway.as_slice() {
        [] => &config.status.gateways,
        given => given,
    };
    let watch = args.watch.clone().or_else(|| config.status.watch.clone());
    let whom = Whom {
        sale: &args.sale,
        config,
        gateways: match named {
            [] => vec![format!("http://{}", config.http.admin_bind)],
            named => named.to_vec(),
        },
        // `serve` watches by itself.
        watch: watch.or_else(|| {
            let serves = config.log.backend == Backend::Embedded;
            serves.then(|| format!("http://{}", config.watch_ops.bind))
        }),
        key,
        patience: args.timeout.unwrap_or(config.status.timeout),
    };
    let begun = Instant::now();
    let (log, mut services) = tokio::join!(whom.log(), whom.services());
    // Redis is asked when the log has told what to look for.
    let folded = log.known().and_then(Option::as_ref);
    let redis = whom.redis(folded);
    let redis = if folded.is_some() && begun.elapsed() > OLD_AFTER {
        let (redis, again) = tokio::join!(redis, whom.services());
        services = again;
        redis
    } else {
        redis.await
    };
    Ok(Answers {
        log,
        redis,
        database: services.database,
        gateways: services.gateways,
        gateways_named: !named.is_empty(),
        watch: services.watch,
    })
}

impl Whom<'_> {
    async fn within<T, E: Display>(&self, answer: impl Future<Output = Result<T, E>>) -> Asked<T> {
        match timeout(self.patience, answer).await {
            Ok(Ok(value)) => Asked::Known(value),
            Ok(Err(error)) => Asked::Unknown(format!("{error:#}")),
            Err(_) => {
                let patience = humantime::format_duration(self.patience);
                Asked::Unknown(format!("no answer within {patience}"))
            }
        }
    }

    /// Read as long as it brings something: a large one takes a while.
    async fn log(&self) -> Asked<Option<Folded>> {
        let config = self.config.log();
        let log = match self.within(Log::open_read_only(&config)).await {
            Asked::Known(log) => log,
            Asked::Unknown(why) => return Asked::Unknown(why),
        };
        let folded = folded::fold(&log, self.sale, self.patience).await;
        log.close(CLOSE_DEADLINE).await;
        match folded {
            Ok(folded) => Asked::Known(Some(folded)),
            Err(NotFolded::NoSale) => Asked::Known(None),
            Err(NotFolded::Log(why)) => Asked::Unknown(why),
        }
    }

    async fn redis(&self, folded: Option<&Folded>) -> Asked<Redis> {
        let operator = Operator::new(self.config.operator().clone());
        let answer = async {
            match folded {
                Some(folded) => {
                    let survey = Survey::of(&operator, &folded.sale).await?;
                    Ok(Redis::Survey(Box::new(survey)))
                }
                None => operator.current(self.sale).await.map(Redis::Current),
            }
        };
        let answer = self.within(answer).await;
        // What is left of the connection ends with this process.
        let _ = timeout(CLOSE_DEADLINE, operator.shutdown()).await;
        answer
    }

    async fn services(&self) -> Services {
        let gateways = join_all(self.gateways.iter().map(|url| self.gateway(url)));
        let watch = async {
            match &self.watch {
                Some(url) => Some(self.watch(url).await),
                None => None,
            }
        };
        let (gateways, watch, database) = tokio::join!(gateways, watch, self.database());
        Services {
            gateways,
            watch,
            database,
        }
    }

    async fn database(&self) -> Asked<Option<(Generation, Seq)>> {
        let config = self.config.store();
        let row = async {
            let store = open_store(&config).await.map_err(|no| no.reason)?;
            let row = store.sale(self.sale).await;
            close(&store).await;
            row.map_err(|error| error.to_string())
        };
        let at = |row: SaleRow| (row.position.generation, row.position.seq);
        self.within(row).await.map(|row| row.map(at))
    }

    async fn gateway(&self, url: &str) -> Gateway {
        let path = format!("/admin/v1/sales/{}", self.sale);
        let sale = async {
            let key = self.key.as_ref().map_err(Clone::clone)?;
            let answer = self.get(url, Some(key), &path).await?;
            match answer {
                (200, body) => Ok(Some(body)),
                (404, _) => Ok(None),
                (status, body) => {
                    let title = body["title"].as_str().unwrap_or("refused").to_owned();
                    Err(format!("{title} (status {status})"))
                }
            }
        };
        let (ready, sale) = tokio::join!(self.ready(url), sale);
        Gateway {
            url: url.to_owned(),
            ready,
            sale: sale.map_or_else(Asked::Unknown, Asked::Known),
        }
    }

    async fn watch(&self, url: &str) -> Watch {
        let thought = async {
            let (status, body) = self.get(url, None, "/watch").await?;
            let Some(thoughts) = body.as_array().filter(|_| status == 200) else {
                return Err(format!("status {status}, and not what a watch thinks"));
            };
            let ours = |thought: &&Value| thought["sale"] == self.sale.as_str();
            Ok(thoughts.iter().find(ours).cloned())
        };
        let (ready, thought) = tokio::join!(self.ready(url), thought);
        Watch {
            url: url.to_owned(),
            ready,
            thought: thought.map_or_else(Asked::Unknown, Asked::Known),
        }
    }

    async fn ready(&self, url: &str) -> Asked<Ready> {
        let answer = self.get(url, None, "/readyz").await;
        let ready = answer.and_then(|(status, body)| match body["ready"].as_bool() {
            Some(ready) => Ok(Ready {
                ready,
                reasons: reasons(&body),
            }),
            None => Err(format!("status {status}, and not a readiness")),
        });
        ready.map_or_else(Asked::Unknown, Asked::Known)
    }

    async fn get(
        &self,
        url: &str,
        key: Option<&SecretString>,
        path: &str,
    ) -> Result<(u16, Value), String> {
        let told = |error: anyhow::Error| format!("{error:#}");
        let api = Api::new(url, key, self.patience).map_err(told)?;
        let answer = api.get(path).await.map_err(told)?;
        Ok((answer.status, answer.body))
    }
}

fn reasons(body: &Value) -> Vec<String> {
    let reasons = body["reasons"].as_array().into_iter().flatten();
    let text = |reason: &Value| {
        let (probe, why) = (reason["probe"].as_str(), reason["reason"].as_str());
        format!("{}: {}", probe.unwrap_or("?"), why.unwrap_or("?"))
    };
    reasons.map(text).collect()
}

async fn close(store: &Store) {
    store.close(CLOSE_DEADLINE).await;
}
