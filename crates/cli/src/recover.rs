//! `dropgate recover`: one sale, from its log, by hand.
//!
//! With a log in Kafka the command runs an engine of its own. The embedded log has one writing
//! process, and so a gateway of that process does it, asked by the admin API.

mod show;
mod steps;

use crate::args::Recover;
use crate::config::{self, Config};
use crate::folded::{self, NotFolded};
use crate::{output, sale};
use anyhow::{Context, bail};
use dropgate_admission::{Admission, CallError, Operator};
use dropgate_domain::SaleId;
use dropgate_engine::{AdminError, ByHand, Condition, Engine, Preview, SaleHandle, Survey};
use dropgate_gateway::routes::recover::{RecoverOutcome, RecoverPreview};
use dropgate_stream::{Backend, Log, LogConfig};
use hyper::Method;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use steps::Steps;

/// How long a gateway may take, if nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(600);
/// How long the log may bring nothing before it is given up.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long each connection may take to be closed.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);
/// How often it is looked whether the log was read.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// What a recovery that could not be done leaves behind.
const STAYS: &str =
    "  a sale that was closed stays closed until it is recovered; nothing that was told is lost";

/// The answer is no.
const REFUSED: u8 = 1;
/// It could not be done now.
const COULD_NOT: u8 = 2;

pub async fn run(args: &Recover, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    if args.admin.admin_url.is_some() {
        return by_gateway(args, file).await;
    }
    let config = config::load(file)?;
    match (config.log.backend, args.dry_run) {
        (Backend::Embedded, _) => by_gateway(args, file).await,
        (Backend::Kafka, true) => preview(args, &config).await,
        (Backend::Kafka, false) => by_engine(args, &config).await,
    }
}

/// A gateway does it.
async fn by_gateway(args: &Recover, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let api = sale::api(&args.admin, file, TIMEOUT)?;
    let path = format!("/admin/v1/sales/{}/recover", args.sale);
    let body = json!({"force": args.force, "dry_run": args.dry_run});
    if !args.dry_run {
        output::note(&format!("asked of the gateway at {}", api.url()))?;
    }
    let answer = api.call(Method::POST, &path, Some(&body)).await?;
    if (200..300).contains(&answer.status) {
        return tell(args, &answer.body, None);
    }
    let code = sale::refused(&args.admin, &answer)?;
    if answer.status >= 500 && !args.dry_run {
        output::note(STAYS)?;
    }
    Ok(code)
}

/// Looks at log and Redis, without an engine: that would halt and relay.
async fn preview(args: &Recover, config: &Config) -> anyhow::Result<ExitCode> {
    let log = Log::open_read_only(&config.log()).await?;
    let folded = folded::fold(&log, &args.sale, SILENCE_MAX).await;
    let folded = match folded {
        Ok(folded) => folded,
        Err(NotFolded::NoSale) => return refuse(&args.sale, &AdminError::Unknown),
        Err(error) => bail!("{error}"),
    };
    let operator = Operator::new(config.operator().clone());
    let survey = Survey::of(&operator, &folded.sale).await;
    operator.shutdown().await;
    log.close(CLOSE_DEADLINE).await;
    let survey = survey.map_err(|error: CallError| error.to_string());
    let preview = Preview::by_survey(&folded.sale, survey, args.force);
    let shown = serde_json::to_value(RecoverPreview::of(&preview))?;
    tell(args, &shown, None)
}

/// Recovers with an engine of this process.
async fn by_engine(args: &Recover, config: &Config) -> anyhow::Result<ExitCode> {
    let mut log_config: LogConfig = config.log();
    // A log that is not there holds no sale.
    log_config.kafka.create = false;
    let log = Log::open(&log_config).await?;
    let redis = config.operator();
    let admission = Admission::connect(redis).await.context("redis")?;
    let engine = Engine::start(
        config.engine.clone(),
        who(),
        log.clone(),
        admission.clone(),
        Some(redis.clone()),
        &mut Registry::default(),
    )
    .await?;
    let recovered = recover(args, &engine).await;
    // What is left undone is in the log or in Redis, and nobody waits for it.
    let _ = tokio::time::timeout(CLOSE_DEADLINE, engine.shutdown()).await;
    let _ = tokio::time::timeout(CLOSE_DEADLINE, admission.shutdown()).await;
    log.close(CLOSE_DEADLINE).await;
    match recovered? {
        Ok(outcome) => tell(args, &serde_json::to_value(outcome)?, peak_memory()),
        Err(error) => refuse(&args.sale, &error),
    }
}

async fn recover(
    args: &Recover,
    engine: &Engine,
) -> anyhow::Result<Result<RecoverOutcome, AdminError>> {
    let Some(handle) = engine.sale(&args.sale) else {
        return Ok(Err(AdminError::Unknown));
    };
    output::note("reading the log")?;
    read(engine, &handle).await?;
    let steps = Steps::new();
    let order = ByHand {
        sale: args.sale.clone(),
        by: who(),
        force: args.force,
    };
    let begun = Instant::now();
    let mended = engine
        .recover_by_hand(&order, &|progress| steps.tell(progress))
        .await;
    steps.end();
    let wins = handle.standing().wins;
    Ok(mended.map(|mended| RecoverOutcome::of(mended, wins, begun.elapsed())))
}

/// Waits until the log has been read to its end, or brings nothing more.
async fn read(engine: &Engine, handle: &SaleHandle) -> anyhow::Result<()> {
    let mut changes = engine.changes();
    let mut heard = Instant::now();
    while handle.standing().condition == Condition::Unknown {
        if let Ok(Ok(())) = tokio::time::timeout(LOOK_INTERVAL, changes.changed()).await {
            heard = Instant::now();
        }
        if heard.elapsed() > SILENCE_MAX {
            let reasons = engine.ready().err().unwrap_or_default().join("; ");
            bail!("the log was not read to its end: {reasons}");
        }
    }
    Ok(())
}

/// Shows what was done, or what would be.
fn tell(args: &Recover, answer: &Value, memory: Option<u64>) -> anyhow::Result<ExitCode> {
    let text = match (args.admin.json, args.dry_run) {
        (true, _) => sale::pretty(answer),
        (false, true) => show::preview(&args.sale, answer),
        (false, false) => show::outcome(&args.sale, answer, memory),
    };
    output::line(&text)?;
    let refused = answer["would"] == "refuse";
    Ok(ExitCode::from(if refused { REFUSED } else { 0 }))
}

/// Tells why it was not done.
fn refuse(sale: &SaleId, error: &AdminError) -> anyhow::Result<ExitCode> {
    let final_answer = match error {
        AdminError::Unknown
        | AdminError::NotOpen
        | AdminError::Closed
        | AdminError::Unfollowable(_)
        | AdminError::Exists
        | AdminError::Invalid(_) => true,
        AdminError::Halted(_)
        | AdminError::OperatorCredentialsMissing
        | AdminError::NotCertified(_)
        | AdminError::Unavailable(_) => false,
    };
    if final_answer {
        output::complain(&format!("sale {sale} cannot be recovered: {error}"))?;
        return Ok(ExitCode::from(REFUSED));
    }
    output::complain(&format!(
        "sale {sale} is not recovered: {error}\n  the same command may be given again\n{STAYS}"
    ))?;
    Ok(ExitCode::from(COULD_NOT))
}

/// Who this is, for people who read of it in the log.
fn who() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("dropgate recover {} {}", host.trim(), std::process::id())
}

/// The most memory that this process has had, in bytes; `None` where that is not told.
fn peak_memory() -> Option<u64> {
    let status = procfs::process::Process::myself().ok()?.status().ok()?;
    Some(status.vmhwm? * 1024)
}
