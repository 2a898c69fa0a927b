//! From the log to the writer, for as long as it is wanted.

use crate::backoff::Backoff;
use crate::config::WriterConfig;
use crate::lag;
use crate::metrics::Metrics;
use crate::status::Status;
use crate::writer::Writer;
use dropgate_engine::{Fold, FoldError, Judged, Step};
use dropgate_store::Store;
use dropgate_stream::Log;
use std::time::Duration;
use tokio::task::{JoinError, JoinHandle};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The longest wait of one read.
const READ_WAIT: Duration = Duration::from_millis(500);

/// Why a writer ended that nobody stopped.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The log is not what it was. An operator has to look; a new start begins from what is there.
    #[error("the log cannot be followed any more: {0}")]
    Log(#[from] FoldError),
    /// It panicked.
    #[error("the writer's task failed: {0}")]
    Task(#[from] JoinError),
}

/// A running writer. Dropping it ends it as a crash would, which loses nothing.
#[derive(Debug)]
pub struct OrderWriter {
    task: JoinHandle<Result<(), FoldError>>,
    stop: CancellationToken,
    status: Status,
}

impl OrderWriter {
    /// Begins to write, in a task of its own on the caller's runtime. Neither the log nor the
    /// database need to answer yet.
    #[must_use]
    pub fn start(config: &WriterConfig, log: Log, store: Store, metrics: Metrics) -> Self {
        let stop = CancellationToken::new();
        let status = Status::default();
        let consumer = Consumer {
            log,
            store,
            config: config.clone(),
            metrics,
            status: status.clone(),
            stop: stop.clone(),
        };
        let task = tokio::spawn(consumer.run());
        Self { task, stop, status }
    }

    /// What it says of itself.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status.clone()
    }

    /// Waits until it ends by itself, which it does only when the log is not what it was. Cancel
    /// safe; not to be called again once it has returned.
    ///
    /// # Errors
    /// Why it ended.
    pub async fn ended(&mut self) -> Result<(), RunError> {
        Ok((&mut self.task).await??)
    }

    /// Stops reading, writes what was read if the database takes it, and ends.
    ///
    /// Bounded by the time that the store's calls may take; dropping it abandons the rest.
    ///
    /// # Errors
    /// Why it had ended by itself before.
    pub async fn stop(mut self) -> Result<(), RunError> {
        self.stop.cancel();
        self.ended().await
    }
}

impl Drop for OrderWriter {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Consumer {
    log: Log,
    store: Store,
    config: WriterConfig,
    metrics: Metrics,
    status: Status,
    stop: CancellationToken,
}

/// How following the log ended.
enum Ended {
    Stopped,
    /// From the beginning again.
    StartOver,
}

impl Consumer {
    async fn run(self) -> Result<(), FoldError> {
        let lag = lag::measure(&self.log, &self.status, &self.metrics);
        tokio::select! {
            ended = self.consume() => {
                if let Err(error) = &ended {
                    tracing::error!(%error, "log cannot be followed any more");
                    self.status.log(Some(error.to_string()));
                }
                ended
            }
            never = lag => match never {},
        }
    }

    async fn consume(&self) -> Result<(), FoldError> {
        let mut backoff = Backoff::new(self.config.backoff_max);
        loop {
            self.status.start_over(&self.metrics);
            let opened = tokio::select! {
                () = self.stop.cancelled() => return Ok(()),
                opened = Fold::open(&self.log) => opened,
            };
            match opened {
                Ok(fold) => match self.follow(fold, &mut backoff).await? {
                    Ended::Stopped => return Ok(()),
                    Ended::StartOver => {}
                },
                Err(error) => self.not_read(error)?,
            }
            tokio::select! {
                () = self.stop.cancelled() => return Ok(()),
                () = tokio::time::sleep(backoff.failed()) => {}
            }
        }
    }

    async fn follow(&self, mut fold: Fold, backoff: &mut Backoff) -> Result<Ended, FoldError> {
        let (config, metrics) = (self.config.clone(), self.metrics.clone());
        let mut writer = Writer::new(self.store.clone(), config, metrics, self.status.clone());
        tell_unfollowable(&fold, &mut writer);
        self.status.reading(fold.positions());
        let mut read_at = Instant::now();
        let rewound = loop {
            if self.stop.is_cancelled() {
                break writer.flush().await.err();
            }
            let due = writer.due();
            if due.is_some_and(|due| due <= Instant::now()) {
                match writer.turn().await {
                    Ok(()) => continue,
                    Err(rewound) => break Some(rewound),
                }
            }
            let until = due.unwrap_or(Instant::now() + READ_WAIT);
            // At the end of the process a cancelled step loses nothing: the log keeps it.
            let step = tokio::select! {
                () = self.stop.cancelled() => continue,
                step = read(&mut fold, until, read_at, writer.is_full()) => step,
            };
            match step {
                Ok(step) => {
                    backoff.succeeded();
                    let news = news_of_sales(&step);
                    writer.feed(step);
                    if news {
                        tell_unfollowable(&fold, &mut writer);
                    }
                    self.status.reading(fold.positions());
                }
                Err(error) => {
                    self.not_read(error)?;
                    read_at = Instant::now() + backoff.failed();
                }
            }
        };
        if let Some(rewound) = rewound {
            let sale = rewound.sale;
            tracing::error!(%sale, "database holds less than was written, reading the log again");
        }
        Ok(if self.stop.is_cancelled() {
            Ended::Stopped
        } else {
            Ended::StartOver
        })
    }

    /// Takes note of an error of the log, and passes on the final ones.
    fn not_read(&self, error: FoldError) -> Result<(), FoldError> {
        if !error.is_transient() {
            return Err(error);
        }
        tracing::warn!(%error, "log not read, trying again");
        self.status.log(Some(error.to_string()));
        Ok(())
    }
}

/// A step that ends by `until`; nothing is read before `read_at`, or while the writer is full.
async fn read(
    fold: &mut Fold,
    until: Instant,
    read_at: Instant,
    full: bool,
) -> Result<Step, FoldError> {
    if full || until <= read_at {
        tokio::time::sleep_until(until).await;
        return Ok(Step::default());
    }
    tokio::time::sleep_until(read_at).await;
    let wait = until
        .saturating_duration_since(Instant::now())
        .min(READ_WAIT);
    fold.step(wait).await
}

/// Whether a step may have changed which sales can be followed.
fn news_of_sales(step: &Step) -> bool {
    let gave_up = |judged: &Judged| matches!(judged, Judged::GaveUp(_));
    !step.created.is_empty() || step.judged.iter().any(|(_, judged)| gave_up(judged))
}

fn tell_unfollowable(fold: &Fold, writer: &mut Writer) {
    for sale in fold.sales() {
        if let Some(why) = sale.unfollowable() {
            writer.unfollowable(sale.id(), &why);
        }
    }
}
