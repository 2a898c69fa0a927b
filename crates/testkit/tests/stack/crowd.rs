//! What users of a test's own were told, beside a crowd.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use anyhow::Result;
pub use dropgate_testkit::stack::Crowd;
use serde_json::json;

use crate::client::{Answer, key_of, now_ms};

/// What users of a test's own were told, in the load generator's format, so that the oracle holds
/// the answers to the same promises.
#[derive(Debug)]
pub struct Transcript {
    file: File,
    sale: String,
}

impl Transcript {
    /// Adds to this file, which need not be there yet.
    pub fn append(file: &Path, sale: &str) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(file)?;
        Ok(Self {
            file,
            sale: sale.to_owned(),
        })
    }

    /// Notes a final answer of the gateway at this URL.
    pub fn note(&mut self, gateway: &str, user: &str, answer: &Answer) -> Result<()> {
        let status = match (answer.status, answer.text("status"), answer.code()) {
            (201, ..) => "won",
            (200, "won", _) => "again",
            (200, "sold_out", _) | (409, _, "sold_out") => "sold_out",
            (200, "void", _) | (503, _, "void") => "void",
            _ => "refused",
        };
        let now = now_ms()?;
        let line = json!({
            "sale": self.sale, "user": user, "key": key_of(user), "click": 0, "attempt_no": 1,
            "status": status, "http": answer.status, "code": answer.body["code"],
            "claim": answer.body["claim"], "unit": answer.body["unit"],
            "intended_ms": now, "done_ms": now, "gateway": gateway,
        });
        writeln!(self.file, "{line}")?;
        Ok(())
    }
}
