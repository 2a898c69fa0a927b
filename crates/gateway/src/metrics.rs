//! What the gateway counts. Labels are enums only, never a user or a sale.

use dropgate_domain::code::Code;
use dropgate_engine::Answer;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue, LabelValueEncoder};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use std::fmt::Write;
use std::time::Duration;

/// How a claim was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Answered {
    /// 201.
    Won,
    /// 200: the same claim again.
    Again,
    /// 202.
    Pending,
    /// 409, from memory.
    SoldOutLatched,
    /// A problem; `http_problems` counts them by code.
    Problem,
}

impl Answered {
    /// The kind of an answer of the engine.
    #[must_use]
    pub fn of(answer: &Answer) -> Self {
        match answer {
            Answer::Won(_) => Self::Won,
            Answer::Again(_) => Self::Again,
            Answer::Pending(_) => Self::Pending,
            _ => Self::Problem,
        }
    }
}

impl EncodeLabelValue for Answered {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), std::fmt::Error> {
        encoder.write_str(match self {
            Self::Won => "won",
            Self::Again => "again",
            Self::Pending => "pending",
            Self::SoldOutLatched => "sold_out_latched",
            Self::Problem => "problem",
        })
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AnswerLabels {
    answer: Answered,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct CodeLabel(Code);

impl EncodeLabelValue for CodeLabel {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> Result<(), std::fmt::Error> {
        encoder.write_str(self.0.as_str())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProblemLabels {
    code: CodeLabel,
}

/// The gateway's own metrics. Clones count the same.
#[derive(Debug, Clone)]
pub struct Metrics {
    claims: Family<AnswerLabels, Counter>,
    seconds: Family<AnswerLabels, Histogram, fn() -> Histogram>,
    problems: Family<ProblemLabels, Counter>,
}

/// From half a millisecond to some eight seconds.
fn seconds() -> Histogram {
    Histogram::new(prometheus_client::metrics::histogram::exponential_buckets(
        0.0005, 2.0, 15,
    ))
}

impl Metrics {
    /// Registers them.
    #[must_use]
    pub fn new(registry: &mut Registry) -> Self {
        let metrics = Self {
            claims: Family::default(),
            seconds: Family::new_with_constructor(seconds),
            problems: Family::default(),
        };
        registry.register(
            "dropgate_http_claims",
            "Claims, by how they were answered",
            metrics.claims.clone(),
        );
        registry.register_with_unit(
            "dropgate_http_claim",
            "Time to the answer of a claim",
            Unit::Seconds,
            metrics.seconds.clone(),
        );
        registry.register(
            "dropgate_http_problems",
            "Problems, by code",
            metrics.problems.clone(),
        );
        metrics
    }

    /// A claim was answered.
    pub fn claim(&self, answer: Answered, took: Duration) {
        let labels = AnswerLabels { answer };
        self.claims.get_or_create(&labels).inc();
        self.seconds
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    /// A problem was sent.
    pub fn problem(&self, code: Code) {
        let code = CodeLabel(code);
        self.problems.get_or_create(&ProblemLabels { code }).inc();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_named_with_the_codes_of_the_table() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry);
        metrics.claim(Answered::Won, Duration::from_millis(3));
        metrics.problem(Code::SoldOut);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        for line in [
            "dropgate_http_claims_total{answer=\"won\"} 1",
            "dropgate_http_problems_total{code=\"sold_out\"} 1",
            "dropgate_http_claim_seconds_count{answer=\"won\"} 1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
