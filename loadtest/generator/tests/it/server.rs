//! A server that answers by a script, and remembers what it was asked.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::generator::SECRET;

/// A request, as the script sees it.
#[derive(Debug, Clone)]
pub struct Asked {
    pub user: String,
    pub poll: bool,
    pub path: String,
    pub key: Option<String>,
    /// How many requests this user had made before.
    pub before: usize,
    pub at: Instant,
    pub peer: IpAddr,
}

pub enum Reply {
    /// Status, extra header, body.
    Answer(u16, Option<(&'static str, String)>, String),
    /// Close the connection by a reset.
    Reset,
    /// Say nothing for so long, then reset.
    Hang(Duration),
}

pub fn answer(status: u16, body: impl Into<String>) -> Reply {
    Reply::Answer(status, None, body.into())
}

pub fn retry_after(seconds: u64, status: u16, body: &str) -> Reply {
    Reply::Answer(
        status,
        Some(("retry-after", seconds.to_string())),
        body.to_owned(),
    )
}

/// 202 with a Location of this user's claim.
pub fn pending(asked: &Asked) -> Reply {
    let location = format!("/v1/sales/s1/claims/of-{}", asked.user);
    Reply::Answer(
        202,
        Some(("location", location)),
        r#"{"status":"pending"}"#.to_owned(),
    )
}

/// A win whose claim and unit come from the user's number.
pub fn win_of(asked: &Asked, status: u16) -> Reply {
    let unit = asked
        .user
        .trim_start_matches("user-")
        .parse::<u64>()
        .unwrap()
        + 1;
    win(status, &format!("1-{unit}-ab"), unit)
}

pub fn win(status: u16, claim: &str, unit: u64) -> Reply {
    answer(
        status,
        format!(r#"{{"claim":"{claim}","unit":{unit},"status":"won"}}"#),
    )
}

pub const SOLD_OUT: &str = r#"{"status":409,"code":"sold_out","title":"Sold out"}"#;

type Script = dyn Fn(&Asked) -> Reply + Send + Sync;

#[derive(Default)]
struct Seen {
    asked: Vec<Asked>,
    of_user: HashMap<String, usize>,
    connections: u64,
}

pub struct Server {
    addr: SocketAddr,
    seen: Arc<Mutex<Seen>>,
    /// Its tasks end with it.
    _runtime: Runtime,
}

impl Server {
    pub fn start(script: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime
            .block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))
            .unwrap();
        let addr = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Seen::default()));
        let script: Arc<Script> = Arc::new(script);
        runtime.spawn(accept(listener, script, Arc::clone(&seen)));
        Self {
            addr,
            seen,
            _runtime: runtime,
        }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.seen.lock().unwrap().asked.clone()
    }

    pub fn connections(&self) -> u64 {
        self.seen.lock().unwrap().connections
    }
}

async fn accept(listener: TcpListener, script: Arc<Script>, seen: Arc<Mutex<Seen>>) {
    while let Ok((stream, peer)) = listener.accept().await {
        seen.lock().unwrap().connections += 1;
        let (script, seen) = (Arc::clone(&script), Arc::clone(&seen));
        tokio::spawn(connection(stream, peer.ip(), script, seen));
    }
}

async fn connection(stream: TcpStream, peer: IpAddr, script: Arc<Script>, seen: Arc<Mutex<Seen>>) {
    // Closing sends a reset.
    stream.set_zero_linger().unwrap();
    let service = service_fn(|request| serve(request, peer, Arc::clone(&script), &seen));
    let _ = http1::Builder::new()
        .serve_connection(TokioIo::new(stream), service)
        .await;
}

async fn serve(
    request: Request<Incoming>,
    peer: IpAddr,
    script: Arc<Script>,
    seen: &Mutex<Seen>,
) -> io::Result<Response<Full<Bytes>>> {
    let asked = read(request, peer, seen).await;
    match script(&asked) {
        Reply::Answer(status, header, body) => {
            let mut response = Response::builder().status(status);
            if let Some((name, value)) = header {
                response = response.header(name, value);
            }
            Ok(response.body(Full::new(Bytes::from(body))).unwrap())
        }
        Reply::Reset => Err(io::ErrorKind::ConnectionReset.into()),
        Reply::Hang(time) => {
            tokio::time::sleep(time).await;
            Err(io::ErrorKind::TimedOut.into())
        }
    }
}

/// Reads a request as the API has it; anything else is a broken generator.
async fn read(request: Request<Incoming>, peer: IpAddr, seen: &Mutex<Seen>) -> Asked {
    let header = |name: &str| {
        let value = request.headers().get(name)?;
        Some(value.to_str().unwrap().to_owned())
    };
    let bearer = header("authorization").unwrap();
    let token = bearer.strip_prefix("Bearer ").unwrap();
    let mut validation = Validation::new(Algorithm::HS256);
    validation.set_audience(&["dropgate"]);
    let secret = DecodingKey::from_secret(SECRET.as_bytes()).unwrap();
    let token = jsonwebtoken::decode::<Value>(token, &secret, &validation).unwrap();
    assert_eq!(token.header.typ.as_deref(), Some("dropgate-user+jwt"));
    let user = token.claims["sub"].as_str().unwrap().to_owned();
    assert!(header("host").is_some());
    let poll = *request.method() == Method::GET;
    let (path, key) = (request.uri().path().to_owned(), header("idempotency-key"));
    if !poll {
        assert_eq!(*request.method(), Method::POST);
        assert_eq!(path, "/v1/sales/s1/claims");
        assert_eq!(header("content-type").as_deref(), Some("application/json"));
    }
    let body = request.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&body[..], if poll { &b""[..] } else { b"{}" });
    let mut seen = seen.lock().unwrap();
    let before = seen.of_user.entry(user.clone()).or_default();
    let asked = Asked {
        user,
        poll,
        path,
        key,
        before: *before,
        at: Instant::now(),
        peer,
    };
    *before += 1;
    seen.asked.push(asked.clone());
    asked
}
