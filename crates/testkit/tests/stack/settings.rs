//! The configuration of each process.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use dropgate_testkit::Redis;
use dropgate_testkit::ports::Port;

pub const ADMIN_KEY: &str = "stack-test-admin-key-of-32-bytes";
pub const TOKEN_KID: &str = "stack";
pub const TOKEN_SECRET: &str = "stack-test-token-secret-32-bytes";

/// The ports of a gateway, kept while it is down.
#[derive(Debug)]
pub struct Ports {
    pub public: Port,
    pub admin: Port,
}

impl Ports {
    pub fn reserve() -> Result<Self> {
        Ok(Self {
            public: Port::reserve()?,
            admin: Port::reserve()?,
        })
    }
}

/// What all files have in common, and where they are.
#[derive(Debug)]
pub struct Settings {
    pub folder: PathBuf,
    gateway_redis: String,
    operator_redis: String,
    log: String,
    store: String,
}

impl Settings {
    /// For these servers. `run` makes the topics' names this stack's own: others use the broker.
    pub fn new(folder: &Path, run: &str, redis: &Redis, brokers: &str, database: &str) -> Self {
        Self {
            folder: folder.to_owned(),
            gateway_redis: redis.gateway_url(),
            operator_redis: redis.operator_url(),
            log: format!(
                "[log]\nbackend = \"kafka\"\n[log.kafka]\nbrokers = \"{brokers}\"\n\
                 topic_index = \"{run}-sales\"\ntopic_claims = \"{run}-claims\"\n\
                 create = true\npartitions = 4\nreplication_factor = 1"
            ),
            store: format!("[store]\nurl = \"{database}\""),
        }
    }

    /// A gateway's, with the restricted user of Redis; only with the operator's too it may open.
    pub fn gateway(&self, name: &str, ports: &Ports, operator: bool) -> Result<PathBuf> {
        let mut sections = vec![
            http(ports),
            self.redis(),
            self.log.clone(),
            self.store.clone(),
        ];
        if operator {
            sections.push(self.redis_operator());
        }
        self.write(name, &sections)
    }

    pub fn order_writer(&self, name: &str, ops: &Port) -> Result<PathBuf> {
        self.write(name, &[bind(ops), self.log.clone(), self.store.clone()])
    }

    /// That of `dropgate`, which knows every service.
    pub fn dropgate(&self, gateway: &Ports, ops: &Port) -> Result<PathBuf> {
        let data = format!("[data]\ndir = \"{}\"", self.folder.display());
        let sections = [
            data,
            http(gateway),
            bind(ops),
            self.redis(),
            self.redis_operator(),
            self.log.clone(),
            self.store.clone(),
        ];
        self.write("dropgate", &sections)
    }

    /// That of the reconciler, which reads whole keys: the restricted user may not.
    pub fn reconciler(&self) -> Result<PathBuf> {
        let redis = format!("[redis]\nurl = \"{}\"", self.operator_redis);
        self.write("reconciler", &[redis, self.log.clone(), self.store.clone()])
    }

    fn redis(&self) -> String {
        format!("[redis]\nurl = \"{}\"", self.gateway_redis)
    }

    fn redis_operator(&self) -> String {
        format!("[redis_operator]\nurl = \"{}\"", self.operator_redis)
    }

    fn write(&self, name: &str, sections: &[String]) -> Result<PathBuf> {
        let path = self.folder.join(format!("{name}.toml"));
        std::fs::write(&path, sections.join("\n\n"))
            .with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }
}

fn http(ports: &Ports) -> String {
    let (public, admin) = (ports.public.number(), ports.admin.number());
    format!(
        "[http]\nbind = \"127.0.0.1:{public}\"\nadmin_bind = \"127.0.0.1:{admin}\"\nworkers = 2\n\n\
         [auth]\nkeys = [{{ kid = \"{TOKEN_KID}\", secret = \"{TOKEN_SECRET}\" }}]\n\n\
         [admin]\nkeys = [\"{ADMIN_KEY}\"]"
    )
}

fn bind(ops: &Port) -> String {
    format!("[ops]\nbind = \"127.0.0.1:{}\"", ops.number())
}
