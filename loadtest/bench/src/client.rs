//! A client that keeps its connections.

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::net::TcpStream;

/// Signs a token for each new user.
#[derive(Clone)]
pub struct Tokens {
    key: Arc<EncodingKey>,
    users: Arc<AtomicUsize>,
}

impl Tokens {
    pub fn new(secret: &[u8]) -> Result<Self> {
        Ok(Self {
            key: Arc::new(EncodingKey::from_secret(secret.trim_ascii())?),
            users: Arc::default(),
        })
    }

    fn next(&self) -> Result<String> {
        let mut header = Header::new(Algorithm::HS256);
        header.typ = Some("dropgate-user+jwt".to_owned());
        header.kid = Some(dropgate_testkit::stack::TOKEN_KID.to_owned());
        let user = self.users.fetch_add(1, Ordering::Relaxed);
        let expires = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs() + 3600;
        let claims = serde_json::json!({
            "sub": format!("bench-{user}"), "aud": "dropgate", "exp": expires,
        });
        Ok(jsonwebtoken::encode(&header, &claims, &self.key)?)
    }
}

/// Claims of ever new users at one path.
pub struct Client {
    port: u16,
    path: &'static str,
    tokens: Tokens,
}

impl Client {
    pub fn new(port: u16, path: &'static str, tokens: Tokens) -> Self {
        Self { port, path, tokens }
    }

    pub fn tokens(&self) -> Tokens {
        self.tokens.clone()
    }

    /// So many wins on one connection; the time of each.
    pub async fn one_after_the_other(&self, count: usize) -> Result<Vec<Duration>> {
        let mut connection = self.connect().await?;
        let mut times = Vec::with_capacity(count);
        for _ in 0..count {
            let request = self.request()?;
            let begun = Instant::now();
            win(&mut connection, request).await?;
            times.push(begun.elapsed());
        }
        Ok(times)
    }

    /// So many wins, `at_once` of them in flight.
    pub async fn in_flight(&self, count: usize, at_once: usize) -> Result<()> {
        let left = AtomicUsize::new(count);
        let take = || {
            let took =
                left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
            took.is_ok()
        };
        let clients = (0..at_once).map(|_| async {
            let mut connection = self.connect().await?;
            while take() {
                win(&mut connection, self.request()?).await?;
            }
            anyhow::Ok(())
        });
        futures::future::try_join_all(clients).await?;
        Ok(())
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>> {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // Ends with its sender.
        tokio::spawn(connection);
        Ok(sender)
    }

    fn request(&self) -> Result<Request<Full<Bytes>>> {
        Request::post(self.path)
            .header(header::HOST, "127.0.0.1")
            .header(
                header::AUTHORIZATION,
                format!("Bearer {}", self.tokens.next()?),
            )
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from_static(b"{}")))
            .context("a request")
    }
}

async fn win(
    connection: &mut SendRequest<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> Result<()> {
    connection.ready().await?;
    let response = connection.send_request(request).await?;
    let status = response.status();
    let body = response.into_body().collect().await?.to_bytes();
    ensure!(
        status == 201,
        "a claim is answered {status}: {}",
        String::from_utf8_lossy(&body)
    );
    Ok(())
}
