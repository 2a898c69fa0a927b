//! Calls of the admin API.

use std::time::{Duration, Instant};

use crate::http;
use anyhow::{Result, bail};

/// How long a call may be answered "not now" (503): a gateway may be ready a moment before the
/// first freshness of its log is known.
const PATIENCE: Duration = Duration::from_secs(60);

/// The admin API of a gateway.
#[derive(Clone, Copy)]
pub struct Admin<'a> {
    /// Its port.
    pub port: u16,
    /// Its key.
    pub key: &'a str,
}

impl Admin<'_> {
    /// Creates a sale and opens it.
    ///
    /// # Errors
    /// When the gateway refuses.
    pub fn open_new(&self, sale: &str, stock: u64) -> Result<()> {
        let body = format!("{{\"id\":\"{sale}\",\"stock\":{stock}}}");
        self.post("/admin/v1/sales", &body)?;
        self.post(&format!("/admin/v1/sales/{sale}/open"), "{}")
    }

    /// Closes a sale.
    ///
    /// # Errors
    /// When the gateway refuses.
    pub fn close(&self, sale: &str) -> Result<()> {
        self.post(&format!("/admin/v1/sales/{sale}/close"), "{}")
    }

    fn post(&self, path: &str, body: &str) -> Result<()> {
        let authorization = format!("Bearer {}", self.key);
        let headers = [
            ("Authorization", authorization.as_str()),
            ("Content-Type", "application/json"),
        ];
        let begun = Instant::now();
        loop {
            let bound = Duration::from_secs(30);
            let answer = http::request(self.port, "POST", path, &headers, body, bound)?;
            match answer.status {
                200 | 201 => return Ok(()),
                503 if begun.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(200));
                }
                status => bail!("POST {path} answers {status}: {}", answer.body),
            }
        }
    }
}
