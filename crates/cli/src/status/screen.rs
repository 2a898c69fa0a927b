//! A sale's status as text: what matters most first, aligned, one line a fact.

use super::seen::{Asked, Gateway, Lag, Reader, Ready, RedisReader, Standing, Status};
use dropgate_domain::TimeMs;
use dropgate_gateway::time::Rfc3339;
use std::fmt::Write;

/// One screen.
pub fn of(status: &Status) -> String {
    let mut text = String::new();
    let mut facts = vec![("Sale", status.sale.clone()), ("At", instant(status.at))];
    match &status.standing {
        Asked::Known(standing) => facts.extend(stands(standing, status.at)),
        Asked::Unknown(why) => facts.push(("State", unknown(why))),
    }
    facts.push((
        "Next",
        match &status.next {
            Asked::Known(next) => format!("{} ({})", next.says, next.by),
            Asked::Unknown(why) => unknown(why),
        },
    ));
    let width = facts.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    for (name, value) in &facts {
        let _ = writeln!(text, "{name:width$}  {value}");
    }
    text.push('\n');
    text.push_str(&table(&rows(status)));
    for (title, lines) in [
        ("Not ready", not_ready(status)),
        ("Trouble", status.trouble.clone()),
    ] {
        if !lines.is_empty() {
            let _ = write!(text, "\n{title}\n");
            lines.iter().for_each(|line| {
                let _ = writeln!(text, "  {line}");
            });
        }
    }
    text.trim_end().to_owned()
}

fn stands(standing: &Standing, now: Rfc3339) -> Vec<(&'static str, String)> {
    let seen = &standing.seen;
    let mut state = seen.condition.replace('_', " ");
    if let Some(at) = standing.closed_at {
        let _ = write!(state, " since {}", since(at, now));
    } else if seen.condition == "live" && standing.wins >= standing.stock {
        state.push_str(", sold out");
    }
    let mut facts = vec![("State", state)];
    if let Some(why) = &seen.why {
        facts.push(("  why", why.clone()));
    }
    if let Some(by) = &seen.halted_by {
        facts.push(("  halted by", by.clone()));
        let at = seen.halted_at.map(|at| since(at, now));
        facts.push((
            "  halted at",
            at.unwrap_or_else(|| "not recorded".to_owned()),
        ));
    }
    for (name, at) in [("Opens", standing.opens_at), ("Closes", standing.closes_at)] {
        if let Some(at) = at {
            facts.push((name, since(at, now)));
        }
    }
    if standing.generation > 0 {
        let begun = seen
            .begun_at
            .map(|at| format!(", begun {}", since(at, now)));
        let begun = begun.unwrap_or_default();
        facts.push(("Generation", format!("{}{begun}", standing.generation)));
        let recoveries = &standing.recoveries;
        facts.push((
            "Recoveries",
            format!(
                "{} within {}, of {} that the watch makes",
                recoveries.lately, recoveries.within, recoveries.max
            ),
        ));
    }
    facts.push(("Won", format!("{} of {}", standing.wins, standing.stock)));
    facts
}

/// Who, where it is, how far behind, and what it says.
type Row = [String; 4];

fn rows(status: &Status) -> Vec<Row> {
    let mut rows = vec![["Where", "At", "Behind", "Says"].map(str::to_owned)];
    let none = || "-".to_owned();
    rows.push(match &status.log {
        Asked::Known(log) => [
            "log".to_owned(),
            log.position.clone().unwrap_or_else(none),
            none(),
            format!("partition {}, read to offset {}", log.partition, log.end),
        ],
        Asked::Unknown(why) => unknown_row("log", why),
    });
    rows.push(match &status.redis {
        Asked::Known(redis) => of_redis(redis, status),
        Asked::Unknown(why) => unknown_row("redis", why),
    });
    rows.push(match &status.database {
        Asked::Known(reader) => {
            let says = match reader.position {
                Some(_) => none(),
                None => "nothing of the sale is written".to_owned(),
            };
            ["database".to_owned(), at(reader), behind(reader.lag), says]
        }
        Asked::Unknown(why) => unknown_row("database", why),
    });
    rows.extend(status.gateways.iter().map(of_gateway));
    match &status.watch {
        Some(watch) => {
            let name = format!("watch {}", watch.url);
            rows.push(match &watch.ready {
                Asked::Known(ready) => [name, none(), none(), readiness(ready)],
                Asked::Unknown(why) => unknown_row(&name, why),
            });
        }
        None => rows.push(["watch".to_owned(), none(), none(), "not asked".to_owned()]),
    }
    rows
}

fn of_redis(redis: &RedisReader, status: &Status) -> Row {
    let name = "redis".to_owned();
    let current = redis.current.as_deref();
    let Some(seen) = &redis.seen else {
        let says = current.map_or("no generation is current".to_owned(), |tag| {
            format!("{tag} is current; the rest is not known without the log")
        });
        return [name, "unknown".to_owned(), "unknown".to_owned(), says];
    };
    if seen.expected.is_none() {
        let says = current.map_or("nothing, as it should be".to_owned(), |tag| {
            format!("{tag} is current, and the sale was never opened")
        });
        return [name, "-".to_owned(), "-".to_owned(), says];
    }
    let generation = status.standing.known().map_or(0, |s| s.generation);
    let position = match seen.seq {
        Some(seq) => format!("{generation}.{seq}"),
        None => "nothing".to_owned(),
    };
    let mut says = vec![match &seen.loss {
        None => "current and whole".to_owned(),
        Some(loss) => loss.clone(),
    }];
    if seen.outbox_events > 0 {
        let more = if seen.outbox_more { " or more" } else { "" };
        let age = seen
            .outbox_age_ms
            .map(|ms| format!(", the oldest {}", ago(ms)));
        says.push(format!(
            "{}{more} events wait in its outbox{}",
            seen.outbox_events,
            age.unwrap_or_default()
        ));
    }
    if !seen.unfit.is_empty() {
        says.push("not fit for a sale".to_owned());
    }
    [name, position, "-".to_owned(), says.join("; ")]
}

fn of_gateway(gateway: &Gateway) -> Row {
    let name = format!("gateway {}", gateway.url);
    let ready = match &gateway.ready {
        Asked::Known(ready) => readiness(ready),
        Asked::Unknown(why) => return unknown_row(&name, why),
    };
    match &gateway.sale {
        Asked::Known(sale) => {
            let mut says = format!("{ready}, {}", sale.state);
            if let Some(ms) = sale.staleness_ms_max.filter(|ms| *ms >= 1000) {
                let _ = write!(says, ", by what it read {}", ago(ms));
            }
            if let Some(trouble) = &sale.trouble {
                let _ = write!(says, ": {trouble}");
            }
            [name, at(&sale.reader), behind(sale.reader.lag), says]
        }
        Asked::Unknown(why) => {
            let unknown = || "unknown".to_owned();
            [
                name,
                unknown(),
                unknown(),
                format!("{ready}; how far it is: {why}"),
            ]
        }
    }
}

fn readiness(ready: &Ready) -> String {
    if ready.ready { "ready" } else { "not ready" }.to_owned()
}

fn not_ready(status: &Status) -> Vec<String> {
    let gateways = status.gateways.iter().map(|g| (&g.url, &g.ready));
    let watch = status.watch.iter().map(|w| (&w.url, &w.ready));
    let mut lines = Vec::new();
    for (url, ready) in gateways.chain(watch) {
        if let Asked::Known(ready) = ready {
            let reasons = ready.reasons.iter();
            lines.extend(reasons.map(|reason| format!("{url}  {reason}")));
        }
    }
    lines
}

fn at(reader: &Reader) -> String {
    reader
        .position
        .clone()
        .unwrap_or_else(|| "nothing".to_owned())
}

fn behind(lag: Option<Lag>) -> String {
    let Some(lag) = lag else {
        return "unknown".to_owned();
    };
    let mut parts = Vec::new();
    match lag.generations {
        0 => {}
        1 => parts.push("1 generation".to_owned()),
        more => parts.push(format!("{more} generations")),
    }
    match lag.events {
        0 if lag.generations > 0 => {}
        1 => parts.push("1 event".to_owned()),
        events => parts.push(format!("{events} events")),
    }
    match (lag.events, lag.ms) {
        (0, _) => {}
        (_, Some(ms)) => parts.push(duration(ms)),
        (_, None) => parts.push("for how long is not known".to_owned()),
    }
    parts.join(", ")
}

fn unknown(why: &str) -> String {
    format!("unknown: {why}")
}

fn unknown_row(name: &str, why: &str) -> Row {
    let unknown = || "unknown".to_owned();
    [name.to_owned(), unknown(), unknown(), why.to_owned()]
}

fn table(rows: &[Row]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).max().unwrap_or(0);
    let (a, b, c) = (width(0), width(1), width(2));
    let mut text = String::new();
    for [who, at, behind, says] in rows {
        let line = format!("{who:a$}  {at:b$}  {behind:c$}  {says}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn instant(at: Rfc3339) -> String {
    let shown = serde_json::to_value(at).ok();
    shown
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_else(|| "an instant that cannot be".to_owned())
}

/// An instant, and how long ago it was, or in how long it will be.
fn since(at: Rfc3339, now: Rfc3339) -> String {
    let (TimeMs(at_ms), TimeMs(now_ms)) = (at.0, now.0);
    let away = if at_ms <= now_ms {
        ago(now_ms - at_ms)
    } else {
        format!("in {}", duration(at_ms - now_ms))
    };
    format!("{} ({away})", instant(at))
}

fn ago(ms: u64) -> String {
    format!("{} ago", duration(ms))
}

/// To what a person needs: tenths of seconds below a minute, else two units.
fn duration(ms: u64) -> String {
    let seconds = ms / 1000;
    match seconds {
        0..60 => format!("{seconds}.{} s", ms % 1000 / 100),
        60..3600 => format!("{} m {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests;
