//! The configuration of each process, as files that a person can read and use again.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Backing;
use crate::Redis;

/// The name of the key that signs the tokens of users.
pub const TOKEN_KID: &str = "stack";

/// Secrets made for this run, the sections that all files share, and where the files are.
#[derive(Clone)]
pub struct Settings {
    folder: PathBuf,
    /// The admin API's key.
    pub admin_key: String,
    /// The file with the secret that signs the tokens of users.
    pub token_secret_file: PathBuf,
    token_secret: String,
    gateway_redis: String,
    operator_redis: String,
    log: String,
    database: String,
    more: String,
}

impl Settings {
    /// Draws the secrets and writes them below `folder`, readable by their owner alone.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn new(folder: &Path, backing: &Backing) -> Result<Self> {
        let (log, database) = match &backing.durable {
            Some(durable) => (
                Self::kafka(&durable.kafka.brokers()),
                durable.database.url(),
            ),
            None => (
                format!(
                    "backend = \"embedded\"\n[log.embedded]\npath = \"{}\"",
                    folder.join("log.db").display()
                ),
                format!("sqlite:{}", folder.join("orders.db").display()),
            ),
        };
        Self::of(folder, &backing.redis, log, database)
    }

    /// The same for servers that were started one by one: with the lines of `[log]`, and the
    /// database's URL.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn of(folder: &Path, redis: &Redis, log: String, database: String) -> Result<Self> {
        std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
        let settings = Self {
            folder: folder.to_owned(),
            admin_key: secret()?,
            token_secret_file: folder.join("token-secret"),
            token_secret: secret()?,
            gateway_redis: format!("url = \"{}\"", redis.gateway_url()),
            operator_redis: format!("url = \"{}\"", redis.operator_url()),
            log,
            database,
            more: String::new(),
        };
        write(&settings.token_secret_file, &settings.token_secret)?;
        write(&folder.join("admin-key"), &settings.admin_key)?;
        Ok(settings)
    }

    /// The lines of `[log]` for a broker; lines of `[log.kafka]` may follow.
    #[must_use]
    pub fn kafka(brokers: &str) -> String {
        // One small machine runs everything, a compiler perhaps too: a slow answer is no outage
        // here.
        format!(
            "backend = \"kafka\"\n[log.kafka]\nbrokers = \"{brokers}\"\ncreate = true\n\
             replication_factor = 1\nprobe_timeout = \"5s\""
        )
    }

    /// The same with other lines of `[log]`, for a process that is to reach it by another way.
    #[must_use]
    pub fn with_log(&self, log: String) -> Self {
        Self {
            log,
            ..self.clone()
        }
    }

    /// The same with another URL of the database.
    #[must_use]
    pub fn with_database(&self, database: String) -> Self {
        Self {
            database,
            ..self.clone()
        }
    }

    /// The same with other lines of `[redis]` for gateways and for operators, for example of
    /// sentinels.
    #[must_use]
    pub fn with_redis(&self, gateway: String, operator: String) -> Self {
        Self {
            gateway_redis: gateway,
            operator_redis: operator,
            ..self.clone()
        }
    }

    /// The same with further sections at the end of each file.
    #[must_use]
    pub fn with_more(&self, more: &str) -> Self {
        Self {
            more: more.to_owned(),
            ..self.clone()
        }
    }

    /// Where the files are.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The secret that signs the tokens of users.
    #[must_use]
    pub fn token_secret(&self) -> &str {
        &self.token_secret
    }

    /// The database's URL, with its password.
    #[must_use]
    pub fn database(&self) -> &str {
        &self.database
    }

    /// Writes the file of a gateway and gives its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn gateway(&self, name: &str, ports: GatewayPorts) -> Result<PathBuf> {
        self.file(
            name,
            &[self.http(ports), self.both_redis(), self.log_and_store()],
        )
    }

    /// The same without the operator's credentials: it opens no sale.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn restricted_gateway(&self, name: &str, ports: GatewayPorts) -> Result<PathBuf> {
        let redis = format!("[redis]\n{}", self.gateway_redis);
        self.file(name, &[self.http(ports), redis, self.log_and_store()])
    }

    /// Writes the file of `dropgate`, which knows every service, and gives its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn dropgate(&self, ports: GatewayPorts, ops_port: u16) -> Result<PathBuf> {
        let data = format!("[data]\ndir = \"{}\"", self.folder.display());
        let sections = [
            data,
            self.http(ports),
            ops(ops_port),
            self.both_redis(),
            self.log_and_store(),
        ];
        self.file("dropgate", &sections)
    }

    /// Writes the file of an order-writer and gives its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn order_writer(&self, name: &str, ops_port: u16) -> Result<PathBuf> {
        self.file(name, &[ops(ops_port), self.log_and_store()])
    }

    /// Writes the file of a watch and gives its path. The lines of `[watch]` may be empty.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn watch(&self, name: &str, ops_port: u16, watch: &str) -> Result<PathBuf> {
        let redis = format!("[redis]\n{}", self.operator_redis);
        let watch = format!("[watch]\n{watch}");
        self.file(name, &[ops(ops_port), redis, self.log_and_store(), watch])
    }

    /// Writes the file of a reconciler and gives its path.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn reconciler(&self, name: &str) -> Result<PathBuf> {
        let redis = format!("[redis]\n{}", self.operator_redis);
        self.file(name, &[redis, self.log_and_store()])
    }

    fn http(&self, ports: GatewayPorts) -> String {
        format!(
            "[http]\nbind = \"127.0.0.1:{}\"\nadmin_bind = \"127.0.0.1:{}\"\n\n\
             [auth]\nkeys = [{{ kid = \"{TOKEN_KID}\", secret = \"{}\" }}]\n\n\
             [admin]\nkeys = [\"{}\"]",
            ports.public, ports.admin, self.token_secret, self.admin_key
        )
    }

    fn both_redis(&self) -> String {
        let (gateway, operator) = (&self.gateway_redis, &self.operator_redis);
        format!("[redis]\n{gateway}\n\n[redis_operator]\n{operator}")
    }

    fn log_and_store(&self) -> String {
        let (log, database) = (&self.log, &self.database);
        format!("[log]\n{log}\n\n[store]\nurl = \"{database}\"")
    }

    fn file(&self, name: &str, sections: &[String]) -> Result<PathBuf> {
        let path = self.folder.join(format!("{name}.toml"));
        let text = [&sections.join("\n\n"), self.more.as_str()].join("\n\n");
        write(&path, &(text + "\n"))?;
        Ok(path)
    }
}

/// The ports of a gateway.
#[derive(Clone, Copy, Debug)]
pub struct GatewayPorts {
    /// Where users come in.
    pub public: u16,
    /// Where operators come in.
    pub admin: u16,
}

fn ops(port: u16) -> String {
    format!("[ops]\nbind = \"127.0.0.1:{port}\"")
}

/// 32 random bytes, in hex.
fn secret() -> Result<String> {
    let mut bytes = [0_u8; 32];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .context("reading /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn write(path: &Path, text: &str) -> Result<()> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("writing {}", path.display()))
}
