//! What is shown of a sale. What is not known is `unknown`, with its reason, and never a zero.

use dropgate_gateway::routes::recover::{RedisSeen, StandingSeen};
use dropgate_gateway::time::Rfc3339;
use serde::Serialize;

/// An answer, or why there is none.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked<T> {
    /// The answer.
    Known(T),
    /// Why it is not known.
    Unknown(String),
}

impl<T> Asked<T> {
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Unknown(_) => None,
        }
    }

    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Asked<U> {
        match self {
            Self::Known(value) => Asked::Known(f(value)),
            Self::Unknown(why) => Asked::Unknown(why),
        }
    }
}

/// A sale, as all who were asked see it.
#[derive(Debug, Serialize)]
pub struct Status {
    pub sale: String,
    /// When they were asked, by this machine's clock.
    pub at: Rfc3339,
    /// How it stands, by log and Redis.
    pub standing: Asked<Standing>,
    /// What happens next.
    pub next: Asked<Next>,
    pub log: Asked<LogSeen>,
    pub redis: Asked<RedisReader>,
    pub database: Asked<Reader>,
    pub gateways: Vec<Gateway>,
    /// The watch; nobody was asked when there is none.
    pub watch: Option<Watch>,
    /// Everything that a person should look at; empty when nothing is.
    pub trouble: Vec<String>,
    /// Whether anybody at all has said anything.
    pub anybody_answered: bool,
}

/// How it stands.
#[derive(Debug, Clone, Serialize)]
pub struct Standing {
    #[serde(flatten)]
    pub seen: StandingSeen,
    pub generation: u32,
    pub wins: u64,
    pub stock: u64,
    pub recoveries: Recoveries,
    pub opens_at: Option<Rfc3339>,
    pub closes_at: Option<Rfc3339>,
    pub closed_at: Option<Rfc3339>,
}

/// How often it was recovered lately.
#[derive(Debug, Clone, Serialize)]
pub struct Recoveries {
    /// Of so many.
    pub lately: usize,
    /// That the watch makes.
    pub max: u32,
    /// Within this.
    pub within: String,
}

/// What happens next.
#[derive(Debug, Clone, Serialize)]
pub struct Next {
    /// `nothing`, `wait`, `recover`, `recovering`, `held`, `stays_closed`, `hopeless`.
    pub next: String,
    pub says: String,
    /// Who says so.
    pub by: String,
}

/// The log.
#[derive(Debug, Clone, Serialize)]
pub struct LogSeen {
    /// `generation.seq` of the last event that is applied; null before the opening.
    pub position: Option<String>,
    pub partition: u32,
    /// Read to there.
    pub end: u64,
}

/// How far behind the log somebody is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Lag {
    pub events: u64,
    /// Generations that it has not seen begin.
    pub generations: u32,
    /// How long ago the first event happened that it does not have; null when that is not known.
    pub ms: Option<u64>,
}

/// A reader of the log.
#[derive(Debug, Clone, Serialize)]
pub struct Reader {
    /// `generation.seq`; null when it has nothing of the sale.
    pub position: Option<String>,
    /// Null when the log's position is not known.
    pub lag: Option<Lag>,
}

/// Redis, which is before the log, not behind it.
#[derive(Debug, Clone, Serialize)]
pub struct RedisReader {
    /// Without the log only the tag that is current is known.
    pub current: Option<String>,
    /// What it has of the generation.
    pub seen: Option<RedisSeen>,
}

/// A gateway.
#[derive(Debug, Clone, Serialize)]
pub struct Gateway {
    pub url: String,
    pub ready: Asked<Ready>,
    pub sale: Asked<GatewaySale>,
}

/// Whether it is ready.
#[derive(Debug, Clone, Serialize)]
pub struct Ready {
    pub ready: bool,
    /// Why not.
    pub reasons: Vec<String>,
}

/// The sale, as a gateway has it.
#[derive(Debug, Clone, Serialize)]
pub struct GatewaySale {
    pub state: String,
    pub trouble: Option<String>,
    #[serde(flatten)]
    pub reader: Reader,
    /// How old this may be, at most; null when it is not known.
    pub staleness_ms_max: Option<u64>,
}

/// The watch.
#[derive(Debug, Clone, Serialize)]
pub struct Watch {
    pub url: String,
    pub ready: Asked<Ready>,
}
