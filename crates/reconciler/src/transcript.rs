//! What clients were told: JSON lines, one answer each, as the load generator writes them.

use crate::app::{CannotCheck, Where};
use crate::diff::{Told, ToldStatus};
use dropgate_domain::{ClaimId, SaleId, Unit, UserId};
use serde::Deserialize;
use std::path::Path;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};

/// How much of the file is read at a time, in bytes.
const BUFFER_BYTES: usize = 256 * 1024;

/// The fields of a line that matter here.
#[derive(Deserialize)]
struct Line {
    sale: String,
    user: String,
    status: String,
    claim: Option<String>,
    unit: Option<u64>,
}

/// The answers of a file that are about one sale.
pub struct Transcript {
    lines: Lines<BufReader<File>>,
    number: u64,
    what: String,
}

impl Transcript {
    pub async fn open(path: &Path) -> Result<Self, CannotCheck> {
        let what = path.display().to_string();
        let file = File::open(path)
            .await
            .map_err(|error| CannotCheck::at(Where::Told, &format!("{what}: {error}")))?;
        Ok(Self {
            lines: BufReader::with_capacity(BUFFER_BYTES, file).lines(),
            number: 0,
            what,
        })
    }

    /// The next answer about the sale that tells of a win or of a void claim.
    pub async fn next(&mut self, sale: &SaleId) -> Result<Option<Told>, CannotCheck> {
        loop {
            let line = self.lines.next_line().await;
            self.number += 1;
            let Some(line) = line.map_err(|error| self.wrong(&error))? else {
                return Ok(None);
            };
            match answer(&line, sale) {
                Ok(Some(told)) => return Ok(Some(told)),
                Ok(None) => {}
                Err(why) => return Err(self.wrong(&why)),
            }
        }
    }

    fn wrong(&self, why: &impl std::fmt::Display) -> CannotCheck {
        let reason = format!("{}, line {}: {why}", self.what, self.number);
        CannotCheck::at(Where::Told, &reason)
    }
}

/// The answer of a line; `None` when it is about another sale, or tells of no claim.
fn answer(line: &str, sale: &SaleId) -> Result<Option<Told>, String> {
    // The error's text may hold a part of the line, and with it a user.
    let line: Line = serde_json::from_str(line).map_err(|error| {
        format!(
            "not an answer: {:?} at column {}",
            error.classify(),
            error.column()
        )
    })?;
    if line.sale != sale.as_str() {
        return Ok(None);
    }
    let status = match (line.status.as_str(), line.unit) {
        ("won" | "again", Some(unit)) => ToldStatus::Won(Unit(unit)),
        ("won" | "again", None) => return Err("a win without a unit".to_owned()),
        ("void", _) if line.claim.is_some() => ToldStatus::Void,
        _ => return Ok(None),
    };
    let claim: Option<ClaimId> = line.claim.and_then(|claim| claim.parse().ok());
    Ok(Some(Told {
        user: UserId::new(&line.user).map_err(|error| error.to_string())?,
        claim: claim.ok_or("no claim id")?,
        status,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Option<Told>, String> {
        answer(line, &SaleId::new("s").unwrap())
    }

    #[test]
    fn wins_and_voids_of_the_sale_are_answers() {
        let claim = format!("1-7-{}", "ab".repeat(16));
        let won = format!(
            r#"{{"sale":"s","user":"u","key":null,"status":"won","claim":"{claim}","unit":3,"http":201}}"#
        );
        let told = read(&won).unwrap().unwrap();
        assert_eq!(told.status, ToldStatus::Won(Unit(3)));
        assert_eq!(told.claim.to_string(), claim);
        assert!(read(&won.replace("\"s\"", "\"t\"")).unwrap().is_none());
        let void = won.replace("won", "void");
        assert_eq!(read(&void).unwrap().unwrap().status, ToldStatus::Void);
        let refused = r#"{"sale":"s","user":"u","status":"sold_out","claim":null,"unit":null}"#;
        assert!(read(refused).unwrap().is_none());
    }

    #[test]
    fn what_is_no_answer_is_an_error_that_names_nobody() {
        let bad = [
            r#"{"sale":"s","user":"u-hunter2"}"#.to_owned(),
            r#"{"sale":"s","user":"hunter2","status":"won","claim":"x","unit":1}"#.to_owned(),
            r#"{"sale":"s","user":"hunter2","status":"won","claim":"x"}"#.to_owned(),
            "hunter2".to_owned(),
        ];
        for line in bad {
            let error = read(&line).unwrap_err();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
