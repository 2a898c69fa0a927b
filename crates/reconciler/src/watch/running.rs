//! A watch that runs, with its port for operators: as a process of its own, and beside a gateway.

use super::{Metrics, Watch, WatchConfig};
use dropgate_engine::Engine;
use dropgate_runtime::health::{Health, Pace};
use dropgate_runtime::ops::{Ops, OpsServer};
use dropgate_runtime::shutdown::Steps;
use prometheus_client::registry::Registry;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How long each step of its end may take.
const STEP_MAX: Duration = Duration::from_secs(3);

/// A watch that runs.
#[derive(Debug)]
pub struct Running {
    health: Health,
    ops: OpsServer,
    stop: CancellationToken,
    watching: JoinHandle<()>,
}

impl Running {
    /// Opens the port for operators, and watches on this engine, which must have the operator's
    /// credentials and must outlive the watch.
    ///
    /// # Errors
    /// A port that cannot be had.
    pub fn start(
        engine: &Engine,
        config: &WatchConfig,
        instance: String,
        bind: SocketAddr,
        mut registry: Registry,
    ) -> std::io::Result<Self> {
        let metrics = Metrics::register(&mut registry);
        let watch = Watch::new(engine.clone(), config.clone(), instance, metrics);
        let health = Health::new();
        let asked = engine.clone();
        health.probe("engine", Pace::default(), move || {
            let ready = asked.ready();
            async move { ready }
        });
        let board = watch.board();
        let ops = Ops::new(health.clone(), Arc::new(registry))
            .with_page("/watch", move || serde_json::json!(board.thoughts()))
            .serve(bind)?;
        let stop = CancellationToken::new();
        Ok(Self {
            health,
            ops,
            watching: tokio::spawn(watch.run(stop.clone())),
            stop,
        })
    }

    /// Where the port for operators is.
    #[must_use]
    pub fn ops_addr(&self) -> SocketAddr {
        self.ops.addr
    }

    /// Stops watching: the first steps of an end, before the engine's. A recovery that is on its
    /// way is given up, which is harmless.
    pub async fn stop(&mut self, steps: &mut Steps) {
        let health = self.health.clone();
        steps
            .run("readiness", STEP_MAX, async { health.shut_down() })
            .await;
        self.stop.cancel();
        let watching = &mut self.watching;
        steps
            .run("watch", STEP_MAX, async {
                // A panic is on record already.
                let _ = watching.await;
            })
            .await;
    }

    /// Closes the port for operators: the last step.
    pub async fn close(self, steps: &mut Steps) {
        steps.run("ops", STEP_MAX, self.ops.stop()).await;
    }
}

/// Who this is, for people who read of it in the log.
#[must_use]
pub fn instance() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("watch {} {}", host.trim(), std::process::id())
}
