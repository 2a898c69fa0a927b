//! What the answers come to: pure.

use super::ask::{self, Answers, Redis};
use super::seen::{
    Asked, Gateway, GatewaySale, Lag, LogSeen, Next, Reader, Recoveries, RedisReader, Standing,
    Status, Watch,
};
use crate::config::Config;
use crate::folded::Folded;
use dropgate_domain::{Generation, SaleId, Seq, TimeMs};
use dropgate_engine::{Condition, Sale, Standing as EngineStanding, Survey};
use dropgate_gateway::routes::recover::{RedisSeen, StandingSeen};
use dropgate_gateway::time::Rfc3339;
use dropgate_reconciler::watch::{Memory, Next as Plan, Now, recoveries_lately};
use serde_json::Value;
use tokio::time::Instant;

const NO_SALE: &str = "there is no such sale in the log's index";

/// What is shown of a sale at `now`.
pub fn status(id: &SaleId, config: &Config, answers: &Answers, now: TimeMs) -> Status {
    let folded = answers.log.known().and_then(Option::as_ref);
    let sale = folded.map(|folded| folded.sale.as_ref());
    let survey = match answers.redis.known() {
        Some(Redis::Survey(survey)) => Some(survey.as_ref()),
        Some(Redis::Current(_)) | None => None,
    };
    let engine = sale.map(|sale| Survey::standing(sale, survey, now));
    let mut status = Status {
        sale: id.to_string(),
        at: Rfc3339(now),
        standing: match (&answers.log, sale.zip(engine.as_ref())) {
            (_, Some((sale, engine))) => Asked::Known(standing(sale, engine, config, now)),
            (Asked::Unknown(why), None) => Asked::Unknown(why.clone()),
            (Asked::Known(_), None) => Asked::Unknown(NO_SALE.to_owned()),
        },
        next: next(engine.as_ref(), config, answers.watch.as_ref(), now),
        log: match &answers.log {
            Asked::Known(Some(folded)) => Asked::Known(log(folded)),
            Asked::Known(None) => Asked::Unknown(NO_SALE.to_owned()),
            Asked::Unknown(why) => Asked::Unknown(why.clone()),
        },
        redis: redis(&answers.redis),
        database: match &answers.database {
            Asked::Known(at) => Asked::Known(reader(sale, *at, now)),
            Asked::Unknown(why) => Asked::Unknown(why.clone()),
        },
        gateways: Vec::new(),
        watch: answers.watch.as_ref().map(|watch| Watch {
            url: watch.url.clone(),
            ready: watch.ready.clone(),
        }),
        trouble: Vec::new(),
        anybody_answered: anybody_answered(answers),
    };
    let gateways = answers.gateways.iter();
    status.gateways = gateways.map(|asked| gateway(asked, sale, now)).collect();
    status.trouble = trouble(&status, answers.gateways_named, now);
    status
}

fn standing(sale: &Sale, engine: &EngineStanding, config: &Config, now: TimeMs) -> Standing {
    let definition = &sale.pin().definition;
    let watch = &config.watch;
    Standing {
        seen: StandingSeen::of(engine),
        generation: engine.generation.0,
        wins: engine.wins,
        stock: definition.stock,
        recoveries: Recoveries {
            lately: recoveries_lately(&engine.starts, watch.recoveries_within, now),
            max: watch.recoveries_max,
            within: humantime::format_duration(watch.recoveries_within).to_string(),
        },
        opens_at: definition.opens_at.map(Rfc3339),
        closes_at: definition.closes_at.map(Rfc3339),
        closed_at: sale.ledger().closed_at().map(Rfc3339),
    }
}

/// What the watch says; else what its rule says of what is seen.
fn next(
    engine: Option<&EngineStanding>,
    config: &Config,
    watch: Option<&ask::Watch>,
    now: TimeMs,
) -> Asked<Next> {
    let unasked = match watch {
        None => "no watch was asked".to_owned(),
        Some(watch) => match &watch.thought {
            Asked::Known(thought) => {
                return Asked::Known(thought_of(watch, thought.as_ref(), engine));
            }
            Asked::Unknown(why) => format!("the watch at {} did not answer: {why}", watch.url),
        },
    };
    let Some(engine) = engine else {
        return Asked::Unknown(unasked);
    };
    let held = config.watch.held();
    let world = Now {
        instant: Instant::now(),
        wall: now,
        held: held.as_deref(),
        jitter: 1.0,
    };
    let next = Memory::default().next(engine, &config.watch, world);
    Asked::Known(Next {
        next: next.word().to_owned(),
        says: match next {
            Plan::Nothing => nothing(Some(&engine.condition)).to_owned(),
            next => next.to_string(),
        },
        by: format!("by the watch's rule; {unasked}"),
    })
}

fn thought_of(
    watch: &ask::Watch,
    thought: Option<&Value>,
    engine: Option<&EngineStanding>,
) -> Next {
    let text = |name: &str, none: &str| {
        let found = thought.and_then(|thought| thought[name].as_str());
        found.unwrap_or(none).to_owned()
    };
    let condition = engine.map(|engine| &engine.condition);
    Next {
        next: text("next", "nothing"),
        says: text("says", nothing(condition)),
        by: format!("by the watch at {}", watch.url),
    }
}

/// Why nothing is done.
fn nothing(condition: Option<&Condition>) -> &'static str {
    match condition {
        None => "nothing",
        Some(Condition::Live) => "nothing: it sells",
        Some(Condition::Closed) => "nothing: it is over",
        Some(Condition::NotOpened) => "nothing, until somebody opens it",
        Some(Condition::Unreachable | Condition::Unknown) => {
            "nothing: no loss is known, and it sells again when redis and the log answer"
        }
        Some(
            Condition::Starting { .. }
            | Condition::Halted(_)
            | Condition::Ended(_)
            | Condition::Unfollowable(_),
        ) => "nothing yet: the watch has not seen it",
    }
}

fn log(folded: &Folded) -> LogSeen {
    let position = folded.sale.ledger().position();
    LogSeen {
        position: position.map(|at| version(at.generation, at.seq)),
        partition: folded.sale.pin().partition.0,
        end: folded.end.0,
    }
}

fn redis(asked: &Asked<Redis>) -> Asked<RedisReader> {
    match asked {
        Asked::Known(Redis::Survey(survey)) => Asked::Known(RedisReader {
            current: survey.current.clone(),
            seen: Some(RedisSeen::of(survey)),
        }),
        Asked::Known(Redis::Current(current)) => Asked::Known(RedisReader {
            current: current.clone(),
            seen: None,
        }),
        Asked::Unknown(why) => Asked::Unknown(why.clone()),
    }
}

fn gateway(asked: &ask::Gateway, sale: Option<&Sale>, now: TimeMs) -> Gateway {
    let text = |body: &Value, name: &str| body[name].as_str().map(str::to_owned);
    Gateway {
        url: asked.url.clone(),
        ready: asked.ready.clone(),
        sale: match &asked.sale {
            Asked::Unknown(why) => Asked::Unknown(why.clone()),
            Asked::Known(None) => Asked::Unknown("it knows no such sale".to_owned()),
            Asked::Known(Some(body)) => Asked::Known(GatewaySale {
                state: text(body, "state").unwrap_or_else(|| "unknown".to_owned()),
                trouble: text(body, "trouble"),
                reader: reader(sale, body["version"].as_str().and_then(parsed), now),
                staleness_ms_max: body["staleness_ms_max"].as_u64(),
            }),
        },
    }
}

/// A reader that is there, against the log.
fn reader(sale: Option<&Sale>, at: Option<(Generation, Seq)>, now: TimeMs) -> Reader {
    Reader {
        position: at.map(|(generation, seq)| version(generation, seq)),
        lag: sale.map(|sale| lag(sale, at.unwrap_or_default(), now)),
    }
}

/// How far `at` is behind the log. Who has read further than this process is not behind.
fn lag(sale: &Sale, (generation, seq): (Generation, Seq), now: TimeMs) -> Lag {
    let ledger = sale.ledger();
    let events = ledger.applied().0.saturating_sub(seq.0);
    let wins = ledger.wins();
    let missing = wins.get(wins.partition_point(|win| win.seq <= seq));
    Lag {
        events,
        generations: ledger.generation().0.saturating_sub(generation.0),
        ms: match (events, missing) {
            (0, _) => Some(0),
            (_, Some(win)) => Some(now.0.saturating_sub(win.won_at.0)),
            (_, None) => None,
        },
    }
}

fn version(generation: Generation, seq: Seq) -> String {
    format!("{generation}.{seq}")
}

fn parsed(version: &str) -> Option<(Generation, Seq)> {
    let (generation, seq) = version.split_once('.')?;
    Some((Generation(generation.parse().ok()?), Seq(seq.parse().ok()?)))
}

fn anybody_answered(answers: &Answers) -> bool {
    let sources = [
        answers.log.known().is_some(),
        answers.redis.known().is_some(),
        answers.database.known().is_some(),
    ];
    let gateways = answers.gateways.iter().map(|gateway| &gateway.ready);
    let services = gateways.chain(answers.watch.iter().map(|watch| &watch.ready));
    sources.contains(&true) || services.into_iter().any(|ready| ready.known().is_some())
}

/// Everything that a person should look at.
fn trouble(status: &Status, gateways_named: bool, now: TimeMs) -> Vec<String> {
    let mut trouble = Vec::new();
    let standing = match &status.standing {
        Asked::Known(standing) => standing,
        Asked::Unknown(why) => {
            trouble.push(format!("how the sale stands is not known: {why}"));
            return trouble;
        }
    };
    let condition = standing.seen.condition;
    let over = condition == Condition::Closed.word();
    let scheduled = condition == Condition::NotOpened.word();
    let live = condition == Condition::Live.word();
    if scheduled && standing.opens_at.is_some_and(|at| at.0 < now) {
        trouble.push("its opens_at has passed, and nobody has opened it".to_owned());
    }
    if !(live || over || scheduled) {
        let why = standing.seen.why.as_deref().unwrap_or("no reason is known");
        trouble.push(format!("it is {condition}: {why}"));
    }
    let seen = status.redis.known().and_then(|redis| redis.seen.as_ref());
    if let Some(seen) = seen.filter(|_| !over) {
        let unfit = seen.unfit.iter();
        trouble.extend(unfit.map(|why| format!("redis is not fit for a sale: {why}")));
    }
    if live && nobody_sells(status, gateways_named) {
        trouble.push("no gateway that was asked is ready".to_owned());
    }
    trouble
}

/// Whether none of the gateways is ready; one that nobody named may be none.
fn nobody_sells(status: &Status, named: bool) -> bool {
    let mut heard = named;
    for ready in status.gateways.iter().filter_map(|g| g.ready.known()) {
        if ready.ready {
            return false;
        }
        heard = true;
    }
    heard
}

#[cfg(test)]
mod tests;
