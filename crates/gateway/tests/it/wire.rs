//! A small HTTP/1.1 client that shows what is on the wire: connections, headers, closes.

use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// How long anything may take before it counts as hanging.
pub const BOUND: Duration = Duration::from_secs(60);

/// An answer.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Value,
}

impl Reply {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or("")
    }

    /// The status and, of a problem, its code.
    pub fn said(&self) -> (u16, &str) {
        (self.status, self.code())
    }
}

/// One connection.
pub struct Connection(BufReader<TcpStream>);

impl Connection {
    pub async fn open(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.expect("connect");
        stream.set_nodelay(true).expect("nodelay");
        Self(BufReader::new(stream))
    }

    /// Sends a request and reads its answer.
    pub async fn send(
        &mut self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &[u8],
    ) -> Reply {
        let mut text = format!("{method} {path} HTTP/1.1\r\nhost: test\r\n");
        for (name, value) in headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if method == "POST" || !body.is_empty() {
            text.push_str(&format!("content-length: {}\r\n", body.len()));
        }
        text.push_str("\r\n");
        let mut request = text.into_bytes();
        request.extend_from_slice(body);
        self.raw(&request).await
    }

    /// Sends bytes as they are and reads one answer.
    pub async fn raw(&mut self, request: &[u8]) -> Reply {
        let exchange = async {
            self.0.get_mut().write_all(request).await.expect("write");
            self.read().await
        };
        tokio::time::timeout(BOUND, exchange)
            .await
            .expect("no answer")
    }

    async fn read(&mut self) -> Reply {
        let status = self.line().await;
        let status = status.split(' ').nth(1).and_then(|s| s.parse().ok());
        let mut headers = Vec::new();
        loop {
            let line = self.line().await;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            headers.push((name.to_owned(), value.trim().to_owned()));
        }
        let length = headers
            .iter()
            .find(|(n, _)| n.eq_ignore_ascii_case("content-length"));
        let length = length.map_or(0, |(_, v)| v.parse().expect("a length"));
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).await.expect("body");
        Reply {
            status: status.expect("a status"),
            headers,
            body: serde_json::from_slice(&body).unwrap_or(Value::Null),
        }
    }

    async fn line(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).await.expect("head");
        line.trim_end().to_owned()
    }

    /// Whether the server has closed its side, or does so within the bound.
    pub async fn is_closed(&mut self) -> bool {
        let mut byte = [0];
        matches!(
            tokio::time::timeout(BOUND, self.0.read(&mut byte)).await,
            Ok(Ok(0) | Err(_))
        )
    }
}

/// One request on a connection of its own.
pub async fn call(
    addr: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Reply {
    Connection::open(addr)
        .await
        .send(method, path, headers, body)
        .await
}
