//! The report: JSON for programs, a table for people.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use hdrhistogram::Histogram;
use serde::Serialize;

use crate::balancer::Change;
use crate::headroom::Headroom;
use crate::plan::{Mode, Plan};
use crate::record::{Outcome, Record};

/// Quantiles of a latency in milliseconds; null when nothing was counted.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct Latency {
    /// How many were counted.
    pub count: u64,
    /// Half were faster.
    pub p50: Option<f64>,
    /// 95 in 100 were faster.
    pub p95: Option<f64>,
    /// 99 in 100 were faster.
    pub p99: Option<f64>,
    /// 999 in 1,000 were faster.
    pub p999: Option<f64>,
    /// The slowest.
    pub max: Option<f64>,
}

impl Latency {
    fn of(histogram: &Histogram<u64>) -> Self {
        let count = histogram.len();
        let at = |quantile| (count > 0).then(|| millis(histogram.value_at_quantile(quantile)));
        Self {
            count,
            p50: at(0.5),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: (count > 0).then(|| millis(histogram.max())),
        }
    }

    fn cells(&self) -> [String; 5] {
        [self.p50, self.p95, self.p99, self.p999, self.max]
            .map(|value| value.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1}")))
    }
}

/// The latencies of all outcomes by name.
#[must_use]
pub fn latencies(record: &Record) -> BTreeMap<&'static str, Latency> {
    Outcome::ALL
        .iter()
        .map(|outcome| (outcome.name(), Latency::of(record.latency(*outcome))))
        .collect()
}

/// Units that were told.
#[derive(Debug, Serialize)]
pub struct Units {
    /// The lowest, null when there is none.
    pub min: Option<u64>,
    /// The highest, null when there is none.
    pub max: Option<u64>,
    /// How many different ones.
    pub distinct: u64,
    /// How many were told to more than one user: a broken promise.
    pub told_to_several_users: u64,
}

impl Units {
    fn of(record: &Record) -> Self {
        let mut owners: HashMap<u64, u64> = HashMap::with_capacity(record.wins.len());
        let mut several = HashSet::new();
        for (user, told) in &record.wins {
            if *owners.entry(told.unit).or_insert(*user) != *user {
                several.insert(told.unit);
            }
        }
        Self {
            min: owners.keys().min().copied(),
            max: owners.keys().max().copied(),
            distinct: owners.len() as u64,
            told_to_several_users: several.len() as u64,
        }
    }
}

/// Rates in clicks a second.
#[derive(Debug, Serialize)]
pub struct Rate {
    /// What was asked for; null for a spike.
    pub offered_per_second: Option<f64>,
    /// Clicks over the time until the last of them was done.
    pub achieved_per_second: f64,
}

/// Requests beyond the first of a click, not counted as attempts.
#[derive(Debug, Serialize)]
pub struct Retries {
    /// Claims sent again.
    pub claims: u64,
    /// Polls of pending claims.
    pub polls: u64,
    /// Of the claims sent again, those after a void.
    pub voids: u64,
}

/// A run, told.
#[derive(Debug, Serialize)]
pub struct Report {
    /// The sale's id.
    pub sale: String,
    /// `open` or `spike`.
    pub mode: &'static str,
    /// Base URLs of the targets.
    pub targets: Vec<String>,
    /// Distinct users who clicked.
    pub users: u64,
    /// Clicks: every user's first and the repeats.
    pub attempts: u64,
    /// Users told of a win, each counted once, at the first telling.
    pub won: u64,
    /// Clicks told of a win whose user had been told before.
    pub again: u64,
    /// Repeat clicks.
    pub repeats: u64,
    /// Clicks told that it is sold out.
    pub sold_out: u64,
    /// Clicks that ended with another 4xx.
    pub other_4xx: u64,
    /// Clicks whose last answer was 202.
    pub pending: u64,
    /// Clicks that ended without an answer that counts.
    pub errors: u64,
    /// Different users who were told of a win.
    pub distinct_winners: u64,
    /// Winners' other clicks that got the very same claim.
    pub repeats_same_claim: u64,
    /// Winners' other clicks that got another claim: a broken promise.
    pub repeats_other_claim: u64,
    /// Clicks told "sold out" after their user had been told of a win: a broken
    /// promise.
    pub repeats_no_claim: u64,
    /// Units that were told.
    pub units: Units,
    /// From the intended start of a click to its final answer, by outcome.
    pub latency_ms: BTreeMap<&'static str, Latency>,
    /// From the intended start of a click to its first request: what waiting
    /// for a free connection, or the generator itself, added.
    pub lag_ms: Latency,
    /// Rates.
    pub rate: Rate,
    /// When the last click was made, since the start, in seconds.
    pub arrivals_seconds: f64,
    /// When the last click was done, since the start, in seconds.
    pub duration_seconds: f64,
    /// Requests beyond the first of a click.
    pub retries: Retries,
    /// Connections opened.
    pub connections_opened: u64,
    /// Requests without an answer.
    pub connection_errors: ConnectionErrors,
    /// Answers by HTTP status, retries and polls included.
    pub http: BTreeMap<u16, u64>,
    /// Final refusals and errors by problem code or kind.
    pub codes: BTreeMap<String, u64>,
    /// Peak resident memory by process; null when it could not be read.
    pub peak_rss_bytes: BTreeMap<String, Option<u64>>,
    /// When targets became ready and unready; null when nobody asked.
    pub readiness: Option<Vec<Change>>,
    /// What the generator reaches by itself; null when it was not measured.
    pub headroom: Option<Headroom>,
}

/// Requests without an answer, by kind.
#[derive(Debug, Serialize)]
pub struct ConnectionErrors {
    /// All of them.
    pub total: u64,
    /// By kind.
    pub by_kind: BTreeMap<&'static str, u64>,
}

impl Report {
    /// What the record of a run says.
    #[must_use]
    pub fn of(
        plan: &Plan,
        record: &Record,
        peaks: &BTreeMap<String, Option<u64>>,
        headroom: Option<Headroom>,
    ) -> Self {
        let (mode, offered) = match plan.mode {
            Mode::Open { rate } => ("open", Some(rate)),
            Mode::Spike => ("spike", None),
            Mode::Probe { .. } => ("probe", None),
        };
        Self {
            sale: plan.sale.clone(),
            mode,
            targets: plan.targets.iter().map(|to| to.base.clone()).collect(),
            users: record.clicks() - record.repeats.clicks,
            attempts: record.clicks(),
            won: record.count(Outcome::Won),
            again: record.count(Outcome::Again),
            repeats: record.repeats.clicks,
            sold_out: record.count(Outcome::SoldOut),
            other_4xx: record.count(Outcome::Other4xx),
            pending: record.count(Outcome::Pending),
            errors: record.count(Outcome::Error),
            distinct_winners: record.wins.len() as u64,
            repeats_same_claim: record.repeats.same_claim,
            repeats_other_claim: record.repeats.other_claim,
            repeats_no_claim: record.repeats.no_claim,
            units: Units::of(record),
            latency_ms: latencies(record),
            lag_ms: Latency::of(&record.lag),
            rate: Rate {
                offered_per_second: offered,
                achieved_per_second: per_second(record.clicks(), record.last_done),
            },
            arrivals_seconds: record.last_click.as_secs_f64(),
            duration_seconds: record.last_done.as_secs_f64(),
            retries: Retries {
                claims: record.retried_claims,
                polls: record.polls,
                voids: record.voids,
            },
            connections_opened: record.connections,
            connection_errors: ConnectionErrors {
                total: record.broken.values().sum(),
                by_kind: record.broken.clone(),
            },
            http: record.http.clone(),
            codes: record.codes.clone(),
            peak_rss_bytes: peaks.clone(),
            readiness: plan.balancer.as_ref().map(|balancer| balancer.changes()),
            headroom,
        }
    }

    /// Whether every last answer was final.
    #[must_use]
    pub fn all_final(&self) -> bool {
        self.pending == 0 && self.errors == 0
    }

    /// The promises that clients alone can see broken.
    #[must_use]
    pub fn broken_promises(&self) -> u64 {
        self.repeats_other_claim + self.repeats_no_claim + self.units.told_to_several_users
    }

    /// The report for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut outcomes = Table::new();
        outcomes
            .load_style(UTF8_FULL_CONDENSED)
            .set_header(["clicks", "count", "p50 ms", "p95", "p99", "p99.9", "max"]);
        let rows = Outcome::ALL
            .iter()
            .filter_map(|outcome| self.latency_ms.get_key_value(outcome.name()))
            .map(|(name, latency)| (*name, latency))
            .chain([("start lag", &self.lag_ms)]);
        for (name, latency) in rows {
            let start = [name.to_owned(), latency.count.to_string()];
            outcomes.add_row(start.into_iter().chain(latency.cells()));
        }
        align_right(&mut outcomes, 1);
        let mut facts = Table::new();
        facts.load_style(UTF8_FULL_CONDENSED);
        for (name, value) in self.facts() {
            facts.add_row([name, value]);
        }
        format!("{outcomes}\n{facts}")
    }

    fn facts(&self) -> Vec<(String, String)> {
        let offered = self
            .rate
            .offered_per_second
            .map_or_else(|| "all at once".to_owned(), |rate| format!("{rate:.0}/s"));
        let span = match (self.units.min, self.units.max) {
            (Some(min), Some(max)) => format!("{min}..{max}, {} distinct", self.units.distinct),
            _ => "none".to_owned(),
        };
        let mut facts = vec![
            ("distinct users".to_owned(), self.users.to_string()),
            (
                "distinct winners".to_owned(),
                self.distinct_winners.to_string(),
            ),
            ("units told".to_owned(), span),
            (
                "winners' repeats".to_owned(),
                format!(
                    "{} the same claim, {} another, {} none",
                    self.repeats_same_claim, self.repeats_other_claim, self.repeats_no_claim
                ),
            ),
            (
                "rate".to_owned(),
                format!(
                    "offered {offered}, achieved {:.0}/s in {:.1} s",
                    self.rate.achieved_per_second, self.duration_seconds
                ),
            ),
            (
                "retries".to_owned(),
                format!(
                    "{} claims ({} after void), {} polls",
                    self.retries.claims, self.retries.voids, self.retries.polls
                ),
            ),
            (
                "connections".to_owned(),
                format!(
                    "{} opened, {} errors {}",
                    self.connections_opened,
                    self.connection_errors.total,
                    listed(&self.connection_errors.by_kind)
                ),
            ),
            ("answers by status".to_owned(), listed(&self.http)),
        ];
        if !self.codes.is_empty() {
            facts.push(("other endings".to_owned(), listed(&self.codes)));
        }
        for (name, peak) in &self.peak_rss_bytes {
            let peak = peak.map_or_else(
                || "unknown".to_owned(),
                |bytes| format!("{} MB", bytes.div_ceil(1_000_000)),
            );
            facts.push((format!("peak memory, {name}"), peak));
        }
        if let Some(headroom) = &self.headroom {
            facts.push(("generator alone".to_owned(), headroom.to_string()));
        }
        facts
    }
}

fn align_right(table: &mut Table, from: usize) {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}

fn listed<K: std::fmt::Display>(counts: &BTreeMap<K, u64>) -> String {
    let parts = counts
        .iter()
        .map(|(name, count)| format!("{name}: {count}"));
    parts.collect::<Vec<_>>().join(", ")
}

fn millis(micros: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "latencies are far below 2^53 microseconds"
    )]
    let micros = micros as f64;
    micros / 1000.0
}

fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() {
        return 0.0;
    }
    #[expect(
        clippy::cast_precision_loss,
        reason = "a run has far fewer than 2^53 clicks"
    )]
    let count = count as f64;
    (count / time.as_secs_f64() * 10.0).round() / 10.0
}
