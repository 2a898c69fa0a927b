//! An ordered end: named steps, one after the other, each with a deadline.

use std::fmt;
use std::future::Future;
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Tells when the service is to end. Clones are the same one.
///
/// Not global: whoever needs it is handed it.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    begun: CancellationToken,
    hurried: CancellationToken,
}

impl Shutdown {
    /// A shutdown that nothing but [`Shutdown::begin`] begins: for tests and for services that
    /// run within another's process.
    #[must_use]
    pub fn manual() -> Self {
        Self::default()
    }

    /// A shutdown that begins when it is told to, and is hurried when this one is: of a part that
    /// ends after another.
    #[must_use]
    pub fn of_part(&self) -> Self {
        Self {
            begun: CancellationToken::new(),
            hurried: self.hurried.clone(),
        }
    }

    /// A shutdown that SIGTERM or SIGINT begins. A second signal hurries it: the deadlines of
    /// all steps are over. The listener ends when the returned handle is dropped.
    ///
    /// # Errors
    /// Signals that cannot be listened to.
    pub fn on_signals() -> std::io::Result<(Self, AbortOnDropHandle<()>)> {
        let shutdown = Self::default();
        let (mut term, mut int) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        let told = shutdown.clone();
        let listener = tokio::spawn(async move {
            loop {
                let name = tokio::select! {
                    _ = term.recv() => "SIGTERM",
                    _ = int.recv() => "SIGINT",
                };
                tracing::info!(
                    signal = name,
                    again = told.begun.is_cancelled(),
                    "signal received"
                );
                if told.begun.is_cancelled() {
                    told.hurried.cancel();
                }
                told.begin();
            }
        });
        Ok((shutdown, AbortOnDropHandle::new(listener)))
    }

    /// Begins it. Doing so again changes nothing.
    pub fn begin(&self) {
        self.begun.cancel();
    }

    /// Whether it has begun.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.begun.is_cancelled()
    }

    /// Waits until it begins. Cancel safe.
    pub async fn begun(&self) {
        self.begun.cancelled().await;
    }

    /// A token that is cancelled when it begins, for tasks.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.begun.clone()
    }

    /// The steps of this shutdown.
    #[must_use]
    pub fn steps(&self) -> Steps {
        Steps {
            hurried: self.hurried.clone(),
            report: Report(Vec::new()),
        }
    }
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// In time.
    Done,
    /// It said that it could not.
    Failed(String),
    /// Its deadline came first, and it was dropped.
    TimedOut,
    /// A second signal came first, and it was dropped.
    Hurried,
}

/// One step, afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Its name.
    pub name: &'static str,
    /// How it ended.
    pub outcome: Outcome,
    /// How long it took.
    pub took: Duration,
}

/// All steps, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report(pub Vec<Step>);

impl Report {
    /// Whether every step was done in time.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.0.iter().all(|step| step.outcome == Outcome::Done)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, step) in self.0.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            let ms = step.took.as_millis();
            write!(f, "{comma}{}: {:?} in {ms} ms", step.name, step.outcome)?;
        }
        Ok(())
    }
}

/// Runs the steps and notes how they ended. A step that fails or is late does not keep the next
/// ones from being run.
#[derive(Debug)]
pub struct Steps {
    hurried: CancellationToken,
    report: Report,
}

impl Steps {
    /// Runs a step that cannot fail. `step` is dropped at its deadline.
    pub async fn run(&mut self, name: &'static str, deadline: Duration, step: impl Future) {
        let fallible = async {
            step.await;
            Ok::<(), std::convert::Infallible>(())
        };
        self.try_run(name, deadline, fallible).await;
    }

    /// Runs a step that may fail. `step` is dropped at its deadline.
    pub async fn try_run<E: fmt::Display>(
        &mut self,
        name: &'static str,
        deadline: Duration,
        step: impl Future<Output = Result<(), E>>,
    ) {
        let began = Instant::now();
        let outcome = tokio::select! {
            biased;
            result = step => match result {
                Ok(()) => Outcome::Done,
                Err(error) => Outcome::Failed(error.to_string()),
            },
            () = self.hurried.cancelled() => Outcome::Hurried,
            () = tokio::time::sleep(deadline) => Outcome::TimedOut,
        };
        let took = began.elapsed();
        if outcome == Outcome::Done {
            tracing::info!(step = name, ?took, "shutdown step done");
        } else {
            tracing::warn!(step = name, ?outcome, ?took, "shutdown step not done");
        }
        self.report.0.push(Step {
            name,
            outcome,
            took,
        });
    }

    /// What happened.
    #[must_use]
    pub fn finish(self) -> Report {
        self.report
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn steps_run_in_order_and_a_late_one_does_not_hold_up_the_next() {
        let shutdown = Shutdown::manual();
        let mut steps = shutdown.steps();
        let order = parking_lot::Mutex::new(Vec::new());
        steps
            .run("readiness", LONG, async { order.lock().push(1) })
            .await;
        steps
            .run(
                "stuck",
                Duration::from_millis(5),
                std::future::pending::<()>(),
            )
            .await;
        steps
            .try_run("flush", LONG, async {
                order.lock().push(2);
                Err("the broker is gone")
            })
            .await;
        steps
            .run("close", LONG, async { order.lock().push(3) })
            .await;
        let report = steps.finish();
        assert_eq!(*order.lock(), [1, 2, 3]);
        let outcomes: Vec<_> = report.0.iter().map(|s| s.outcome.clone()).collect();
        let failed = Outcome::Failed("the broker is gone".into());
        assert_eq!(
            outcomes,
            [Outcome::Done, Outcome::TimedOut, failed, Outcome::Done]
        );
        assert!(!report.is_clean());
        assert!(report.to_string().contains("stuck: TimedOut"), "{report}");
    }

    #[tokio::test]
    async fn a_second_signal_ends_the_waiting_but_not_the_order() {
        let shutdown = Shutdown::manual();
        shutdown.begin();
        shutdown.hurried.cancel();
        let mut steps = shutdown.steps();
        steps.run("stuck", LONG, std::future::pending::<()>()).await;
        steps.run("quick", LONG, async {}).await;
        let outcomes: Vec<_> = steps.finish().0.into_iter().map(|s| s.outcome).collect();
        assert_eq!(outcomes, [Outcome::Hurried, Outcome::Done]);
    }

    #[tokio::test]
    async fn everybody_with_a_clone_or_a_token_is_told() {
        let shutdown = Shutdown::manual();
        let (other, token) = (shutdown.clone(), shutdown.token());
        assert!(!other.has_begun());
        shutdown.begin();
        other.begun().await;
        token.cancelled().await;
    }
}
