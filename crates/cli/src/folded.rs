//! A sale folded from the log to its end, beside whoever writes it.

use dropgate_domain::{Offset, SaleId};
use dropgate_engine::{Fold, FoldError, Sale};
use dropgate_stream::{Lane, Log};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long one step waits for a record.
const STEP_WAIT: Duration = Duration::from_millis(200);
/// The pause after an error that may be gone.
const PAUSE: Duration = Duration::from_millis(100);

/// A sale, as its log was when it was read.
#[derive(Debug, Clone)]
pub struct Folded {
    pub sale: Arc<Sale>,
    /// The end of its partition to which it was read.
    pub end: Offset,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotFolded {
    /// The index names no such sale.
    NoSale,
    /// The log cannot be read.
    Log(String),
}

impl fmt::Display for NotFolded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSale => f.write_str("there is no such sale in the log's index"),
            Self::Log(why) => write!(f, "the log cannot be read: {why}"),
        }
    }
}

/// Reads the sale's log to the end that it has now. It is given up when it brings nothing for
/// `silence`. A sale that cannot be followed is no error: it says so itself.
pub async fn fold(log: &Log, id: &SaleId, silence: Duration) -> Result<Folded, NotFolded> {
    let unread = |error: FoldError| NotFolded::Log(error.to_string());
    let mut fold = within(silence, Fold::open(log)).await?.map_err(unread)?;
    let Some(sale) = fold.sale(id).cloned() else {
        return Err(NotFolded::NoSale);
    };
    let partition = sale.pin().partition;
    let probe = within(silence, log.probe(Lane::Claims(partition))).await?;
    let end = probe.map_err(|error| unread(error.into()))?.end;
    let (mut heard, mut last) = (Instant::now(), None);
    loop {
        let next = fold.positions().get(&partition).copied();
        if next.unwrap_or_default() >= end || sale.unfollowable().is_some() {
            return Ok(Folded { sale, end });
        }
        if next != last {
            (heard, last) = (Instant::now(), next);
        } else if heard.elapsed() > silence {
            return Err(NotFolded::Log(format!(
                "read to offset {} of {end} of partition {partition}, and nothing comes",
                next.unwrap_or_default()
            )));
        }
        match fold.step(STEP_WAIT).await {
            Ok(_) => {}
            Err(error) if error.is_transient() => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(unread(error)),
        }
    }
}

async fn within<T>(bound: Duration, asked: impl Future<Output = T>) -> Result<T, NotFolded> {
    let silent = || {
        NotFolded::Log(format!(
            "no answer within {}",
            humantime::format_duration(bound)
        ))
    };
    tokio::time::timeout(bound, asked)
        .await
        .map_err(|_| silent())
}
