//! Logs: one line an event, on standard error.
//!
//! Messages are constant and in lower case; what varies is in fields, so that lines can be
//! counted and searched. Standard output is left to what a command prints.

use crate::config::{Problem, Validate};
use serde::Deserialize;
use std::io::IsTerminal;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt;

/// `[telemetry]`: how the logs look and how many there are.
#[derive(Debug, Clone, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// One JSON object a line, or text for people.
    pub format: Format,
    /// What is logged: a level, and levels by target, as in `info,dropgate_engine=debug`.
    pub filter: String,
}

/// The form of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// One JSON object.
    Json,
    /// For people.
    Text,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            format: Format::Json,
            // The HTTP server tells of each of its threads.
            filter: "info,actix_server=warn".into(),
        }
    }
}

impl Validate for TelemetryConfig {
    fn problems(&self) -> Vec<Problem> {
        match EnvFilter::try_new(&self.filter) {
            Ok(_) => Vec::new(),
            Err(_) => vec![Problem::new(
                "filter",
                "levels as in \"info,dropgate_engine=debug\"",
            )],
        }
    }
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The filter cannot be read.
    #[error("telemetry.filter: {0}")]
    Filter(#[from] tracing_subscriber::filter::ParseError),
    /// Something else in this process logs already.
    #[error("logging is set up already: {0}")]
    Taken(#[from] tracing_subscriber::util::TryInitError),
}

/// Sets up logging for this process. Once, at its beginning.
///
/// # Errors
/// A filter that cannot be read, or logging that is set up already.
pub fn init(config: &TelemetryConfig) -> Result<(), InitError> {
    let filter = EnvFilter::try_new(&config.filter)?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    match config.format {
        Format::Json => builder.json().flatten_event(true).finish().try_init()?,
        Format::Text => {
            let colours = std::io::stderr().is_terminal();
            builder.with_ansi(colours).finish().try_init()?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_that_cannot_be_read_is_a_problem_of_the_config() {
        let config = TelemetryConfig {
            filter: "info,dropgate=loud".into(),
            ..TelemetryConfig::default()
        };
        assert_eq!(config.problems()[0].path, "filter");
        assert!(TelemetryConfig::default().problems().is_empty());
    }
}
