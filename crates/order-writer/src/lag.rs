//! How far the writer is behind the log, measured by the side.

use crate::metrics::Metrics;
use crate::status::Status;
use dropgate_stream::{Lane, Log};
use std::convert::Infallible;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);

/// Measures once a second, as long as it is polled. A partition that does not answer is left out.
pub async fn measure(log: &Log, status: &Status, metrics: &Metrics) -> Infallible {
    loop {
        let mut unread = 0_u64;
        for (partition, next) in status.positions() {
            if let Ok(probe) = log.probe(Lane::Claims(partition)).await {
                unread = unread.saturating_add(probe.end.0.saturating_sub(next.0));
            }
        }
        let unread = i64::try_from(unread).unwrap_or(i64::MAX);
        metrics
            .lag
            .set(unread.saturating_add(metrics.pending.get()));
        tokio::time::sleep(EVERY).await;
    }
}
