//! `dropgate watch`: the reconciler's watch, from the one configuration.

use crate::config::Config;
use anyhow::bail;
use dropgate_runtime::telemetry;
use dropgate_stream::Backend;
use std::process::ExitCode;

pub fn run(config: &Config) -> anyhow::Result<ExitCode> {
    if config.log.backend == Backend::Embedded {
        bail!(
            "log.backend: kafka is needed for a watch of its own: the embedded log has one writing \
             process, and `dropgate serve` watches by itself"
        );
    }
    telemetry::init(&config.telemetry)?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(dropgate_reconciler::cli::watch(config.reconciler()))
}
