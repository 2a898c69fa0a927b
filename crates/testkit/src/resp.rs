//! A tiny blocking Redis client (RESP2), so that a test can run any command as any user without
//! the client library that it tests.

use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// A status line, such as `OK`.
    Status(String),
    /// An error line, with its prefix, such as `NOSCRIPT No matching script`.
    Error(String),
    /// A whole number.
    Int(i64),
    /// A string of bytes.
    Bulk(Vec<u8>),
    /// Nothing there.
    Nil,
    /// A list.
    Array(Vec<Value>),
}

impl Value {
    /// The text of a status, an error, a string or a number.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        match self {
            Self::Status(text) | Self::Error(text) => Some(text.clone()),
            Self::Int(number) => Some(number.to_string()),
            Self::Bulk(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
            Self::Nil | Self::Array(_) => None,
        }
    }

    /// The bytes of a string.
    #[must_use]
    pub fn bytes(&self) -> Option<&[u8]> {
        match self {
            Self::Bulk(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// The number, also of a string that is one.
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        match self {
            Self::Int(number) => Some(*number),
            other => other.text()?.parse().ok(),
        }
    }

    /// The items of a list.
    #[must_use]
    pub fn items(&self) -> Option<&[Value]> {
        match self {
            Self::Array(items) => Some(items),
            _ => None,
        }
    }
}

impl fmt::Display for Value {
    /// Like `redis-cli` when its output is not a terminal: a list is one item a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Array(items) => {
                for (i, item) in items.iter().enumerate() {
                    let end_of_line = if i == 0 { "" } else { "\n" };
                    write!(f, "{end_of_line}{item}")?;
                }
                Ok(())
            }
            Self::Nil => Ok(()),
            other => f.write_str(&other.text().unwrap_or_default()),
        }
    }
}

/// A connection.
#[derive(Debug)]
pub struct RespConnection {
    reader: BufReader<TcpStream>,
}

impl RespConnection {
    /// Connects to a loopback port. Every read and write waits at most 10 seconds.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn connect(port: u16) -> Result<Self> {
        Self::connect_within(port, Duration::from_secs(10))
    }

    /// Connects to a loopback port. Every read and write waits at most `bound`.
    ///
    /// # Errors
    /// When nobody listens.
    pub fn connect_within(port: u16, bound: Duration) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, bound)
            .with_context(|| format!("connecting to Redis at {address}"))?;
        stream.set_read_timeout(Some(bound))?;
        stream.set_write_timeout(Some(bound))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            reader: BufReader::new(stream),
        })
    }

    /// Runs one command. An error of Redis is a [`Value::Error`], not an `Err`.
    ///
    /// # Errors
    /// When the connection fails or what comes back is not RESP.
    pub fn command<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<Value> {
        self.send(args)?;
        self.read()
    }

    /// Sends one command without waiting for its reply (for pipelines and for monitors).
    ///
    /// # Errors
    /// When the connection fails.
    pub fn send<A: AsRef<[u8]>>(&mut self, args: &[A]) -> Result<()> {
        let mut frame = format!("*{}\r\n", args.len()).into_bytes();
        for arg in args {
            let arg = arg.as_ref();
            frame.extend_from_slice(format!("${}\r\n", arg.len()).as_bytes());
            frame.extend_from_slice(arg);
            frame.extend_from_slice(b"\r\n");
        }
        self.reader
            .get_mut()
            .write_all(&frame)
            .context("writing to Redis")
    }

    /// Reads one reply.
    ///
    /// # Errors
    /// When the connection fails or what comes back is not RESP.
    pub fn read(&mut self) -> Result<Value> {
        let mut line = String::new();
        self.reader
            .read_line(&mut line)
            .context("reading from Redis")?;
        let Some(line) = line.strip_suffix("\r\n") else {
            bail!("Redis closed the connection (last line {line:?})");
        };
        let (kind, rest) = line.split_at_checked(1).context("an empty reply")?;
        let number = || {
            rest.parse::<i64>()
                .with_context(|| format!("a number in {line:?}"))
        };
        Ok(match kind {
            "+" => Value::Status(rest.to_owned()),
            "-" => Value::Error(rest.to_owned()),
            ":" => Value::Int(number()?),
            "$" | "*" if number()? < 0 => Value::Nil,
            "$" => {
                let mut bytes = vec![0; usize::try_from(number()?)? + 2];
                self.reader
                    .read_exact(&mut bytes)
                    .context("reading from Redis")?;
                bytes.truncate(bytes.len() - 2);
                Value::Bulk(bytes)
            }
            "*" => Value::Array((0..number()?).map(|_| self.read()).collect::<Result<_>>()?),
            _ => bail!("not a reply of Redis: {line:?}"),
        })
    }
}
