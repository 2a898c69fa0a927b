//! The command line.

use clap::{Args, Parser, Subcommand};
use dropgate_domain::{SaleId, UserId};
use std::path::PathBuf;
use std::time::Duration;

const EXAMPLES: &str = "\
Examples:
  Everything in one process, beside a Redis on this machine (data in ./dropgate-data):
    dropgate serve
  A sale of 1,000 units, from another terminal in the same folder:
    dropgate sale create drop-1 --stock 1000
    dropgate sale open drop-1
  A claim by a user:
    curl -X POST -H \"Authorization: Bearer $(dropgate token --sub alice)\" \\
        http://127.0.0.1:8080/v1/sales/drop-1/claims
  How it stands, and why it does not sell:
    dropgate status --sale drop-1
  Afterwards:
    dropgate sale close drop-1
    dropgate reconcile --sale drop-1

Configuration:
  A TOML file (--config, or DROPGATE_CONFIG), over it the environment: DROPGATE_SECTION__KEY, as
  in DROPGATE_HTTP__BIND=0.0.0.0:8080. `dropgate config check` tells every problem at once.
  Sections: data, http, auth, admin, redis, redis_operator, log, engine, store, writer, ops,
  reconciler, watch, watch_ops, status, telemetry.

Exit codes:
  0  done
  1  the answer is no: a call was refused, or a promise does not hold
  2  it could not be done: wrong arguments or configuration, or something does not answer";

/// Sells limited units to many users at once, each unit exactly once.
#[derive(Debug, Parser)]
#[command(name = "dropgate", version, after_help = EXAMPLES)]
pub struct Cli {
    /// The configuration, TOML
    #[arg(long, global = true, env = "DROPGATE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,

    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Runs gateway, order-writer and watch in this process
    #[command(long_about = SERVE)]
    Serve,
    /// Creates, opens, closes and shows sales, by a gateway's admin API
    Sale(Sale),
    /// Tells how a sale stands, what happens next with it, and who lags behind
    #[command(long_about = STATUS)]
    Status(Status),
    /// Recovers a sale from its log, by hand
    #[command(long_about = RECOVER)]
    Recover(Recover),
    /// Runs until it is told to stop: recovers halted sales by itself
    #[command(long_about = dropgate_reconciler::cli::WATCH, after_help = WATCH)]
    Watch,
    /// Signs a user token, for trying things out
    #[command(long_about = TOKEN)]
    Token(Token),
    /// Compares Redis, log and database of a sale, and states every promise
    #[command(after_help = dropgate_reconciler::cli::AFTER_HELP)]
    Reconcile(dropgate_reconciler::cli::Args),
    /// Reads the log
    #[command(subcommand)]
    Log(LogCommand),
    /// Looks at the configuration
    #[command(subcommand)]
    Config(ConfigCommand),
}

const SERVE: &str = "\
Runs gateway, order-writer and watch in this process, until SIGTERM or SIGINT.

Without a configuration: clients on 127.0.0.1:8080, the admin API on 127.0.0.1:8081, the
order-writer's metrics on 127.0.0.1:8082, the watch's on 127.0.0.1:8083, Redis at 127.0.0.1:6379;
the log and the orders are files in ./dropgate-data. When [auth] or [admin] has no keys, keys are drawn at the first start
and kept in that folder, readable by its owner alone; the other commands find them there.

Redis must never evict (maxmemory-policy noeviction). With [redis_operator] sales are opened as
that user and claims are made as the restricted one of [redis]; without it, [redis] is used for
both.

The watch recovers by itself a sale that was halted, as `dropgate watch --help` tells.

At a shutdown the watch ends first. Then claims are finished, then the log is flushed, then what was won is written to
the database; what is left of that is written at the next start.";

const TOKEN: &str = "\
Signs a user token by the first key of [auth] and prints it.

Without keys in the configuration, the key that `dropgate serve` has drawn is used. Shops sign
tokens themselves: a JWT by HS256 with the header {typ: dropgate-user+jwt, kid} and the claims
{sub, aud, exp} and, if the token is for one sale alone, {sale}.";

const RECOVER: &str = "\
Recovers a sale from its log: what Redis still has of its generation is taken out of use, what
waits in its outbox is put into the log, and the next generation is built in Redis from the log
and made current. Whoever was told that they have won keeps their unit. `dropgate watch`, and
`dropgate serve`, do the same by themselves for a sale that was halted.

A sale that is live is left alone; with --force it is recovered too, and takes this release's
scripts by it: claims are answered 503 for a moment. With --dry-run nothing at all is changed;
whether Redis' clock is right and whether it takes writes is only found out by a recovery.

It may be broken off at any step (Ctrl-C, kill -9, a lost connection) and given again, also while
another recovers the same sale: the log lets one of them begin a generation.

With a log in Kafka it is done here, and needs Redis as the operator of deploy/redis/users.acl
([redis_operator]). With the embedded log, which only `dropgate serve` writes, or with --admin-url,
a gateway does it.

Exit codes:
  0  the sale is live, recovered by this command, by somebody else, or not in need of it
  1  it cannot be recovered: closed, never opened, unknown, or its log cannot be followed
  2  it could not be done now: the sale stays closed, and the command may be given again";

const WATCH: &str = "\
With the configuration of this command its port is watch_ops.bind, and not ops.bind, which is the
order-writer's; and Redis is [redis_operator]. With the embedded log `dropgate serve` watches.";

const STATUS: &str = "\
Tells on one screen how a sale stands: its state and since when, who halted it and why, what
happens next and when, how often it was recovered lately, and how far each of its readers is
behind the log: Redis, the database, each gateway. Reads only.

Log, Redis and database are asked as the configuration says; the gateways of [status] or --gateway
(if none are named: http://<http.admin_bind>) for their readiness and, with the admin key, how far
they are; the watch of [status] or --watch (with the embedded log: http://<watch_ops.bind>) for what
it does next. Without a watch the same rule is applied to what is seen. What does not answer is
shown as unknown, with its reason, and keeps nobody from being shown.

Exit codes:
  0  the sale is live, closed, or not opened yet
  1  it is in trouble, or how it stands is not known
  2  nothing could be asked";

/// Recovers a sale from its log, by hand.
#[derive(Debug, Args)]
pub struct Recover {
    /// The sale
    #[arg(long, value_name = "ID")]
    pub sale: SaleId,
    /// Change nothing: tell how the sale stands, what Redis has, and what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Recover also a sale that is live
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub admin: Admin,
}

/// Tells how a sale stands.
#[derive(Debug, Args)]
pub struct Status {
    /// The sale
    #[arg(long, value_name = "ID")]
    pub sale: SaleId,
    /// A gateway's port for operators; may be given again. In place of status.gateways
    #[arg(long, value_parser = crate::http::url, value_name = "URL")]
    pub gateway: Vec<String>,
    /// The watch's port for operators. In place of status.watch
    #[arg(long, value_parser = crate::http::url, value_name = "URL")]
    pub watch: Option<String>,
    /// How long each of them may take to answer [default: status.timeout, 5s]
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub timeout: Option<Duration>,
    /// File with the admin key
    #[arg(long, env = "DROPGATE_ADMIN_KEY_FILE", value_name = "FILE")]
    pub admin_key_file: Option<PathBuf>,
    /// Print it as JSON
    #[arg(long)]
    pub json: bool,
}

/// Creates, opens, closes and shows sales, by a gateway's admin API.
#[derive(Debug, Args)]
#[command(after_help = "\
The admin key is taken from the variable DROPGATE_ADMIN_KEY, else from --admin-key-file, else from
[admin] of the configuration, else from the data folder of `dropgate serve`. Never from the command
line, which other users of the machine can read.")]
pub struct Sale {
    #[command(flatten)]
    pub admin: Admin,

    #[command(subcommand)]
    pub command: SaleCommand,
}

/// Where the admin API is.
#[derive(Debug, Args)]
pub struct Admin {
    /// Base URL of the admin API; http://<http.admin_bind of the configuration> if not given
    #[arg(
        long,
        global = true,
        env = "DROPGATE_ADMIN_URL",
        value_parser = crate::http::url,
        value_name = "URL"
    )]
    pub admin_url: Option<String>,

    /// File with the admin key
    #[arg(
        long,
        global = true,
        env = "DROPGATE_ADMIN_KEY_FILE",
        value_name = "FILE"
    )]
    pub admin_key_file: Option<PathBuf>,

    /// How long to wait for the gateway's answer [default: 30s; for recover 10m]
    #[arg(long, global = true, value_parser = duration, value_name = "TIME")]
    pub timeout: Option<Duration>,

    /// Print the answer as JSON
    #[arg(long, global = true)]
    pub json: bool,
}

#[derive(Debug, Subcommand)]
pub enum SaleCommand {
    /// Creates a sale; it takes no claims until it is opened
    ///
    /// The same again changes nothing and is no error; another definition under the same id is.
    Create {
        /// The sale's id: 1 to 63 of a-z, 0-9 and '-'
        #[arg(value_name = "ID")]
        sale: SaleId,
        /// Units for sale, 0 to 10000000
        #[arg(long, value_name = "N")]
        stock: u64,
        /// Units that one user may have, 1 to 16
        #[arg(long, default_value_t = 1, value_name = "N")]
        per_user_limit: u32,
        /// From when claims are taken, as 2026-01-31T09:00:00Z; from the opening on if not given
        #[arg(long, value_name = "INSTANT")]
        opens_at: Option<String>,
        /// From when claims are no longer taken; until the sale is closed if not given
        #[arg(long, value_name = "INSTANT")]
        closes_at: Option<String>,
    },
    /// Opens a sale: it takes claims, from its opens_at on if it has one
    Open {
        /// The sale's id
        #[arg(value_name = "ID")]
        sale: SaleId,
    },
    /// Closes a sale, for good
    Close {
        /// The sale's id
        #[arg(value_name = "ID")]
        sale: SaleId,
    },
    /// Shows a sale
    Show {
        /// The sale's id
        #[arg(value_name = "ID")]
        sale: SaleId,
    },
}

#[derive(Debug, Args)]
pub struct Token {
    /// The user
    #[arg(long, value_name = "USER")]
    pub sub: UserId,
    /// The only sale that it is good for
    #[arg(long, value_name = "ID")]
    pub sale: Option<SaleId>,
    /// For how long it is good
    #[arg(long, default_value = "1h", value_parser = duration, value_name = "TIME")]
    pub ttl: Duration,
}

#[derive(Debug, Subcommand)]
pub enum LogCommand {
    /// Writes every record of the log, as JSON lines
    ///
    /// One line a record: {"topic": "dropgate-sales" | "dropgate-claims", "partition", "offset",
    /// "value": base64}. From the first record that there is to the end at the start of the
    /// command, of the index and of every partition of claims. May be used while the log is
    /// written. A file is complete when it is there: it gets its name last.
    Dump {
        /// The file; - for standard output
        #[arg(long, value_name = "FILE")]
        out: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Tells every problem of the configuration, and otherwise where things are
    Check,
}

/// A time as people write it: 90s, 1h, 2m 30s.
pub fn duration(text: &str) -> Result<Duration, String> {
    match humantime::parse_duration(text) {
        Ok(duration) if !duration.is_zero() => Ok(duration),
        _ => Err("a time longer than zero, as in 90s or 1h".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_key_has_no_place_on_the_command_line() {
        let mut command = Cli::command();
        for name in [
            "sale",
            "token",
            "serve",
            "reconcile",
            "recover",
            "status",
            "watch",
        ] {
            let help = command
                .find_subcommand_mut(name)
                .unwrap()
                .render_long_help()
                .to_string();
            assert!(
                !help.contains("--admin-key ") && !help.contains("--secret"),
                "{help}"
            );
        }
    }

    #[test]
    fn times_are_as_people_write_them() {
        assert_eq!(duration("1h").unwrap(), Duration::from_secs(3600));
        assert_eq!(duration("2m 30s").unwrap(), Duration::from_secs(150));
        for bad in ["", "0s", "1", "soon"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
