//! The command line.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Parser;

use crate::target::Target;
use crate::user::RepeatKey;

const EXAMPLES: &str = "\
Examples:
  Find the rate that a gateway sustains, with a sale made for it:
    dropgate-loadtest --target http://127.0.0.1:8080 --sale probe \\
        --token-secret-file secret --probe-seconds 2
  100,000 users at 5,000 clicks a second, one in ten clicking twice:
    dropgate-loadtest --target http://127.0.0.1:8080 --sale drop-1 \\
        --token-secret-file secret --users 100000 --repeat-share 0.1 \\
        --rate 5000 --report load.json --transcript told.jsonl
  10,000 users in the same instant, two gateways:
    dropgate-loadtest --target http://127.0.0.1:8080,http://127.0.0.1:8081 \\
        --sale drop-1 --token-secret-file secret --users 10000 --spike

Exit codes:
  0  it ran, and every click's last answer is final
  1  it ran, but clicks ended pending or in errors, or a promise was seen broken
     (a winner's repeat got another claim, or two users got the same unit)
  2  it did not run: bad arguments, a limit of the machine that is too small, a
     generator that is too slow for the rate, or a file that cannot be written";

/// A load generator for claims: an open model, so that a slow server cannot
/// slow down the users who come to it.
///
/// Users come at a fixed rate (or all at once), each with a token and a key of
/// their own. A click ends with a final answer: won, the same claim again, sold
/// out, or another 4xx. 202 is polled; 503, void and broken connections are
/// tried again with the same key. Latency runs from the moment the click was
/// meant to be made to its final answer. Load goes to this machine only.
#[derive(Debug, Parser)]
#[command(name = "dropgate-loadtest", version, after_help = EXAMPLES)]
pub struct Args {
    /// Base URL of a gateway, on loopback; repeat or separate by commas for
    /// several, which get the connections in turn
    #[arg(long, required = true, value_delimiter = ',', value_name = "URL")]
    pub target: Vec<Target>,

    /// URLs that say whether each target is ready (by 200), in the order of the
    /// targets: then connections are turned away from one that is not while
    /// another is, as a load balancer does
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "URL",
        conflicts_with = "probe_seconds"
    )]
    pub readiness: Vec<Target>,

    /// How often readiness is asked for
    #[arg(long, default_value_t = 0.2, value_parser = positive, value_name = "SECONDS",
          requires = "readiness")]
    pub readiness_interval: f64,

    /// Id of the sale
    #[arg(long, value_parser = sale_id, value_name = "ID")]
    pub sale: String,

    /// Clicks a second, repeats included
    #[arg(long, value_parser = positive, value_name = "PER_SECOND",
          required_unless_present_any = ["spike", "probe_seconds"],
          conflicts_with_all = ["spike", "probe_seconds"])]
    pub rate: Option<f64>,

    /// Everybody at once, each click on a connection of its own
    #[arg(long, conflicts_with = "probe_seconds")]
    pub spike: bool,

    /// Do not run a sale: find the rate that the target sustains (closed loop,
    /// new users only, for so long) and print it as JSON
    #[arg(long, value_parser = positive, value_name = "SECONDS")]
    pub probe_seconds: Option<f64>,

    /// Number of distinct users
    #[arg(long, default_value_t = 1000, value_name = "N",
          value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub users: u64,

    /// Share of users who click twice, 0 to 1
    #[arg(long, default_value_t = 0.0, value_parser = share, value_name = "SHARE")]
    pub repeat_share: f64,

    /// Half of the repeats come at once, the others at random within this time
    #[arg(long, default_value_t = 2.0, value_parser = positive, value_name = "SECONDS")]
    pub repeat_within: f64,

    /// Idempotency key of a repeat
    #[arg(long, value_enum, default_value_t = RepeatKey::Same)]
    pub repeat_key: RepeatKey,

    /// Connections open at most: 256 if not given, 64 for a probe (a spike has
    /// one for each click)
    #[arg(long, value_name = "N", conflicts_with = "spike",
          value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub connections: Option<u32>,

    /// Loopback source addresses, from 127.0.0.2 upward, that the connections
    /// are spread over
    #[arg(long, default_value_t = 8, value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=250))]
    pub sources: u8,

    /// Threads that drive clicks; one is enough for tens of thousands a second
    #[arg(long, default_value_t = 1, value_name = "N",
          value_parser = clap::value_parser!(u8).range(1..=64))]
    pub threads: u8,

    /// File with the secret that user tokens are signed with (HS256); one
    /// newline at its end is not part of it. Without it, the secret is taken
    /// from the variable DROPGATE_LOADTEST_TOKEN_SECRET
    #[arg(long, value_name = "PATH")]
    pub token_secret_file: Option<PathBuf>,

    /// Key id (`kid`) of user tokens
    #[arg(long, default_value = "loadtest", value_name = "KID")]
    pub token_kid: String,

    /// Audience (`aud`) of user tokens
    #[arg(long, default_value = "dropgate", value_name = "AUD")]
    pub token_audience: String,

    /// Bind tokens to the sale (claim `sale`)
    #[arg(long)]
    pub token_for_sale: bool,

    /// Users are named by this prefix and a number
    #[arg(long, default_value = "user-", value_parser = user_prefix, value_name = "TEXT")]
    pub user_prefix: String,

    /// How long after a click its claim may be tried again or polled
    #[arg(long, default_value_t = 60.0, value_parser = positive, value_name = "SECONDS")]
    pub retry_budget: f64,

    /// Time limit of one request, connecting included
    #[arg(long, default_value_t = 10.0, value_parser = positive, value_name = "SECONDS")]
    pub request_timeout: f64,

    /// Before the run, measure for so long what the generator itself reaches
    /// against a static handler, and refuse to run below 1.5 times the rate
    #[arg(long, value_parser = positive, value_name = "SECONDS", requires = "rate")]
    pub headroom_seconds: Option<f64>,

    /// Write the report here, as JSON
    #[arg(long, value_name = "PATH")]
    pub report: Option<PathBuf>,

    /// Write what each user was told here, one JSON line each
    #[arg(long, value_name = "PATH", conflicts_with = "probe_seconds")]
    pub transcript: Option<PathBuf>,

    /// Report the peak memory of this process, too (repeat for several)
    #[arg(long, value_name = "NAME=PID")]
    pub watch_pid: Vec<WatchPid>,

    /// Fixes which times random repeats and waits have
    #[arg(long, default_value_t = 1)]
    pub seed: u64,

    /// No progress on stderr
    #[arg(long)]
    pub quiet: bool,
}

/// A process whose memory is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchPid {
    /// Its name in the report.
    pub name: String,
    /// Its process id.
    pub pid: i32,
}

impl FromStr for WatchPid {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text
            .split_once('=')
            .and_then(|(name, pid)| Some((name, pid.parse().ok()?)));
        match parsed {
            Some((name, pid)) if !name.is_empty() && pid > 0 => Ok(Self {
                name: name.to_owned(),
                pid,
            }),
            _ => Err("it must be like gateway=1234".to_owned()),
        }
    }
}

fn positive(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        // A week of seconds, ten million a second: above is a slip.
        Ok(value) if value > 0.0 && value <= 1e7 => Ok(value),
        _ => Err("it must be a number above 0, at most 10000000".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Ok(value),
        _ => Err("it must be a number from 0 to 1".to_owned()),
    }
}

fn sale_id(text: &str) -> Result<String, String> {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let good = (1..=63).contains(&text.len()) && !text.starts_with('-') && text.bytes().all(inner);
    good.then(|| text.to_owned())
        .ok_or_else(|| "a sale's id is [a-z0-9][a-z0-9-]{0,62}".to_owned())
}

fn user_prefix(text: &str) -> Result<String, String> {
    let good = text.len() <= 200 && text.bytes().all(|byte| byte.is_ascii_graphic());
    good.then(|| text.to_owned())
        .ok_or_else(|| "it must be printable ASCII without spaces, at most 200".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parse(more: &[&str]) -> Result<Args, clap::Error> {
        let base = [
            "x",
            "--target",
            "http://127.0.0.1:1",
            "--sale",
            "s",
            "--token-secret-file",
            "f",
        ];
        Args::try_parse_from(base.iter().chain(more))
    }

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn one_mode_must_be_chosen_and_only_one() {
        assert!(parse(&["--rate", "10"]).is_ok());
        assert!(parse(&["--spike"]).is_ok());
        assert!(parse(&["--probe-seconds", "2"]).is_ok());
        assert!(parse(&[]).is_err());
        assert!(parse(&["--rate", "10", "--spike"]).is_err());
        assert!(parse(&["--spike", "--probe-seconds", "2"]).is_err());
    }

    #[test]
    fn nonsense_is_refused() {
        for more in [
            ["--rate", "0"],
            ["--rate", "NaN"],
            ["--rate", "inf"],
            ["--rate", "-1"],
            ["--users", "0"],
            ["--repeat-share", "1.1"],
            ["--watch-pid", "gateway"],
            ["--watch-pid", "=1"],
            ["--connections", "0"],
        ] {
            assert!(parse(&["--spike", more[0], more[1]]).is_err(), "{more:?}");
        }
    }

    #[test]
    fn a_target_elsewhere_is_refused_with_its_name() {
        let error = Args::try_parse_from([
            "x",
            "--target",
            "http://192.0.2.1:80",
            "--sale",
            "s",
            "--token-secret-file",
            "f",
            "--spike",
        ])
        .unwrap_err()
        .to_string();
        assert!(
            error.contains("192.0.2.1") && error.contains("loopback only"),
            "{error}"
        );
    }
}
