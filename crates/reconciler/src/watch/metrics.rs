//! What the watch counts: sales in trouble, by what happens with them next.

use super::Board;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// What happens next with a sale in trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelValue)]
#[expect(non_camel_case_types, reason = "as the words of `Next`")]
enum Word {
    wait,
    recover,
    recovering,
    held,
    /// Page somebody.
    stays_closed,
    /// Page somebody.
    hopeless,
}

const WORDS: [(&str, Word); 6] = [
    ("wait", Word::wait),
    ("recover", Word::recover),
    ("recovering", Word::recovering),
    ("held", Word::held),
    ("stays_closed", Word::stays_closed),
    ("hopeless", Word::hopeless),
];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Label {
    next: Word,
}

/// The watch's metrics. Clones count in the same place.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    sales: Family<Label, Gauge>,
}

impl Metrics {
    /// Metrics that appear in the registry.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        registry.register(
            "dropgate_watch_sales",
            "Sales in trouble, by what happens with them next",
            metrics.sales.clone(),
        );
        metrics
    }

    pub(super) fn count(&self, board: &Board) {
        let thoughts = board.thoughts();
        for (name, next) in WORDS {
            let count = thoughts.iter().filter(|t| t.next == name).count();
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            self.sales.get_or_create(&Label { next }).set(count);
        }
    }
}
