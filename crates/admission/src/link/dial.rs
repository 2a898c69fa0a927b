//! Making clients of fred: one for each server, all of them alike.

use crate::config::{RedisConfig, TlsConfig, Topology, Url, read_address};
use crate::error::ConnectError;
use fred::clients::Client;
use fred::rustls;
use fred::types::Builder;
use fred::types::config::{Config, ReconnectPolicy, Server, ServerConfig, TlsConnector};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use secrecy::{ExposeSecret, SecretString};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Where a server is.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Reads `host:port`.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (host, port) = read_address(text)?;
        Some(Self { host, port })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// All that the clients of one kind of server have in common.
#[derive(Debug, Clone)]
pub(crate) struct Dial {
    username: Option<String>,
    password: Option<SecretString>,
    database: Option<u8>,
    tls: Option<TlsConnector>,
    pub(crate) connect_timeout: Duration,
    pub(crate) command_timeout: Duration,
    pub(crate) reconnect_delay_min: Duration,
    pub(crate) reconnect_delay_max: Duration,
    pub(crate) timeouts_in_row_max: u32,
    calls_in_flight_max: usize,
}

impl Dial {
    /// Reads the files that the configuration names.
    pub(crate) async fn new(config: &RedisConfig) -> Result<Self, ConnectError> {
        let mut dial = Self {
            username: config.username.clone(),
            password: config.password.clone(),
            database: None,
            tls: None,
            connect_timeout: config.connect_timeout,
            command_timeout: config.command_timeout,
            reconnect_delay_min: config.reconnect_delay_min,
            reconnect_delay_max: config.reconnect_delay_max,
            timeouts_in_row_max: config.timeouts_in_row_max,
            calls_in_flight_max: config.calls_in_flight_max,
        };
        let mut tls = config.tls.enabled;
        if config.topology == Topology::Single {
            let url = read_url(config)?;
            dial.username = dial.username.or(url.username);
            dial.password = dial.password.or(url.password.map(SecretString::from));
            dial.database = url.database;
            tls |= url.tls;
        }
        if tls {
            dial.tls = Some(connector(&config.tls).await?);
        }
        Ok(dial)
    }

    /// The same with the credentials that sentinels know.
    pub(crate) fn to_sentinels(&self, config: &RedisConfig) -> Self {
        Self {
            username: config.sentinel.username.clone(),
            password: config.sentinel.password.clone(),
            ..self.clone()
        }
    }

    /// A client of one server. With `fail_fast` its first failure to connect is its end.
    pub(crate) fn client(&self, to: &Address, fail_fast: bool) -> Result<Client, ConnectError> {
        let password = self.password.as_ref();
        let server = Config {
            fail_fast,
            username: self.username.clone(),
            password: password.map(|password| password.expose_secret().to_owned()),
            database: self.database,
            server: ServerConfig::Centralized {
                server: Server::new(to.host.as_str(), to.port),
            },
            tls: self.tls.clone().map(Into::into),
            ..Config::default()
        };
        let ms = |duration: Duration| u32::try_from(duration.as_millis()).unwrap_or(u32::MAX);
        let delay_min_ms = ms(self.reconnect_delay_min);
        let delay_max_ms = ms(self.reconnect_delay_max);
        let mut policy = ReconnectPolicy::new_exponential(0, delay_min_ms, delay_max_ms, 2);
        policy.set_jitter(delay_min_ms);
        Builder::from_config(server)
            .set_policy(policy)
            .with_performance_config(|performance| {
                performance.default_command_timeout = self.command_timeout;
            })
            .with_connection_config(|connection| {
                connection.connection_timeout = self.connect_timeout;
                connection.internal_command_timeout = self.connect_timeout;
                connection.max_command_attempts = 1;
                connection.max_command_buffer_len = self.calls_in_flight_max.saturating_mul(4);
                connection.reconnect_errors = Vec::new();
                connection.tcp.nodelay = Some(true);
            })
            .build()
            .map_err(|_| ConnectError::Invalid("no client can be made of it".to_owned()))
    }
}

/// The URL of a single server.
fn read_url(config: &RedisConfig) -> Result<Url, ConnectError> {
    // Never repeated: it may hold a password.
    Url::read(config.url.expose_secret())
        .ok_or_else(|| ConnectError::Invalid("url: cannot be read".to_owned()))
}

/// Where the configuration says that servers are: the one of the URL, or the nodes.
pub(crate) fn addresses(config: &RedisConfig) -> Result<Vec<Address>, ConnectError> {
    if config.topology == Topology::Single {
        let Url { host, port, .. } = read_url(config)?;
        return Ok(vec![Address { host, port }]);
    }
    let unreadable = || ConnectError::Invalid("nodes: cannot be read".to_owned());
    let read = |node: &String| Address::read(node).ok_or_else(unreadable);
    config.nodes.iter().map(read).collect()
}

/// TLS by rustls, which accepts no certificate that it cannot verify.
async fn connector(config: &TlsConfig) -> Result<TlsConnector, ConnectError> {
    let bad =
        |field: &'static str| move |why: String| ConnectError::Invalid(format!("{field}: {why}"));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| bad("tls")(error.to_string()))?
        .with_root_certificates(roots(config).await?);
    let client = match (&config.cert_file, &config.key_file) {
        (Some(cert_file), Some(key_file)) => {
            let chain = certificates(cert_file)
                .await
                .map_err(bad("tls.cert_file"))?;
            let key = read(key_file).await.map_err(bad("tls.key_file"))?;
            // The error of a key that cannot be read says nothing of what is in it.
            let key = PrivateKeyDer::from_pem_slice(&key)
                .map_err(|_| bad("tls.key_file")("holds no private key (PEM)".to_owned()))?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| bad("tls.cert_file")(error.to_string()))?
        }
        _ => builder.with_no_client_auth(),
    };
    Ok(TlsConnector::from(client))
}

async fn roots(config: &TlsConfig) -> Result<rustls::RootCertStore, ConnectError> {
    let mut roots = rustls::RootCertStore::empty();
    let Some(ca_file) = &config.ca_file else {
        let load = fred::rustls_native_certs::load_native_certs;
        let system = tokio::task::spawn_blocking(load).await;
        let certificates = system.map(|system| system.certs).unwrap_or_default();
        let (added, _) = roots.add_parsable_certificates(certificates);
        if added == 0 {
            let text = "tls.ca_file: must be set, the system has no trusted certificates";
            return Err(ConnectError::Invalid(text.to_owned()));
        }
        return Ok(roots);
    };
    let bad = |why: String| ConnectError::Invalid(format!("tls.ca_file: {why}"));
    for certificate in certificates(ca_file).await.map_err(bad)? {
        roots
            .add(certificate)
            .map_err(|error| bad(error.to_string()))?;
    }
    Ok(roots)
}

/// The certificates of a PEM file; at least one.
async fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = read(file).await?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    match found {
        Ok(found) if !found.is_empty() => Ok(found),
        _ => Err("holds no certificate (PEM)".to_owned()),
    }
}

async fn read(file: &Path) -> Result<Vec<u8>, String> {
    let read = tokio::fs::read(file).await;
    read.map_err(|error| format!("cannot be read ({error})"))
}
