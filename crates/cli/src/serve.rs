//! `dropgate serve`: gateway, order-writer and watch in one process.
//!
//! The gateway alone writes the embedded log; the order-writer reads the same file beside it. The
//! order-writer has a thread and a runtime of its own, so that no load on the HTTP side can
//! starve it, and a slow database delays no claim. The watch recovers on the gateway's engine.

use crate::config::Config;
use crate::keys;
use anyhow::{Context, anyhow};
use dropgate_order_writer::app::App as OrderWriter;
use dropgate_reconciler::watch::{Running as Watch, instance};
use dropgate_runtime::shutdown::Shutdown;
use dropgate_runtime::telemetry;
use prometheus_client::registry::Registry;
use std::process::ExitCode;
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Ended by itself, or not in order.
const FAILED: u8 = 1;

pub fn run(mut config: Config) -> anyhow::Result<ExitCode> {
    telemetry::init(&config.telemetry)?;
    keys::complete(&mut config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(serve(config))
}

async fn serve(config: Config) -> anyhow::Result<ExitCode> {
    let (shutdown, _signals) = Shutdown::on_signals().context("signals")?;
    // First, because it is the one that makes the log.
    let gateway = dropgate_gateway::App::build(config.gateway())
        .await
        .context("the gateway cannot start")?;
    // It ends after the watch, which recovers on its engine.
    let gateways = shutdown.of_part();
    let mut beside = match Beside::start(&config, &gateway).await {
        Ok(started) => started,
        Err(error) => {
            gateways.begin();
            gateway.run(gateways).await?;
            return Err(error);
        }
    };
    tracing::info!(
        clients = %gateway.addr(), admin = %gateway.admin_addr(), watch = %beside.watch.ops_addr(),
        "dropgate serves"
    );
    let serving = gateway.run(gateways.clone());
    tokio::pin!(serving);
    let mut served = None;
    tokio::select! {
        ended = &mut serving => served = Some(ended),
        () = shutdown.begun() => {}
        // It ends by itself only for a reason that no claim should be taken on top of.
        _ = &mut beside.written => {}
    }
    let mut steps = shutdown.steps();
    beside.watch.stop(&mut steps).await;
    gateways.begin();
    let served = match served {
        Some(ended) => ended,
        None => serving.await,
    };
    beside.watch.close(&mut steps).await;
    // Last, because until now claims may have been won.
    let writer = beside.writer;
    let written = tokio::task::spawn_blocking(|| writer.stop()).await?;
    let (served, written) = (served?, written?);
    let clean = served.is_clean() && written && steps.finish().is_clean();
    Ok(if clean {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(FAILED)
    })
}

/// What runs beside the gateway.
struct Beside {
    watch: Watch,
    writer: Writer,
    /// Is told (or dropped) when the order-writer ends.
    written: oneshot::Receiver<()>,
}

impl Beside {
    async fn start(config: &Config, gateway: &dropgate_gateway::App) -> anyhow::Result<Self> {
        let bind = config.watch_ops.bind;
        let registry = Registry::default();
        let mut watch = Watch::start(gateway.engine(), &config.watch, instance(), bind, registry)
            .with_context(|| format!("the watch cannot listen on {bind}"))?;
        match Writer::start(config).await {
            Ok((writer, written)) => Ok(Self {
                watch,
                writer,
                written,
            }),
            Err(error) => {
                let mut steps = Shutdown::manual().steps();
                watch.stop(&mut steps).await;
                watch.close(&mut steps).await;
                Err(error)
            }
        }
    }
}

/// The order-writer's thread.
struct Writer {
    shutdown: Shutdown,
    thread: JoinHandle<anyhow::Result<bool>>,
}

impl Writer {
    /// Starts it. The receiver is told (or dropped) when it ends.
    async fn start(config: &Config) -> anyhow::Result<(Self, oneshot::Receiver<()>)> {
        let shutdown = Shutdown::manual();
        let (config, told) = (config.order_writer(), shutdown.clone());
        let (starts, started) = oneshot::channel();
        let (ends, ended) = oneshot::channel::<()>();
        let thread = std::thread::Builder::new()
            .name("order-writer".to_owned())
            .spawn(move || {
                let outcome = write(config, told, starts);
                drop(ends);
                outcome
            })?;
        // Without a word it has panicked, and its thread tells.
        if let Ok(Err(error)) = started.await {
            return Err(error.context("the order-writer cannot start"));
        }
        Ok((Self { shutdown, thread }, ended))
    }

    /// Ends it, after it has written what it has read; whether that was in order. Blocks, for
    /// about `writer.shutdown_timeout` at most.
    fn stop(self) -> anyhow::Result<bool> {
        self.shutdown.begin();
        match self.thread.join() {
            Ok(ended) => ended.context("the order-writer failed"),
            Err(_) => Err(anyhow!("the order-writer panicked")),
        }
    }
}

/// The whole life of the order-writer, on a runtime of its own; whether it ended in order.
fn write(
    config: dropgate_order_writer::Config,
    shutdown: Shutdown,
    starts: oneshot::Sender<anyhow::Result<()>>,
) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("order-writer")
        .enable_all()
        .build();
    let built = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let app = {
            let _within = runtime.enter();
            OrderWriter::build(config)?
        };
        Ok((runtime, app))
    });
    let (runtime, app) = match built {
        Ok(built) => built,
        Err(error) => {
            // Who waits for it takes the error; nobody else is left to tell.
            let _ = starts.send(Err(error));
            return Ok(false);
        }
    };
    let _ = starts.send(Ok(()));
    match runtime.block_on(app.run(shutdown)) {
        Ok(report) => Ok(report.is_clean()),
        Err(error) => {
            let error = anyhow!(error);
            tracing::error!(error = format!("{error:#}"), "order-writer ended");
            Err(error)
        }
    }
}
