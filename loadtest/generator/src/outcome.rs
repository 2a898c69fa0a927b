//! What one click does next: pure, from an answer to a step.
//!
//! ```text
//!            201, 200 won                              -> Won
//!            409 sold_out                              -> SoldOut
//!   claim -- any other 4xx                             -> Refused
//!     ^      503, other 5xx, broken connection         -> claim again, same key
//!     |      202 + Location                            -> poll
//!     |      anything else                             -> Error(BadAnswer)
//!     |
//!     +----- 200 void, 503 with code void              <- poll
//!            202, 5xx, broken connection: poll again; 200 won | sold_out, 4xx: the end
//! ```
//! A step that would start after the budget is not taken: the click ends as
//! what it was told last, `Pending` or `Error`.

use std::time::Duration;

use serde::Deserialize;

/// How much of `Retry-After` may be added, so that clients told the same second
/// do not come back together.
const JITTER: f64 = 0.25;
/// The waits of a client that was told no `Retry-After`.
const POLL_FIRST: Duration = Duration::from_millis(100);
const POLL_LONGEST: Duration = Duration::from_secs(2);
const RETRY_FIRST: Duration = Duration::from_millis(100);
const RETRY_LONGEST: Duration = Duration::from_secs(5);
/// A server that says "after 0 seconds" is not taken at its word.
const RETRY_SHORTEST: Duration = Duration::from_millis(50);

/// How a request failed without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Broken {
    /// Nobody listens.
    Refused,
    /// The connection was reset.
    Reset,
    /// The connection ended before the whole answer had come.
    Closed,
    /// No answer within the request's time limit.
    Timeout,
    /// This machine has no port or file descriptor left.
    Exhausted,
    /// The answer is not HTTP, or is larger than any answer of the API.
    NotHttp,
    /// Any other failure of the socket.
    Other,
}

impl Broken {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Reset => "reset",
            Self::Closed => "closed",
            Self::Timeout => "timeout",
            Self::Exhausted => "exhausted",
            Self::NotHttp => "not_http",
            Self::Other => "other",
        }
    }
}

/// The fields that count of any JSON body of the API, problems included.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Body {
    /// The claim's id.
    pub claim: Option<String>,
    /// The unit that was won.
    pub unit: Option<u64>,
    /// `won`, `void`, `sold_out`; a number in a problem document.
    #[serde(default)]
    pub status: Option<serde_json::Value>,
    /// A problem's code.
    pub code: Option<String>,
}

impl Body {
    fn status(&self) -> Option<&str> {
        self.status.as_ref().and_then(serde_json::Value::as_str)
    }
}

/// An answer, as far as it counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The `Location` header.
    pub location: Option<String>,
    /// The `Retry-After` header, if it is in seconds.
    pub retry_after: Option<Duration>,
    /// The body, if it is JSON of the API's shape.
    pub body: Option<Body>,
}

/// What a click asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ask {
    /// A claim.
    Claim,
    /// What became of the claim at this location.
    Poll(Box<str>),
}

/// A unit, as a user was told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Win {
    /// The claim's id.
    pub claim: String,
    /// The unit's number.
    pub unit: u64,
    /// It was told as "the same claim again" (200), not as a new win.
    pub again: bool,
}

/// Why a click ended without an answer that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// The last request got no answer.
    Broken(Broken),
    /// The last answer was 503.
    Unavailable,
    /// The last answer was void, and there was no time to try again.
    Void,
    /// The last answer was another 5xx.
    Server,
    /// An answer that the API does not have, and why it is none.
    BadAnswer(&'static str),
    /// The budget was over before a connection was free.
    NotSent,
}

impl Fault {
    /// The name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Broken(broken) => broken.name(),
            Self::Unavailable => "unavailable",
            Self::Void => "void",
            Self::Server => "server_error",
            Self::BadAnswer(_) => "bad_answer",
            Self::NotSent => "not_sent",
        }
    }
}

/// How a click ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// With a unit.
    Won(Win),
    /// With "sold out".
    SoldOut,
    /// With another 4xx.
    Refused {
        /// The HTTP status.
        status: u16,
        /// The problem's code, if there was one.
        code: Option<String>,
    },
    /// Still pending when the budget was over.
    Pending,
    /// Without an answer that counts.
    Error(Fault),
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The click is done.
    Done(End),
    /// Ask (see [`Journey::ask`]) after this time.
    Ask {
        /// How long to wait first.
        after: Duration,
        /// The user was told "void" just now.
        void: bool,
    },
}

/// The time that a click has used, and has.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    /// Since the click's intended start.
    pub elapsed: Duration,
    /// After this, no further request is sent.
    pub budget: Duration,
}

/// One click on its way to a final answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Journey {
    ask: Ask,
    claims: u32,
    polls: u32,
    unlucky: u32,
    waits: u32,
}

impl Default for Journey {
    fn default() -> Self {
        Self {
            ask: Ask::Claim,
            claims: 0,
            polls: 0,
            unlucky: 0,
            waits: 0,
        }
    }
}

/// What an answer means, before time is considered.
enum Verdict {
    End(End),
    Pending(Option<Box<str>>),
    Claim(Fault),
    Same(Fault),
}

impl Journey {
    /// What to ask for now.
    #[must_use]
    pub fn ask(&self) -> &Ask {
        &self.ask
    }

    /// The number of claims sent so far, the one under way included.
    #[must_use]
    pub fn claims_sent(&self) -> u32 {
        self.claims
    }

    /// The number of polls sent so far.
    #[must_use]
    pub fn polls_sent(&self) -> u32 {
        self.polls
    }

    /// Counts a request that is about to be sent.
    pub fn sending(&mut self) {
        match self.ask {
            Ask::Claim => self.claims += 1,
            Ask::Poll(_) => self.polls += 1,
        }
    }

    /// The step after an answer, or after none. `draw` in 0..1 is the jitter.
    pub fn step(&mut self, seen: &Result<Answer, Broken>, clock: Clock, draw: f64) -> Step {
        let verdict = match seen {
            Ok(answer) => match self.ask {
                Ask::Claim => judge_claim(answer),
                Ask::Poll(_) => judge_poll(answer),
            },
            Err(broken) => Verdict::Same(Fault::Broken(*broken)),
        };
        let told = seen.as_ref().ok().and_then(|answer| answer.retry_after);
        let (after, otherwise, void) = match verdict {
            Verdict::End(end) => return Step::Done(end),
            Verdict::Pending(location) => {
                if let Some(location) = location {
                    self.ask = Ask::Poll(location);
                }
                self.unlucky = 0;
                self.waits += 1;
                let after = wait(told, POLL_FIRST, POLL_LONGEST, self.waits, draw);
                (after, End::Pending, false)
            }
            Verdict::Claim(fault) => {
                self.ask = Ask::Claim;
                self.waits = 0;
                self.unlucky += 1;
                let after = wait(told, RETRY_FIRST, RETRY_LONGEST, self.unlucky, draw);
                (after, End::Error(fault), fault == Fault::Void)
            }
            Verdict::Same(fault) => {
                self.unlucky += 1;
                let after = wait(told, RETRY_FIRST, RETRY_LONGEST, self.unlucky, draw);
                (after, End::Error(fault), false)
            }
        };
        if clock.elapsed + after > clock.budget {
            return Step::Done(otherwise);
        }
        Step::Ask { after, void }
    }
}

/// `Retry-After` with jitter on top, else a wait that grows by half each time,
/// a quarter up or down.
fn wait(
    told: Option<Duration>,
    first: Duration,
    longest: Duration,
    nth: u32,
    draw: f64,
) -> Duration {
    if let Some(told) = told {
        return told.max(RETRY_SHORTEST).mul_f64(1.0 + JITTER * draw);
    }
    // 1.5^12 is beyond every limit here; capping the exponent keeps it finite.
    let exponent = i32::try_from(nth.saturating_sub(1).min(12)).unwrap_or(12);
    let grown = first.mul_f64(1.5_f64.powi(exponent)).min(longest);
    grown.mul_f64(1.0 - JITTER + 2.0 * JITTER * draw)
}

fn bad(why: &'static str) -> Verdict {
    Verdict::End(End::Error(Fault::BadAnswer(why)))
}

fn judge_claim(answer: &Answer) -> Verdict {
    match answer.status {
        201 => win(answer, false),
        200 => settled(answer, true),
        202 => match &answer.location {
            Some(location) => Verdict::Pending(Some(location.as_str().into())),
            None => bad("202 without a Location that can be followed"),
        },
        _ => judge_refusal(answer),
    }
}

fn judge_poll(answer: &Answer) -> Verdict {
    match answer.status {
        200 => settled(answer, false),
        202 => Verdict::Pending(answer.location.as_deref().map(Into::into)),
        _ => judge_refusal(answer),
    }
}

/// A 200: the body says how the claim ended.
fn settled(answer: &Answer, again: bool) -> Verdict {
    let Some(body) = &answer.body else {
        return bad("a body that is not the API's JSON");
    };
    match body.status() {
        Some("won") => win(answer, again),
        Some("void") => Verdict::Claim(Fault::Void),
        Some("sold_out") => Verdict::End(End::SoldOut),
        _ => bad("a 200 that is neither won, void nor sold_out"),
    }
}

fn win(answer: &Answer, again: bool) -> Verdict {
    let Some(body) = &answer.body else {
        return bad("a body that is not the API's JSON");
    };
    if body.status() != Some("won") {
        return bad("a win whose status is not won");
    }
    match (&body.claim, body.unit) {
        (Some(claim), Some(unit)) => Verdict::End(End::Won(Win {
            claim: claim.clone(),
            unit,
            again,
        })),
        _ => bad("a win without its claim or unit"),
    }
}

fn judge_refusal(answer: &Answer) -> Verdict {
    let code = answer.body.as_ref().and_then(|body| body.code.as_deref());
    match (answer.status, code) {
        (409, Some("sold_out")) => Verdict::End(End::SoldOut),
        (409, None) => bad("a 409 without a code"),
        (status @ 400..=499, code) => Verdict::End(End::Refused {
            status,
            code: code.map(str::to_owned),
        }),
        (503, Some("void")) => Verdict::Claim(Fault::Void),
        (503, _) => Verdict::Same(Fault::Unavailable),
        (500..=599, _) => Verdict::Same(Fault::Server),
        _ => bad("a status that the API does not have"),
    }
}

#[cfg(test)]
#[path = "outcome_tests.rs"]
mod tests;
