//! `dropgate token`: a signed user token.

use crate::args::Token;
use crate::config::Config;
use crate::{keys, output};
use anyhow::Context;
use dropgate_gateway::auth::issue;
use std::process::ExitCode;

pub fn run(config: &Config, token: &Token) -> anyhow::Result<ExitCode> {
    let key = keys::token_key(config)?;
    let audience = &config.auth.audience;
    let signed = issue(&key, &token.sub, audience, token.sale.as_ref(), token.ttl)
        .context("the token cannot be signed")?;
    output::line(&signed)?;
    Ok(ExitCode::SUCCESS)
}
