//! Where sales live: one Redis, one with TLS, one behind sentinels, a cluster.

use crate::fixture::{NONCE, eventually, fresh, head_of_start, make_current, redis};
use dropgate_admission::{Admission, Operator, RedisConfig, Scope, Scripts, SentinelConfig};
use dropgate_domain::{Definition, Generation, LogId, SaleId};
use dropgate_testkit::redis::{
    Authority, DISCOVERY_PASSWORD, DISCOVERY_USER, GATEWAY_PASSWORD, OPERATOR_PASSWORD,
};
use dropgate_testkit::{
    AppendOnly, ClusterOptions, Redis, RedisCluster, RedisOptions, RedisTrio, TrioOptions,
};
use std::sync::Arc;
use std::time::Duration;

/// The users of the clients.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum As {
    Gateway,
    Operator,
}

pub enum Place {
    Single(Redis),
    Tls(Redis, Arc<Authority>),
    Trio(RedisTrio),
    Cluster(RedisCluster),
}

impl Place {
    pub fn single() -> Self {
        Self::Single(redis())
    }

    pub fn tls() -> Self {
        let authority = Arc::new(Authority::new().unwrap());
        let options = RedisOptions {
            tls: Some(Arc::clone(&authority)),
            ..RedisOptions::default()
        };
        Self::Tls(Redis::start(&options).unwrap(), authority)
    }

    pub fn trio(options: &TrioOptions) -> Self {
        Self::Trio(RedisTrio::start(options).unwrap())
    }

    pub fn cluster(options: &ClusterOptions) -> Self {
        Self::Cluster(RedisCluster::start(options).unwrap())
    }

    /// A configuration with the time-outs of tests that nobody disturbs.
    pub fn config(&self, user: As) -> RedisConfig {
        RedisConfig {
            command_timeout: Duration::from_secs(10),
            call_deadline: Duration::from_secs(60),
            connect_timeout: Duration::from_secs(10),
            ..self.brisk(user)
        }
    }

    /// A configuration with the time-outs that are the default.
    pub fn brisk(&self, user: As) -> RedisConfig {
        let mut config = match self {
            Self::Single(redis) => RedisConfig::at(&redis.url()),
            Self::Tls(redis, authority) => {
                let port = redis.tls_port().unwrap();
                let mut config = RedisConfig::at(&format!("rediss://127.0.0.1:{port}"));
                config.tls.ca_file = Some(authority.ca_file());
                config
            }
            Self::Trio(trio) => RedisConfig {
                sentinel: SentinelConfig {
                    service: RedisTrio::SERVICE.to_owned(),
                    username: Some(DISCOVERY_USER.to_owned()),
                    password: Some(DISCOVERY_PASSWORD.into()),
                },
                ..RedisConfig::behind_sentinels(trio.sentinel_addresses(), RedisTrio::SERVICE)
            },
            Self::Cluster(cluster) => RedisConfig::in_cluster(cluster.addresses()),
        };
        let (name, password) = match user {
            As::Gateway => ("gateway", GATEWAY_PASSWORD),
            As::Operator => ("operator", OPERATOR_PASSWORD),
        };
        config.username = Some(name.to_owned());
        config.password = Some(password.into());
        config
    }

    /// All servers.
    pub fn servers(&self) -> Vec<&Redis> {
        match self {
            Self::Single(redis) | Self::Tls(redis, _) => vec![redis],
            Self::Trio(trio) => trio.servers().iter().collect(),
            Self::Cluster(cluster) => cluster.nodes().iter().collect(),
        }
    }

    /// The index of the server that a sale lives on.
    pub fn master(&self, sale: &SaleId) -> usize {
        match self {
            Self::Single(_) | Self::Tls(..) => 0,
            Self::Trio(trio) => trio.master().unwrap(),
            Self::Cluster(cluster) => cluster.master_of(&current(sale)).unwrap(),
        }
    }

    pub fn server(&self, index: usize) -> &Redis {
        self.servers()[index]
    }

    pub fn server_mut(&mut self, index: usize) -> &mut Redis {
        match self {
            Self::Single(redis) | Self::Tls(redis, _) => redis,
            Self::Trio(trio) => trio.server_mut(index),
            Self::Cluster(cluster) => cluster.node_mut(index),
        }
    }

    /// Waits until another server than `old` is the master of a sale.
    pub fn new_master(&self, sale: &SaleId, old: usize) -> usize {
        match self {
            Self::Single(_) | Self::Tls(..) => panic!("there is one server"),
            Self::Trio(trio) => trio.wait_for_new_master(old).unwrap(),
            Self::Cluster(cluster) => cluster.wait_for_new_master(&current(sale), old).unwrap(),
        }
    }

    /// Waits until all is well.
    pub fn healthy(&self) {
        match self {
            Self::Single(_) | Self::Tls(..) => {}
            Self::Trio(trio) => drop(trio.wait_healthy().unwrap()),
            Self::Cluster(cluster) => cluster.wait_healthy().unwrap(),
        }
    }

    /// Has another server made the master of a sale, while the old one lives.
    pub fn failover(&self, sale: &SaleId) -> usize {
        let old = self.master(sale);
        match self {
            Self::Single(_) | Self::Tls(..) => panic!("there is one server"),
            Self::Trio(trio) => trio.failover().unwrap(),
            Self::Cluster(cluster) => return cluster.failover(&current(sale)).unwrap(),
        }
        self.new_master(sale, old)
    }

    /// Nobody was refused anything: the users that are shipped may do what is needed.
    pub fn nobody_was_refused(&self) {
        for server in self.servers() {
            let log = server.cli(&["ACL", "LOG"]).unwrap();
            assert_eq!(log, "", "on port {}", server.port());
        }
        if let Self::Trio(trio) = self {
            for sentinel in trio.sentinels() {
                assert_eq!(sentinel.cli(&["ACL", "LOG"]).unwrap(), "", "a sentinel");
            }
        }
    }
}

/// A trio whose servers keep their data, so that one can come back with it.
pub fn durable_trio() -> Place {
    Place::trio(&TrioOptions {
        append_only: AppendOnly::Always,
        ..TrioOptions::default()
    })
}

/// A cluster whose nodes keep their data.
pub fn durable_cluster() -> Place {
    Place::cluster(&ClusterOptions {
        append_only: AppendOnly::Always,
        ..ClusterOptions::default()
    })
}

fn current(sale: &SaleId) -> String {
    format!("dropgate:{{{sale}}}:current")
}

/// Both clients of a place, and a sale that is live there.
pub struct Live {
    pub operator: Operator,
    pub gateway: Admission,
    pub scope: Scope,
    pub scripts: Scripts,
}

impl Live {
    pub async fn open(place: &Place, sale: &SaleId, stock: u64) -> Self {
        let (gateway, operator) = (place.config(As::Gateway), place.config(As::Operator));
        Self::open_with(&gateway, operator, sale, stock).await
    }

    /// With the time-outs that are the default.
    pub async fn brisk(place: &Place, sale: &SaleId, stock: u64) -> Self {
        let (gateway, operator) = (place.brisk(As::Gateway), place.brisk(As::Operator));
        Self::open_with(&gateway, operator, sale, stock).await
    }

    async fn open_with(
        gateway: &RedisConfig,
        operator: RedisConfig,
        sale: &SaleId,
        stock: u64,
    ) -> Self {
        let gateway = Admission::connect(gateway).await.unwrap();
        let operator = Operator::new(operator);
        let certified = || operator.certify(sale);
        eventually("a master that can be certified", certified, Result::is_ok)
            .await
            .unwrap();
        let hashes = operator.load_scripts(sale, NONCE).await.unwrap();
        let scripts = Scripts::from_started(&hashes).unwrap();
        let scope = Scope::new(sale.clone(), LogId([7; 16]), Generation(1));
        let mut state = fresh(sale, Definition::of(stock));
        state.head = head_of_start(sale, Generation(1));
        make_current(&operator, &scripts, &scope, &state, []).await;
        Self {
            operator,
            gateway,
            scope,
            scripts,
        }
    }
}
