//! A TCP proxy that counts, cuts, swallows and delays.
//!
//! It runs on one thread of its own with its own single-threaded runtime: a test may block its own
//! threads as it likes, and a change of mode is one step among the others of that thread. So when
//! [`Proxy::cut`] returns, not one byte more will pass.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener as StdListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::ports::Port;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flow {
    /// Bytes pass.
    Open,
    /// No connection: what was open is closed, what comes is refused.
    Cut,
    /// Connections stay and come, and nothing passes in either direction.
    Blackhole,
    /// Requests pass, replies are thrown away.
    SwallowReplies,
}

#[derive(Clone, Copy, Debug)]
struct Mode {
    flow: Flow,
    delay: Duration,
    /// Goes up with every cut: a connection from before one never passes a byte again.
    cuts: u64,
}

#[derive(Debug, Default)]
struct Counts {
    to_server: AtomicU64,
    to_client: AtomicU64,
    connections: AtomicU64,
}

type Change = (
    Box<dyn FnOnce(&mut Mode) + Send>,
    std::sync::mpsc::SyncSender<()>,
);

/// A proxy on a port of its own in front of a server on this machine.
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    changes: Option<mpsc::Sender<Change>>,
    counts: Arc<Counts>,
    thread: Option<JoinHandle<()>>,
}

impl Proxy {
    /// Starts a proxy in front of a loopback port, on which nobody needs to listen yet.
    ///
    /// # Errors
    /// When there is no port or no thread for it.
    pub fn start(upstream: u16) -> Result<Self> {
        Self::launch(upstream, None)
    }

    /// Starts a proxy that does to the connections from one address nothing but pass them on: the
    /// servers behind proxies talk to each other that way while their clients are cut. It does not
    /// count them either. While it is [cut](Self::cut), others are taken and closed at once, not
    /// refused.
    ///
    /// # Errors
    /// When there is no port or no thread for it.
    pub fn start_sparing(upstream: u16, spared: Ipv4Addr) -> Result<Self> {
        Self::launch(upstream, Some(spared.into()))
    }

    fn launch(upstream: u16, spared: Option<IpAddr>) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (port, listener) = port_with_listener()?;
        let (changes, requests) = mpsc::channel(8);
        let counts = Arc::new(Counts::default());
        let acceptor = Acceptor {
            port: port.number(),
            upstream,
            spared,
            counts: Arc::clone(&counts),
        };
        let thread = std::thread::Builder::new()
            .name("testkit-proxy".into())
            .spawn(move || runtime.block_on(acceptor.run(listener, requests)))?;
        Ok(Self {
            port,
            changes: Some(changes),
            counts,
            thread: Some(thread),
        })
    }

    /// The port to connect to.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// Closes all connections and refuses new ones.
    ///
    /// # Errors
    /// When the proxy's thread is gone.
    pub fn cut(&self) -> Result<()> {
        self.change(|mode| {
            mode.flow = Flow::Cut;
            mode.cuts += 1;
        })
    }

    /// Keeps connections and takes new ones, and lets nothing pass, as a network that drops packets.
    ///
    /// # Errors
    /// When the proxy's thread is gone.
    pub fn blackhole(&self) -> Result<()> {
        self.change(|mode| mode.flow = Flow::Blackhole)
    }

    /// Lets requests pass and throws the replies away: the server acts, the client never knows.
    ///
    /// # Errors
    /// When the proxy's thread is gone.
    pub fn swallow_replies(&self) -> Result<()> {
        self.change(|mode| mode.flow = Flow::SwallowReplies)
    }

    /// Lets everything pass again, without delay.
    ///
    /// # Errors
    /// When the proxy's thread is gone.
    pub fn heal(&self) -> Result<()> {
        self.change(|mode| {
            mode.flow = Flow::Open;
            mode.delay = Duration::ZERO;
        })
    }

    /// Holds back every piece by this much, in each direction.
    ///
    /// # Errors
    /// When the proxy's thread is gone.
    pub fn delay(&self, delay: Duration) -> Result<()> {
        self.change(move |mode| mode.delay = delay)
    }

    /// Bytes that reached the server so far.
    #[must_use]
    pub fn bytes_to_server(&self) -> u64 {
        self.counts.to_server.load(Ordering::SeqCst)
    }

    /// Bytes that reached clients so far.
    #[must_use]
    pub fn bytes_to_client(&self) -> u64 {
        self.counts.to_client.load(Ordering::SeqCst)
    }

    /// Connections taken so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.counts.connections.load(Ordering::SeqCst)
    }

    fn change(&self, change: impl FnOnce(&mut Mode) + Send + 'static) -> Result<()> {
        let gone = || anyhow!("the proxy's thread is gone");
        let (done, wait) = std::sync::mpsc::sync_channel(1);
        let changes = self.changes.as_ref().ok_or_else(gone)?;
        let mut request: Change = (Box::new(change), done);
        // Not `blocking_send`: that panics inside a runtime, and tests call this from everywhere.
        while let Err(error) = changes.try_send(request) {
            match error {
                mpsc::error::TrySendError::Full(back) => request = back,
                mpsc::error::TrySendError::Closed(_) => return Err(gone()),
            }
            std::thread::yield_now();
        }
        // It answers in microseconds, so this is no longer a block than any lock.
        wait.recv().map_err(|_| gone())
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        // The thread ends when nobody can ask it for changes any more.
        drop(self.changes.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A port, and the listener on it. Somebody may bind a port between our look and our listening.
fn port_with_listener() -> Result<(Port, StdListener)> {
    let mut tries = 0;
    loop {
        let port = Port::reserve()?;
        match listen(port.number()) {
            Ok(listener) => return Ok((port, listener)),
            Err(error) if tries == 4 => return Err(error).context("listening for a proxy"),
            Err(_) => tries += 1,
        }
    }
}

fn listen(port: u16) -> std::io::Result<StdListener> {
    let listener = StdListener::bind((Ipv4Addr::LOCALHOST, port))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

struct Acceptor {
    port: u16,
    upstream: u16,
    spared: Option<IpAddr>,
    counts: Arc<Counts>,
}

impl Acceptor {
    async fn run(self, listener: StdListener, mut requests: mpsc::Receiver<Change>) {
        let open = Mode {
            flow: Flow::Open,
            delay: Duration::ZERO,
            cuts: 0,
        };
        let (modes, _) = watch::channel(open);
        let (free, _) = watch::channel(open);
        let mut listener = TcpListener::from_std(listener).ok();
        loop {
            tokio::select! {
                biased;
                request = requests.recv() => {
                    let Some((change, done)) = request else { return };
                    modes.send_modify(change);
                    if modes.borrow().flow == Flow::Cut {
                        if self.spared.is_none() {
                            listener = None;
                        }
                    } else if listener.is_none() {
                        listener = self.listen_again().await;
                    }
                    let _ = done.send(());
                }
                client = accept(listener.as_ref()) => {
                    let Ok(client) = client else { continue };
                    let from = client.peer_addr().ok().map(|address| address.ip());
                    if from.is_some() && from == self.spared {
                        let uncounted = Arc::new(Counts::default());
                        tokio::spawn(connection(client, self.upstream, uncounted, free.subscribe()));
                        continue;
                    }
                    if modes.borrow().flow == Flow::Cut {
                        continue;
                    }
                    self.counts.connections.fetch_add(1, Ordering::SeqCst);
                    let (counts, modes) = (Arc::clone(&self.counts), modes.subscribe());
                    tokio::spawn(connection(client, self.upstream, counts, modes));
                }
            }
        }
    }

    /// The port is reserved, so at most a connection in its last throes is in the way.
    async fn listen_again(&self) -> Option<TcpListener> {
        for _ in 0..1000 {
            match listen(self.port).and_then(TcpListener::from_std) {
                Ok(listener) => return Some(listener),
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
        tracing::error!(port = self.port, "a proxy could not listen again");
        None
    }
}

async fn accept(listener: Option<&TcpListener>) -> std::io::Result<TcpStream> {
    match listener {
        Some(listener) => listener.accept().await.map(|(stream, _)| stream),
        None => std::future::pending().await,
    }
}

async fn connection(
    client: TcpStream,
    upstream: u16,
    counts: Arc<Counts>,
    mut modes: watch::Receiver<Mode>,
) {
    let born = modes.borrow().cuts;
    if pass(&mut modes, born).await.is_none() {
        return;
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, upstream));
    let Ok(server) = TcpStream::connect(address).await else {
        return;
    };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let up = pump(
        (from_client, to_server, modes.clone(), born),
        false,
        &counts.to_server,
    );
    let down = pump(
        (from_server, to_client, modes, born),
        true,
        &counts.to_client,
    );
    tokio::join!(up, down);
}

/// Waits until bytes may pass; `None` when this connection has been cut.
async fn pass(modes: &mut watch::Receiver<Mode>, born: u64) -> Option<Mode> {
    let allowed = |mode: &Mode| mode.cuts != born || mode.flow != Flow::Blackhole;
    let mode = *modes.wait_for(allowed).await.ok()?;
    (mode.cuts == born).then_some(mode)
}

type Ends = (OwnedReadHalf, OwnedWriteHalf, watch::Receiver<Mode>, u64);

/// Copies one direction until an end closes or the connection is cut. There is no await between
/// the look at the mode and the write, so nothing passes after a change.
async fn pump((from, to, mut modes, born): Ends, replies: bool, count: &AtomicU64) {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let Some(_) = pass(&mut modes, born).await else {
            return;
        };
        tokio::select! {
            biased;
            changed = modes.changed() => if changed.is_err() { return } else { continue },
            ready = from.readable() => if ready.is_err() { return },
        }
        let length = match from.try_read(&mut buffer) {
            Ok(0) => return,
            Ok(length) => length,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => return,
        };
        let delay = modes.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        let mut rest = &buffer[..length];
        while !rest.is_empty() {
            let Some(mode) = pass(&mut modes, born).await else {
                return;
            };
            if replies && mode.flow == Flow::SwallowReplies {
                break;
            }
            // Counted first: who has an answer in hand must find its bytes counted.
            count.fetch_add(rest.len() as u64, Ordering::SeqCst);
            let result = to.try_write(rest);
            let written = *result.as_ref().unwrap_or(&0);
            count.fetch_sub((rest.len() - written) as u64, Ordering::SeqCst);
            match result {
                Ok(written) => rest = &rest[written..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    tokio::select! {
                        biased;
                        changed = modes.changed() => if changed.is_err() { return },
                        ready = to.writable() => if ready.is_err() { return },
                    }
                }
                Err(_) => return,
            }
        }
    }
}
