//! Users, one request after the other on a connection that is kept.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use dropgate_testkit::stack::{Settings, TOKEN_KID};
use dropgate_testkit::wait::{self, Seen};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

/// How long any answer may take before it counts as none.
pub const BOUND: Duration = Duration::from_secs(60);

pub fn now_ms() -> Result<u64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(u64::try_from(since.as_millis())?)
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Answer {
    pub status: u16,
    pub location: Option<String>,
    pub body: Value,
    /// From the first byte sent to the last one read.
    pub took: Duration,
}

impl Answer {
    /// A text of the body; empty when there is none.
    pub fn text(&self, field: &str) -> &str {
        self.body[field].as_str().unwrap_or_default()
    }

    pub fn code(&self) -> &str {
        self.text("code")
    }

    /// Status and code in one word, for counts: `201`, `503 halted`.
    pub fn kind(&self) -> String {
        format!("{} {}", self.status, self.code())
            .trim_end()
            .to_owned()
    }
}

/// One connection to a gateway, made anew when it breaks.
pub struct Client {
    port: u16,
    token_secret: EncodingKey,
    admin_key: String,
    connection: Option<BufReader<TcpStream>>,
}

impl Client {
    pub fn new(port: u16, settings: &Settings) -> Self {
        Self {
            port,
            token_secret: EncodingKey::from_secret(settings.token_secret().as_bytes()).unwrap(),
            admin_key: settings.admin_key.clone(),
            connection: None,
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A signed token of this user.
    fn token(&self, user: &str) -> Result<String> {
        let mut header = Header::new(Algorithm::HS256);
        header.typ = Some("dropgate-user+jwt".to_owned());
        header.kid = Some(TOKEN_KID.to_owned());
        let expires = now_ms()? / 1000 + 3600;
        let claims = json!({"sub": user, "aud": "dropgate", "exp": expires});
        Ok(jsonwebtoken::encode(&header, &claims, &self.token_secret)?)
    }

    /// Claims a unit for the user, whose key is always the same.
    pub fn claim(&mut self, sale: &str, user: &str) -> Result<Answer> {
        let headers = format!(
            "Authorization: Bearer {}\r\nIdempotency-Key: {}\r\n",
            self.token(user)?,
            key_of(user)
        );
        self.send("POST", &format!("/v1/sales/{sale}/claims"), &headers, "{}")
    }

    /// Claims a unit for the user, and does what a client does with an answer that is not final,
    /// until there is one that is.
    pub fn buy(&mut self, sale: &str, user: &str) -> Result<Answer> {
        let first = self.claim(sale, user)?;
        self.follow(sale, user, first)
    }

    /// The same from the answer on that the user was given first.
    pub fn follow(&mut self, sale: &str, user: &str, first: Answer) -> Result<Answer> {
        let mut answer = first;
        wait::until(&format!("{user}'s last answer"), wait::START, || {
            answer = match (&answer.location, answer.status, answer.text("status")) {
                (Some(claim), 202, _) => self.look_up(&claim.clone(), user)?,
                // A poll may be unavailable too; then the claim is made again, which is the same.
                (_, 503, _) | (_, _, "void") => self.claim(sale, user)?,
                _ => return Ok(Seen::Done(answer.clone())),
            };
            Ok(Seen::NotYet(format!("{answer:?}")))
        })
    }

    /// Claims until the answer is this refusal; until then there may be none but 503, as of a log
    /// that has not been read to its end yet.
    pub fn is_refused(&mut self, sale: &str, user: &str, kind: &str) -> Result<()> {
        wait::until(&format!("{user} to be refused"), wait::START, || {
            let answer = self.claim(sale, user)?;
            Ok(match (answer.status, answer.kind() == kind) {
                (_, true) => Seen::Done(()),
                (503, _) => Seen::NotYet(format!("{answer:?}")),
                _ => bail!("not refused: {answer:?}"),
            })
        })
    }

    /// Asks what became of a claim.
    pub fn look_up(&mut self, location: &str, user: &str) -> Result<Answer> {
        let headers = format!("Authorization: Bearer {}\r\n", self.token(user)?);
        self.send("GET", location, &headers, "")
    }

    /// The public state of a sale.
    pub fn state(&mut self, sale: &str) -> Result<Answer> {
        self.send("GET", &format!("/v1/sales/{sale}"), "", "")
    }

    /// A call of the admin API.
    pub fn admin(&mut self, method: &str, path: &str, body: &str) -> Result<Answer> {
        let headers = format!(
            "Authorization: Bearer {}\r\nContent-Type: application/json\r\n",
            self.admin_key
        );
        self.send(method, &format!("/admin/v1/sales{path}"), &headers, body)
    }

    pub fn send(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Result<Answer> {
        let length = body.len();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{headers}\
             Content-Length: {length}\r\n\r\n{body}"
        );
        // A kept connection may have been closed meanwhile; a claim sent twice is the same claim.
        if let Some(mut kept) = self.connection.take()
            && let Ok(answer) = exchange(&mut kept, &request)
        {
            return Ok(self.keep(kept, answer));
        }
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let stream = TcpStream::connect_timeout(&address, BOUND)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(BOUND))?;
        let mut connection = BufReader::new(stream);
        let answer = exchange(&mut connection, &request)
            .with_context(|| format!("{method} {path} at {address}"))?;
        Ok(self.keep(connection, answer))
    }

    fn keep(
        &mut self,
        connection: BufReader<TcpStream>,
        (answer, close): (Answer, bool),
    ) -> Answer {
        self.connection = (!close).then_some(connection);
        answer
    }
}

/// The idempotency key of a user.
pub fn key_of(user: &str) -> String {
    format!("key-{user}")
}

/// One request and its answer, and whether the server closes the connection after it.
fn exchange(connection: &mut BufReader<TcpStream>, request: &str) -> Result<(Answer, bool)> {
    let begun = Instant::now();
    connection.get_mut().write_all(request.as_bytes())?;
    let mut line = String::new();
    connection.read_line(&mut line)?;
    let status = line.split_whitespace().nth(1).context("a status line")?;
    let status = status.parse()?;
    let (mut length, mut location, mut close) = (0, None, false);
    loop {
        line.clear();
        connection.read_line(&mut line)?;
        let Some((name, value)) = line.trim_end().split_once(':') else {
            break;
        };
        let value = value.trim();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.parse()?,
            "location" => location = Some(value.to_owned()),
            "connection" => close = value.eq_ignore_ascii_case("close"),
            "transfer-encoding" => bail!("an answer in chunks"),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body)?;
    let took = begun.elapsed();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let answer = Answer {
        status,
        location,
        body,
        took,
    };
    Ok((answer, close))
}
