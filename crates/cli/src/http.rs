//! A client of the admin API and of operators' ports: one call, one connection.

use anyhow::{Context, bail};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::rt::TokioIo;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use std::time::Duration;
use tokio::net::TcpStream;

/// The largest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

/// What the URL of a port for operators must be.
pub const URL_EXPECTED: &str = "http://host:port";

/// Where the admin API is, and with which key.
pub struct Api {
    base: Base,
    key: Option<HeaderValue>,
    timeout: Duration,
}

/// `http://host:port/prefix`, taken apart.
#[derive(Debug, PartialEq, Eq)]
struct Base {
    host: String,
    port: u16,
    authority: String,
    prefix: String,
}

/// An answer with a JSON body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub body: Value,
}

/// A URL of a port for operators, as it is given.
pub fn url(text: &str) -> Result<String, String> {
    match Base::parse(text) {
        Ok(_) => Ok(text.trim_end_matches('/').to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

impl Base {
    fn parse(url: &str) -> anyhow::Result<Self> {
        let uri: Uri = url.parse().context(URL_EXPECTED)?;
        let (Some("http"), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            bail!("{URL_EXPECTED}");
        };
        if authority.as_str().contains('@') || uri.query().is_some() {
            bail!("{URL_EXPECTED}, without user or query");
        }
        Ok(Self {
            host: authority.host().trim_matches(['[', ']']).to_owned(),
            port: authority.port_u16().unwrap_or(80),
            authority: authority.to_string(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
        })
    }
}

impl Api {
    pub fn new(url: &str, key: Option<&SecretString>, timeout: Duration) -> anyhow::Result<Self> {
        Ok(Self {
            base: Base::parse(url)?,
            key: key.map(bearer).transpose()?,
            timeout,
        })
    }

    /// Where it is, for people.
    pub fn url(&self) -> String {
        format!("http://{}{}", self.base.authority, self.base.prefix)
    }

    /// Asks for `path`, which changes nothing.
    pub async fn get(&self, path: &str) -> anyhow::Result<Answer> {
        match tokio::time::timeout(self.timeout, self.exchange(Method::GET, path, None)).await {
            Ok(answer) => answer,
            Err(_) => bail!(
                "no answer within {}",
                humantime::format_duration(self.timeout)
            ),
        }
    }

    /// Calls `path` of the API, with a JSON body if one is given.
    ///
    /// Not cancel safe: a call that is dropped, or runs out of time, may have been carried out.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        let authority = &self.base.authority;
        match tokio::time::timeout(self.timeout, self.exchange(method, path, body)).await {
            Ok(answer) => answer.with_context(|| format!("no answer from http://{authority}")),
            Err(_) => bail!(
                "no answer from http://{authority} within {}; the command may have been carried \
                 out, and may be given again",
                humantime::format_duration(self.timeout)
            ),
        }
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> anyhow::Result<Answer> {
        let Base { host, port, .. } = &self.base;
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        let mut request = Request::builder()
            .method(method)
            .uri(format!("{}{path}", self.base.prefix))
            .header(HOST, &self.base.authority)
            .header(CONTENT_TYPE, "application/json");
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key);
        }
        let request = request.body(Full::new(Bytes::from(
            body.map(Value::to_string).unwrap_or_default(),
        )))?;
        let answer = async {
            let response = sender.send_request(request).await?;
            let status = response.status().as_u16();
            let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
                .collect()
                .await;
            let body = body.map_err(|error| anyhow::anyhow!(error))?.to_bytes();
            let body = serde_json::from_slice(&body)
                .with_context(|| format!("status {status}, and not the admin API's answer"))?;
            Ok(Answer { status, body })
        };
        // The connection moves only while it is polled; its errors come back through the sender.
        let driver = async {
            let _ = connection.await;
            std::future::pending().await
        };
        tokio::select! {
            answer = answer => answer,
            never = driver => never,
        }
    }
}

fn bearer(key: &SecretString) -> anyhow::Result<HeaderValue> {
    // The error would show the value.
    let Ok(mut key) = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret())) else {
        bail!("the admin key has characters that no key has");
    };
    key.set_sensitive(true);
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        let base = Base::parse("http://[::1]:8081/dropgate/").unwrap();
        assert_eq!(base.host, "::1");
        assert_eq!(base.port, 8081);
        assert_eq!(base.authority, "[::1]:8081");
        assert_eq!(base.prefix, "/dropgate");
        assert_eq!(Base::parse("http://h").unwrap().port, 80);
        for bad in [
            "",
            "h:1",
            "https://h",
            "http://u:p@h",
            "http://h/?x=1",
            "ftp://h",
        ] {
            assert!(Base::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_key_that_cannot_be_sent_is_not_shown() {
        let key = SecretString::from("hunter2\n");
        let Err(error) = Api::new("http://h", Some(&key), Duration::from_secs(1)) else {
            panic!("accepted");
        };
        assert!(!format!("{error:#}").contains("hunter2"));
    }
}
