//! One GET over HTTP/1.1: enough to ask a service whether it is ready.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result};

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// The status code.
    pub status: u16,
    /// The body, as text.
    pub body: String,
}

/// GETs a path from a loopback port, waiting at most 5 seconds for each step.
///
/// # Errors
/// When nobody answers, or not in HTTP.
pub fn get(port: u16, path: &str) -> Result<Response> {
    request(port, "GET", path, &[], "", Duration::from_secs(5))
}

/// Asks a loopback port, waiting at most `bound` for each step.
///
/// # Errors
/// When nobody answers, or not in HTTP.
pub fn request(
    port: u16,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &str,
    bound: Duration,
) -> Result<Response> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, bound)
        .with_context(|| format!("connecting to {address}"))?;
    stream.set_read_timeout(Some(bound))?;
    stream.set_write_timeout(Some(bound))?;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n");
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let length = body.len();
    head.push_str(&format!(
        "Content-Length: {length}\r\nConnection: close\r\n\r\n"
    ));
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut answer = Vec::new();
    stream
        .take(16 << 20)
        .read_to_end(&mut answer)
        .with_context(|| format!("reading the answer of {address}{path}"))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").context("an HTTP head")?;
    let status = head
        .split_whitespace()
        .nth(1)
        .and_then(|code| code.parse().ok())
        .with_context(|| format!("a status in {head:?}"))?;
    Ok(Response {
        status,
        body: body.to_owned(),
    })
}
