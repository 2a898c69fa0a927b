//! `dropgate status`: one screen for the person on call.

mod ask;
mod judge;
mod screen;
mod seen;

use crate::args::Status as Args;
use crate::config;
use crate::output;
use dropgate_gateway::time::now_ms;
use seen::Status;
use std::path::Path;
use std::process::ExitCode;

pub async fn run(args: &Args, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let config = config::load(file)?;
    let answers = ask::everybody(args, &config).await?;
    let status = judge::status(&args.sale, &config, &answers, now_ms());
    let text = if args.json {
        serde_json::to_string_pretty(&status)?
    } else {
        screen::of(&status)
    };
    output::line(&text)?;
    Ok(code(&status))
}

fn code(status: &Status) -> ExitCode {
    ExitCode::from(match (status.anybody_answered, status.trouble.is_empty()) {
        (false, _) => 2,
        (true, false) => 1,
        (true, true) => 0,
    })
}
