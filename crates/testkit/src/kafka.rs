//! A real Kafka broker: one node, KRaft, on a JVM.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::child::{Child, RunAs};
use crate::ports::Port;
use crate::proxy::Proxy;
use crate::shared::{self, Prepared};
use crate::tools;
use crate::wait::{self, Seen};

/// The version that `deploy/dev/kafka/pom.xml` names.
pub const VERSION: &str = "4.4.0";

/// Flags for a JVM that starts fast and stays small: only the quick compiler, one collector thread.
const JVM: [&str; 5] = [
    "-Xmx512m",
    "-Xshare:auto",
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Dlog4j2.level=WARN",
];

/// Any text of this form will do: it only has to be the same in the folder at every start.
const CLUSTER_ID: &str = "dropgatetestkit0000000";

/// How a broker is started.
#[derive(Clone, Debug, Default)]
pub struct KafkaOptions {
    /// By how many ways clients can reach the broker besides the direct one, each with a listener
    /// and a proxy of its own (see [`Kafka::proxy`]): a client that has one to itself can be cut
    /// off alone.
    pub proxies: usize,
    /// Further lines of `server.properties`.
    pub extra: Vec<String>,
}

/// A running broker of one's own.
#[derive(Debug)]
pub struct Kafka {
    child: Child,
    ports: Ports,
    proxies: Vec<Proxy>,
    folder: TempDir,
    jars: PathBuf,
}

#[derive(Debug)]
struct Ports {
    client: Port,
    _controller: Port,
    _behind_proxies: Vec<Port>,
}

impl Kafka {
    /// Starts a broker in a new folder and waits until it answers. Takes some four seconds.
    ///
    /// # Errors
    /// When Java or the broker's jars are not installed, or it does not come up.
    pub fn start(options: &KafkaOptions) -> Result<Self> {
        let jars = jars()?;
        let mut tries = 0;
        loop {
            match Self::try_start(options, &jars) {
                Ok(kafka) => return Ok(kafka),
                Err(error) if tries == 2 => return Err(error),
                Err(_) => tries += 1,
            }
        }
    }

    fn try_start(options: &KafkaOptions, jars: &Path) -> Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("dropgate-kafka-")
            .tempdir()?;
        let (client, controller) = (Port::reserve()?, Port::reserve()?);
        let mut listeners = vec![Listener::direct(client.number())];
        let (mut proxies, mut behind_proxies) = (Vec::new(), Vec::new());
        for nth in 0..options.proxies {
            let port = Port::reserve()?;
            let proxy = Proxy::start(port.number())?;
            listeners.push(Listener {
                name: format!("PROXIED{nth}"),
                port: port.number(),
                advertised: proxy.port(),
            });
            proxies.push(proxy);
            behind_proxies.push(port);
        }
        let conf = config(
            &listeners,
            controller.number(),
            folder.path(),
            &options.extra,
        );
        std::fs::write(folder.path().join("server.properties"), conf)?;
        format(jars, folder.path())?;
        let child = run(jars, folder.path(), client.number())?;
        Ok(Self {
            child,
            ports: Ports {
                client,
                _controller: controller,
                _behind_proxies: behind_proxies,
            },
            proxies,
            folder,
            jars: jars.to_owned(),
        })
    }

    /// The address (`host:port`) of the broker that the ordinary tests share: make topics with
    /// names of your own in it, and never stop or pause it.
    ///
    /// # Errors
    /// When Java or the broker's jars are not installed, or it does not come up.
    pub fn shared_brokers() -> Result<String> {
        let port = shared::lease("kafka", prepare_shared, |port| answers(port, port))?;
        Ok(format!("127.0.0.1:{port}"))
    }

    /// Adds a line of `server.properties`; it holds from the next restart on, and over an earlier
    /// line of the same name.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn configure(&self, line: &str) -> Result<()> {
        let file = self.folder.path().join("server.properties");
        let mut file = std::fs::OpenOptions::new().append(true).open(file)?;
        writeln!(file, "\n{line}")?;
        Ok(())
    }

    /// The address (`host:port`) for clients that are to reach it directly.
    #[must_use]
    pub fn brokers(&self) -> String {
        format!("127.0.0.1:{}", self.ports.client.number())
    }

    /// The address (`host:port`) for clients that are to reach it by way of a proxy, which the
    /// broker advertises to them, so that all their connections go through it.
    ///
    /// # Errors
    /// When it was started with fewer [`KafkaOptions::proxies`].
    pub fn proxied_brokers(&self, nth: usize) -> Result<String> {
        Ok(format!("127.0.0.1:{}", self.proxy(nth)?.port()))
    }

    /// A proxy, counted from 0.
    ///
    /// # Errors
    /// When it was started with fewer [`KafkaOptions::proxies`].
    pub fn proxy(&self, nth: usize) -> Result<&Proxy> {
        let count = self.proxies.len();
        let proxy = self.proxies.get(nth);
        proxy.with_context(|| format!("this Kafka was started with {count} proxies"))
    }

    /// The port for clients that are to reach it directly.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.ports.client.number()
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn kill9(&mut self) -> Result<()> {
        self.child.kill9()
    }

    /// Stops it where it is (SIGSTOP).
    ///
    /// # Errors
    /// When it has ended.
    pub fn pause(&mut self) -> Result<()> {
        self.child.pause()
    }

    /// Lets it go on (SIGCONT).
    ///
    /// # Errors
    /// When it has ended.
    pub fn resume(&mut self) -> Result<()> {
        self.child.resume()
    }

    /// Ends it in order (SIGTERM).
    ///
    /// # Errors
    /// When it does not end.
    pub fn stop(&mut self) -> Result<()> {
        self.child.signal(Signal::SIGTERM)?;
        self.child.wait(wait::START).map(drop)
    }

    /// Starts it again on the same ports and folder, after killing it if it still runs.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn restart(&mut self) -> Result<()> {
        self.kill9()?;
        self.child = run(&self.jars, self.folder.path(), self.port())?;
        Ok(())
    }
}

struct Listener {
    name: String,
    port: u16,
    advertised: u16,
}

impl Listener {
    fn direct(port: u16) -> Self {
        Self {
            name: "DIRECT".to_owned(),
            port,
            advertised: port,
        }
    }
}

fn config(listeners: &[Listener], controller: u16, folder: &Path, extra: &[String]) -> String {
    let list = |port: fn(&Listener) -> u16| {
        listeners
            .iter()
            .map(|listener| format!("{}://127.0.0.1:{}", listener.name, port(listener)))
            .collect::<Vec<_>>()
            .join(",")
    };
    let plain: String = listeners
        .iter()
        .map(|listener| format!("{}:PLAINTEXT,", listener.name))
        .collect();
    format!(
        "process.roles=broker,controller\nnode.id=1\n\
         controller.quorum.voters=1@127.0.0.1:{controller}\n\
         listeners={},CONTROLLER://127.0.0.1:{controller}\nadvertised.listeners={}\n\
         inter.broker.listener.name=DIRECT\ncontroller.listener.names=CONTROLLER\n\
         listener.security.protocol.map={plain}CONTROLLER:PLAINTEXT\n\
         log.dirs={}/data\nauto.create.topics.enable=false\n\
         offsets.topic.replication.factor=1\noffsets.topic.num.partitions=1\n\
         transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
         share.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\nnum.network.threads=2\nnum.io.threads=2\n\
         background.threads=2\nlog.cleaner.dedupe.buffer.size=16777216\n{}\n",
        list(|listener| listener.port),
        list(|listener| listener.advertised),
        folder.display(),
        extra.join("\n"),
    )
}

/// The folder of the broker's jars.
fn jars() -> Result<PathBuf> {
    let jars = tools::cache_dir()?.join(format!("kafka-{VERSION}/libs"));
    if !jars.join(format!("kafka_2.13-{VERSION}.jar")).is_file() {
        bail!(
            "Kafka's jars are not in {}: run `deploy/dev/install.sh test` (or `make test`, which does)",
            jars.display()
        );
    }
    Ok(jars)
}

fn java_args(jars: &Path, main: &[&str]) -> Vec<String> {
    let mut args: Vec<String> = JVM.map(str::to_owned).to_vec();
    args.extend(["-cp".to_owned(), format!("{}/*", jars.display())]);
    args.extend(main.iter().map(|&arg| arg.to_owned()));
    args
}

fn properties(folder: &Path) -> String {
    folder.join("server.properties").display().to_string()
}

fn format(jars: &Path, folder: &Path) -> Result<()> {
    let properties = properties(folder);
    let tool = [
        "kafka.tools.StorageTool",
        "format",
        "-t",
        CLUSTER_ID,
        "-c",
        &properties,
    ];
    let log = folder.join("format.log");
    let java = tools::find("java", &[])?;
    let args = java_args(jars, &tool);
    let mut child = Child::start("kafka format", &java, &args, &[], &log, RunAs::Me)?;
    let status = child.wait(wait::START)?;
    if !status.success() {
        bail!(
            "formatting Kafka's folder ended with {status}:\n{}",
            tools::tail_of(&log)
        );
    }
    Ok(())
}

fn run(jars: &Path, folder: &Path, port: u16) -> Result<Child> {
    let java = tools::find("java", &[])?;
    let args = java_args(jars, &["kafka.Kafka", &properties(folder)]);
    let log = folder.join("kafka.log");
    let mut child = Child::start("kafka", &java, &args, &[], &log, RunAs::Me)?;
    wait::until("Kafka to answer", wait::START, || {
        child.check_alive()?;
        Ok(match answers(port, port) {
            Ok(()) => Seen::Done(()),
            Err(error) => Seen::NotYet(format!("{error:#}\n{}", tools::tail_of(&log))),
        })
    })
    .context("starting Kafka")?;
    Ok(child)
}

fn prepare_shared() -> Result<Prepared> {
    let jars = jars()?;
    let folder = tempfile::Builder::new()
        .prefix("dropgate-kafka-")
        .tempdir()?;
    let (client, controller) = (Port::reserve()?, Port::reserve()?);
    let listeners = [Listener::direct(client.number())];
    let conf = config(&listeners, controller.number(), folder.path(), &[]);
    std::fs::write(folder.path().join("server.properties"), conf)?;
    format(&jars, folder.path())?;
    let java = tools::find("java", &[])?.display().to_string();
    let properties = properties(folder.path());
    let mut command = vec![java];
    command.extend(java_args(&jars, &["kafka.Kafka", &properties]));
    Ok(Prepared {
        folder: folder.keep(),
        command,
        signal: "KILL",
        port: client.number(),
    })
}

/// Asks the broker for its metadata (request 3, version 1, no topics) and looks whether it names
/// itself with the port that it should advertise: the broker takes requests only when it is up.
fn answers(port: u16, advertised: u16) -> Result<()> {
    const METADATA_V1_NO_TOPICS: &[u8] = b"\0\0\0\x0e\0\x03\0\x01\0\0\0\x01\xff\xff\0\0\0\0";
    let bound = Duration::from_secs(5);
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, bound)?;
    stream.set_read_timeout(Some(bound))?;
    stream.write_all(METADATA_V1_NO_TOPICS)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u32::from_be_bytes(length).min(1 << 16) as usize];
    stream.read_exact(&mut answer)?;
    // correlation id, then the brokers: a count, and each with id, host and port.
    let mut expected = b"\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\x09127.0.0.1".to_vec();
    expected.extend(u32::from(advertised).to_be_bytes());
    if !answer.starts_with(&expected) {
        bail!("the broker answers, but does not name itself yet");
    }
    Ok(())
}
