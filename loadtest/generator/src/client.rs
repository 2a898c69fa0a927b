//! One keep-alive connection to one target, from one source address.

use std::error::Error as _;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{LOCATION, RETRY_AFTER};
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use nix::errno::Errno;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinHandle;

use crate::outcome::{Answer, Broken};
use crate::target::Target;

/// The largest answer that is read, in bytes. The API's are a few hundred.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// The buffer of a connection, in bytes: thousands are open in a spike.
const BUFFER_BYTES_MAX: usize = 16 * 1024;

/// The request of the API: short, held in memory.
pub type Req = Request<Full<Bytes>>;

/// A place for one connection: opened when needed, kept while it is good.
#[derive(Debug)]
pub struct Link {
    target: Arc<Target>,
    source: Option<Ipv4Addr>,
    open: Option<Open>,
    opened: u64,
    unreachable: bool,
}

/// An open connection and the task that drives it; dropping it closes both.
#[derive(Debug)]
struct Open {
    sender: SendRequest<Full<Bytes>>,
    driver: JoinHandle<()>,
    used: bool,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Link {
    /// A link that opens its connection with the first request. `source` is
    /// ignored for IPv6, where loopback is one address.
    #[must_use]
    pub fn new(target: Arc<Target>, source: Ipv4Addr) -> Self {
        let source = target.addr.is_ipv4().then_some(source);
        Self {
            target,
            source,
            open: None,
            opened: 0,
            unreachable: false,
        }
    }

    /// Where this link leads.
    #[must_use]
    pub fn target(&self) -> &Arc<Target> {
        &self.target
    }

    /// Leads to another target from now on, by a new connection.
    pub fn turn_to(&mut self, target: Arc<Target>) {
        self.open = None;
        self.source = self.source.filter(|_| target.addr.is_ipv4());
        self.target = target;
    }

    /// How many connections this link has opened.
    #[must_use]
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// Whether a try to open a connection has failed since this was last asked.
    pub fn take_unreachable(&mut self) -> bool {
        std::mem::take(&mut self.unreachable)
    }

    /// Whether a connection is held open.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Sends a request and reads the whole answer, within `limit`.
    ///
    /// A kept connection that turns out to be closed before the request was
    /// written is opened anew, once; that is no error, for nothing was sent.
    ///
    /// Not cancel safe: a dropped call may leave a request without its answer,
    /// so drop the link too.
    ///
    /// # Errors
    /// How the exchange broke; the connection is then closed.
    pub async fn exchange(&mut self, request: Req, limit: Duration) -> Result<Answer, Broken> {
        let result = match tokio::time::timeout(limit, self.try_exchange(request)).await {
            Ok(result) => result,
            Err(_elapsed) => Err(Broken::Timeout),
        };
        if result.is_err() {
            self.open = None;
        }
        result
    }

    async fn try_exchange(&mut self, request: Req) -> Result<Answer, Broken> {
        let response = match self.send(request).await? {
            Sent::Answered(response) => response,
            Sent::Stale(request) => match self.send(request).await? {
                Sent::Answered(response) => response,
                Sent::Stale(_) => return Err(Broken::Closed),
            },
        };
        read(response).await
    }

    async fn send(&mut self, request: Req) -> Result<Sent, Broken> {
        let open = self.ready().await?;
        let used = std::mem::replace(&mut open.used, true);
        match open.sender.try_send_request(request).await {
            Ok(response) => Ok(Sent::Answered(response)),
            Err(mut failed) => {
                let unsent = failed.take_message();
                let broken = of_hyper(failed.error());
                self.open = None;
                match unsent {
                    Some(request) if used => Ok(Sent::Stale(request)),
                    _ => Err(broken),
                }
            }
        }
    }

    /// The connection, good for a request as far as this side knows.
    async fn ready(&mut self) -> Result<&mut Open, Broken> {
        let good = match &mut self.open {
            Some(open) => open.sender.ready().await.is_ok(),
            None => false,
        };
        if !good {
            self.open = None;
        }
        if self.open.is_none() {
            // Stays so when the time limit ends the try.
            self.unreachable = true;
            let stream = connect(self.target.addr, self.source)
                .await
                .map_err(|error| of_io(&error))?;
            let (sender, connection) = http1::Builder::new()
                .max_buf_size(BUFFER_BYTES_MAX)
                .handshake(TokioIo::new(stream))
                .await
                .map_err(|error| of_hyper(&error))?;
            // Its errors come back through the sender.
            let driver = tokio::spawn(async move { drop(connection.await) });
            self.opened += 1;
            self.unreachable = false;
            self.open = Some(Open {
                sender,
                driver,
                used: false,
            });
        }
        self.open.as_mut().ok_or(Broken::Other)
    }
}

enum Sent {
    Answered(Response<Incoming>),
    /// The kept connection was closed before the request was written.
    Stale(Req),
}

/// Opens a connection from a given source address. The port is chosen when the
/// connection is made, not when the address is bound, so that one port serves
/// several targets and one waiting to be freed does not count.
async fn connect(addr: SocketAddr, source: Option<Ipv4Addr>) -> io::Result<TcpStream> {
    let socket = match addr {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if let Some(source) = source {
        setsockopt(&socket, sockopt::IpBindAddressNoPort, &true)?;
        socket.bind(SocketAddr::new(IpAddr::V4(source), 0))?;
    }
    socket.set_nodelay(true)?;
    socket.connect(addr).await
}

async fn read(response: Response<Incoming>) -> Result<Answer, Broken> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(|error| match error.downcast_ref::<hyper::Error>() {
            Some(error) => of_hyper(error),
            None => Broken::NotHttp,
        })?
        .to_bytes();
    Ok(Answer {
        status: head.status.as_u16(),
        location: text(&head.headers, &LOCATION).map(str::to_owned),
        retry_after: text(&head.headers, &RETRY_AFTER)
            .and_then(|seconds| seconds.trim().parse().ok())
            .map(Duration::from_secs),
        body: serde_json::from_slice(&body).ok(),
    })
}

fn text<'h>(headers: &'h HeaderMap, name: &hyper::header::HeaderName) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn of_io(error: &io::Error) -> Broken {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Broken::Refused,
        io::ErrorKind::ConnectionReset
        | io::ErrorKind::ConnectionAborted
        | io::ErrorKind::BrokenPipe => Broken::Reset,
        io::ErrorKind::TimedOut => Broken::Timeout,
        io::ErrorKind::UnexpectedEof => Broken::Closed,
        io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse => Broken::Exhausted,
        _ => match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EMFILE | Errno::ENFILE | Errno::ENOBUFS | Errno::ENOMEM) => {
                Broken::Exhausted
            }
            _ => Broken::Other,
        },
    }
}

fn of_hyper(error: &hyper::Error) -> Broken {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<io::Error>() {
            return of_io(error);
        }
        source = cause.source();
    }
    if error.is_parse() || error.is_parse_too_large() {
        Broken::NotHttp
    } else if error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        Broken::Closed
    } else {
        Broken::Other
    }
}
