//! A handler that only ever says "sold out": the cheapest server that speaks
//! the API, to measure the generator with.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::JoinSet;

const BODY: &[u8] = br#"{"type":"about:blank","title":"Sold out","status":409,"code":"sold_out"}"#;
const PROBLEM: HeaderValue = HeaderValue::from_static("application/problem+json");
/// Connections that wait to be accepted, as of the real gateways.
const BACKLOG: u32 = 4096;
/// Connections served at once; more wait.
const CONNECTIONS_MAX: usize = 16_384;
/// The pause after a failed accept: the usual cause is a lack of descriptors.
const ACCEPT_REST: Duration = Duration::from_millis(10);

/// Listens on a loopback port, 0 for any free one.
///
/// # Errors
/// When the port is taken.
pub fn listen(port: u16) -> io::Result<TcpListener> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))?;
    socket.listen(BACKLOG)
}

/// Serves for ever. Cancelled, it closes all connections.
pub async fn serve(listener: TcpListener) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        // The semaphore is never closed.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else {
            return;
        };
        tokio::select! {
            biased;
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(async move {
                        let _place = place;
                        connection(stream).await;
                    });
                }
                Err(_) => tokio::time::sleep(ACCEPT_REST).await,
            },
            Some(_ended) = connections.join_next() => {}
        }
    }
}

async fn connection(stream: TcpStream) {
    let _ = stream.set_nodelay(true);
    // A client that breaks off is no concern of this side.
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .await;
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    // An unread body would close the connection.
    let _ = request.into_body().collect().await;
    let mut response = Response::new(Full::new(Bytes::from_static(BODY)));
    *response.status_mut() = StatusCode::CONFLICT;
    response.headers_mut().insert(CONTENT_TYPE, PROBLEM);
    Ok(response)
}

/// The handler on a thread of this process, until it is dropped.
#[derive(Debug)]
pub struct StaticTarget {
    addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl StaticTarget {
    /// Starts it on a free port.
    ///
    /// # Errors
    /// When it cannot listen or has no thread.
    pub fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let listener = {
            let _inside = runtime.enter();
            listen(0)?
        };
        let addr = listener.local_addr()?;
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("static-target".to_owned())
            .spawn(move || {
                runtime.block_on(async {
                    tokio::select! {
                        () = serve(listener) => {}
                        _ = stopped => {}
                    }
                });
            })?;
        Ok(Self {
            addr,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Its base URL.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for StaticTarget {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
