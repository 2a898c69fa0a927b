//! What is to be run: arguments, checked and made ready.

use std::fs;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;

use crate::args::Args;
use crate::balancer::Balancer;
use crate::limits::Need;
use crate::schedule::{Part, Repeats};
use crate::target::Target;
use crate::user::{Signing, Users};

/// Where the secret is when no file is given. Not an argument: those are public.
const SECRET_VARIABLE: &str = "DROPGATE_LOADTEST_TOKEN_SECRET";
/// Connections when none are asked for.
const CONNECTIONS: u32 = 256;
const CONNECTIONS_OF_A_PROBE: u32 = 64;

/// How clicks come.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Mode {
    /// At a fixed rate.
    Open {
        /// Clicks a second.
        rate: f64,
    },
    /// All at once.
    Spike,
    /// As fast as answers come, to find a rate.
    Probe {
        /// For how long.
        time: Duration,
    },
}

/// What all threads of a run share.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where to, at least one.
    pub targets: Vec<Arc<Target>>,
    /// From where, at least one.
    pub sources: Vec<Ipv4Addr>,
    /// Who is left out, if somebody is to be.
    pub balancer: Option<Arc<Balancer>>,
    /// The sale.
    pub sale: String,
    /// How clicks come.
    pub mode: Mode,
    /// Number of users.
    pub users: u64,
    /// Who clicks twice.
    pub repeats: Repeats,
    /// Connections at most, over all threads.
    pub connections: usize,
    /// Number of threads.
    pub threads: u64,
    /// No request of a click starts later than this after it.
    pub retry_budget: Duration,
    /// The time limit of a request.
    pub request_timeout: Duration,
}

impl Plan {
    /// The plan that the arguments ask for.
    #[must_use]
    pub fn of(args: &Args) -> Self {
        let mode = match (args.rate, args.probe_seconds) {
            (Some(rate), _) => Mode::Open { rate },
            (None, Some(seconds)) => Mode::Probe {
                time: Duration::from_secs_f64(seconds),
            },
            (None, None) => Mode::Spike,
        };
        let connections = args.connections.unwrap_or(match mode {
            Mode::Probe { .. } => CONNECTIONS_OF_A_PROBE,
            Mode::Open { .. } | Mode::Spike => CONNECTIONS,
        });
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of 0 to 1, checked when it was parsed"
        )]
        let per_million = (args.repeat_share * 1e6).round() as u32;
        Self {
            targets: args.target.iter().cloned().map(Arc::new).collect(),
            sources: (0..args.sources)
                .map(|nth| Ipv4Addr::new(127, 0, 0, 2 + nth))
                .collect(),
            balancer: (!args.readiness.is_empty())
                .then(|| Arc::new(Balancer::new(args.target.len()))),
            sale: args.sale.clone(),
            mode,
            users: args.users,
            repeats: Repeats {
                per_million,
                within: Duration::from_secs_f64(args.repeat_within),
                seed: args.seed,
            },
            connections: connections as usize,
            threads: u64::from(args.threads).min(u64::from(connections)),
            retry_budget: Duration::from_secs_f64(args.retry_budget),
            request_timeout: Duration::from_secs_f64(args.request_timeout),
        }
    }

    /// The parts that the threads drive.
    pub fn parts(&self) -> impl Iterator<Item = Part> + use<> {
        let count = self.threads;
        (0..count).map(move |index| Part { index, count })
    }

    /// How many of the connections are this part's.
    #[must_use]
    pub fn connections_of(&self, part: Part) -> usize {
        let connections = part.users(self.connections as u64);
        usize::try_from(connections).unwrap_or(usize::MAX)
    }

    /// How many clicks there will be; 0 for a probe, which does not know.
    #[must_use]
    pub fn clicks(&self) -> u64 {
        let of = |part: Part| {
            let users = part.users(self.users);
            users + self.repeats.count(users)
        };
        match self.mode {
            Mode::Probe { .. } => 0,
            Mode::Open { .. } | Mode::Spike => self.parts().map(of).sum(),
        }
    }

    /// What the run needs of the machine.
    #[must_use]
    pub fn need(&self) -> Need {
        let at_once = self.mode == Mode::Spike;
        Need {
            connections: if at_once {
                self.clicks()
            } else {
                self.connections as u64
            },
            sources: self.sources.len() as u64,
            targets: self.targets.len() as u64,
            at_once,
        }
    }

    /// The longest time that the run can take: its schedule, the retry budget
    /// and a last request.
    #[must_use]
    pub fn longest(&self) -> Duration {
        #[expect(
            clippy::cast_precision_loss,
            reason = "exact below 2^53 clicks, which would take years to send"
        )]
        let schedule = match self.mode {
            Mode::Open { rate } => {
                Duration::try_from_secs_f64(self.clicks() as f64 / rate).unwrap_or(Duration::MAX)
            }
            Mode::Spike => self.repeats.within,
            Mode::Probe { time } => time,
        };
        schedule
            .saturating_add(self.retry_budget)
            .saturating_add(self.request_timeout)
    }
}

/// The users that the arguments ask for.
///
/// # Errors
/// When the secret cannot be read or used.
pub fn users(args: &Args, plan: &Plan) -> anyhow::Result<Users> {
    let secret = match &args.token_secret_file {
        Some(path) => {
            let mut secret = fs::read(path)
                .with_context(|| format!("cannot read the token secret {}", path.display()))?;
            if secret.last() == Some(&b'\n') {
                secret.pop();
            }
            secret
        }
        None => std::env::var(SECRET_VARIABLE)
            .with_context(|| {
                format!("no token secret: give --token-secret-file or {SECRET_VARIABLE}")
            })?
            .into_bytes(),
    };
    // An hour on top: a token must not run out in mid-run.
    let valid_s = plan.longest().as_secs().saturating_add(3600);
    let signing = Signing {
        secret: &secret,
        kid: &args.token_kid,
        audience: &args.token_audience,
        sale: args.token_for_sale.then_some(args.sale.as_str()),
        valid_s,
    };
    Users::new(&args.user_prefix, args.repeat_key, &signing)
}
