//! What a recovery came to, or would, for people.

use dropgate_domain::SaleId;
use serde_json::Value;
use std::fmt::Write;

/// What it came to.
pub fn outcome(sale: &SaleId, answer: &Value, memory: Option<u64>) -> String {
    let (generation, wins) = (&answer["generation"], &answer["wins"]);
    match answer["outcome"].as_str() {
        Some("live") => format!(
            "sale {sale} is live in generation {generation}, with {wins} wins: nothing was done"
        ),
        Some("overtaken") => format!(
            "sale {sale}: somebody else has begun generation {generation}; nothing more was done \
             here"
        ),
        _ => recovered(sale, answer, memory),
    }
}

fn recovered(sale: &SaleId, answer: &Value, memory: Option<u64>) -> String {
    let (generation, wins) = (&answer["generation"], answer["wins"].as_u64().unwrap_or(0));
    let took_ms = answer["took_ms"].as_u64().unwrap_or(0);
    let (whole, tenth) = (took_ms / 1000, took_ms % 1000 / 100);
    let mut text =
        format!("sale {sale} is live in generation {generation}: {wins} wins, {whole}.{tenth} s");
    if let Some(rate) = (wins * 1000).checked_div(took_ms).filter(|rate| *rate > 0) {
        let _ = write!(text, ", {rate} wins/s");
    }
    if let Some(bytes) = memory {
        let _ = write!(text, ", at most {} MB of memory", bytes / 1_000_000);
    }
    text
}

/// What it would come to.
pub fn preview(sale: &SaleId, answer: &Value) -> String {
    let standing = &answer["standing"];
    let mut rows = vec![
        ("sale", sale.to_string()),
        ("generation", shown(&answer["generation"])),
        ("begun", shown(&standing["begun_at"])),
        ("state", shown(&standing["condition"])),
        ("why", shown(&standing["why"])),
    ];
    if standing["halted_by"].is_string() {
        rows.push(("halted by", shown(&standing["halted_by"])));
        rows.push(("halted at", shown(&standing["halted_at"])));
    }
    rows.push(("wins", shown(&answer["wins"])));
    let redis = &answer["redis"];
    if redis.is_object() {
        rows.extend(in_redis(redis));
    } else {
        rows.push((
            "redis",
            format!("unknown: {}", shown(&answer["redis_trouble"])),
        ));
    }
    rows.push(("would", would(answer)));
    rows.push((
        "changed",
        "nothing; redis' clock, and whether it takes writes, were not tried".to_owned(),
    ));
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<_> = rows
        .iter()
        .map(|(name, value)| format!("{name:width$}  {value}"))
        .collect();
    lines.join("\n")
}

fn in_redis(redis: &Value) -> Vec<(&'static str, String)> {
    let current = match (redis["current"].as_str(), redis["expected"].as_str()) {
        (None, _) => "none is current".to_owned(),
        (Some(tag), Some(expected)) if tag == expected => format!("{tag} is current"),
        (Some(tag), expected) => {
            format!(
                "{tag} is current, not {}",
                expected.unwrap_or("any of ours")
            )
        }
    };
    let scripts = match redis["scripts_loaded"].as_bool() {
        Some(true) => "loaded",
        Some(false) => "not loaded",
        None => "-",
    };
    let more = if redis["outbox_more"] == true {
        " or more"
    } else {
        ""
    };
    let mut rows = vec![
        ("redis", current),
        ("  state", shown(&redis["state"])),
        ("  seq", shown(&redis["seq"])),
        ("  scripts", scripts.to_owned()),
        (
            "  outbox",
            format!(
                "{}{more} events that are not in the log",
                redis["outbox_events"]
            ),
        ),
        ("  differs", shown(&redis["loss"])),
    ];
    let unfit: Vec<_> = redis["unfit"]
        .as_array()
        .into_iter()
        .flatten()
        .map(shown)
        .collect();
    let fit = if unfit.is_empty() {
        "yes, by what it says of itself".to_owned()
    } else {
        format!("no: {}", unfit.join("; "))
    };
    rows.push(("  fit", fit));
    rows
}

fn would(answer: &Value) -> String {
    let why = shown(&answer["why"]);
    match answer["would"].as_str() {
        Some("recover") => {
            let next = answer["generation"].as_u64().unwrap_or(0) + 1;
            let wins = &answer["wins"];
            format!("begin generation {next} and write {wins} wins to redis ({why})")
        }
        Some("nothing") => format!("do nothing: {why}"),
        _ => format!("refuse: {why}"),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn sale() -> SaleId {
        SaleId::new("drop-1").unwrap()
    }

    #[test]
    fn the_figures_of_a_recovery_are_told() {
        let answer =
            json!({"outcome": "recovered", "generation": 3, "wins": 1000, "took_ms": 2050});
        assert_eq!(
            outcome(&sale(), &answer, Some(64_000_000)),
            "sale drop-1 is live in generation 3: 1000 wins, 2.0 s, 487 wins/s, at most 64 MB of \
             memory"
        );
        let none = json!({"outcome": "recovered", "generation": 2, "wins": 0, "took_ms": 0});
        assert_eq!(
            outcome(&sale(), &none, None),
            "sale drop-1 is live in generation 2: 0 wins, 0.0 s"
        );
        let overtaken = json!({"outcome": "overtaken", "generation": 4, "wins": 1});
        assert!(
            outcome(&sale(), &overtaken, None).contains("somebody else has begun generation 4")
        );
    }

    #[test]
    fn a_preview_tells_what_redis_still_has() {
        let answer = json!({
            "outcome": "dry_run", "generation": 1, "would": "recover", "why": "by hand: gone",
            "wins": 7, "redis_trouble": null,
            "standing": {"condition": "halted", "why": "gone", "halted_by": "gateway a",
                "halted_at": "2026-01-01T00:00:00.000Z", "begun_at": null},
            "redis": {"expected": "abc:1", "current": "abc:0", "state": "missing", "seq": null,
                "scripts_loaded": false, "outbox_events": 2, "outbox_more": false,
                "loss": "redis names abc:0", "unfit": ["it evicts"]},
        });
        let text = preview(&sale(), &answer);
        for line in [
            "halted by   gateway a",
            "redis       abc:0 is current, not abc:1",
            "  scripts   not loaded",
            "  outbox    2 events that are not in the log",
            "  fit       no: it evicts",
            "would       begin generation 2 and write 7 wins to redis (by hand: gone)",
        ] {
            assert!(text.lines().any(|told| told == line), "{line:?} in\n{text}");
        }
    }
}
