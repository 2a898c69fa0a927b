//! The names of a sale's keys.

use crate::link::Slot;
use dropgate_domain::{Generation, LogId, SaleId};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::sync::Arc;

/// One generation of one sale, and the keys that hold it.
///
/// All keys of a sale share the hash tag `{sale}`, so a script touches one slot of a cluster. All
/// but `current` carry `L:g`: the identity of the log and the number of the generation. So a
/// half-built state is never seen, a write of an ended generation lands where nobody looks, and
/// the state of another log is never taken for ours.
///
/// Cheap to clone; made once per generation.
#[derive(Clone, PartialEq, Eq)]
pub struct Scope {
    sale: SaleId,
    log: LogId,
    generation: Generation,
    keys: Arc<Keys>,
}

/// The names of a scope's keys.
#[derive(PartialEq, Eq)]
pub(crate) struct Keys {
    /// `L:g`.
    pub tag: String,
    /// Where all of them are in a cluster.
    pub slot: Slot,
    /// String: the `L:g` that is current.
    pub current: String,
    /// Hash: the sale's counters and clock.
    pub state: String,
    /// Hash: user to what they won. The sale's winners set.
    pub claims: String,
    /// Stream: what the log's readers have not applied yet.
    pub outbox: String,
}

impl Scope {
    /// The keys of this generation of this sale in this log.
    #[must_use]
    pub fn new(sale: SaleId, log: LogId, generation: Generation) -> Self {
        let tag = format!("{}:{generation}", short(log));
        let own = |name| format!("dropgate:{{{sale}}}:{tag}:{name}");
        let keys = Keys {
            current: current_key(&sale),
            state: own("state"),
            claims: own("claims"),
            outbox: own("outbox"),
            slot: Slot::of(&sale),
            tag,
        };
        Self {
            sale,
            log,
            generation,
            keys: Arc::new(keys),
        }
    }

    /// The sale.
    #[must_use]
    pub fn sale(&self) -> &SaleId {
        &self.sale
    }

    /// The log whose events the generation's state follows.
    #[must_use]
    pub fn log(&self) -> LogId {
        self.log
    }

    /// The generation.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.generation
    }

    /// `L:g`, the value of the sale's `current` key while this generation is current.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.keys.tag
    }

    /// Whether a value of the `current` key is of a generation of this log.
    #[must_use]
    pub fn is_of_same_log(&self, tag: &str) -> bool {
        let log = |tag: &str| tag.split_once(':').map(|(log, _)| log.to_owned());
        log(tag).is_some() && log(tag) == log(self.tag())
    }

    /// Whether this generation is before the one that a value of the `current` key names, in the
    /// same log. False when that cannot be told.
    pub(crate) fn is_before(&self, tag: &str) -> bool {
        let number = tag
            .split_once(':')
            .and_then(|(_, number)| number.parse().ok());
        let later = number.is_some_and(|number: u32| number > self.generation.0);
        self.is_of_same_log(tag) && later
    }

    pub(crate) fn keys(&self) -> &Keys {
        &self.keys
    }
}

impl fmt::Debug for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scope({} {})", self.sale, self.keys.tag)
    }
}

/// The key that names a sale's current generation.
pub(crate) fn current_key(sale: &SaleId) -> String {
    format!("dropgate:{{{sale}}}:current")
}

/// The first 12 hexadecimal digits of the SHA-256 of a log's identity: short, of one length
/// whatever the back end's identities look like, and 48 bits of it tell logs apart.
fn short(log: LogId) -> String {
    let digest = Sha256::digest(log.0);
    let mut text = hex::encode(digest);
    text.truncate(12);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_share_the_sales_hash_tag_and_carry_log_and_generation() {
        let sale = SaleId::new("drop-1").unwrap();
        let scope = Scope::new(sale, LogId([7; 16]), Generation(3));
        let tag = scope.tag().to_owned();
        assert!(tag.ends_with(":3") && tag.len() == 14, "{tag}");
        let keys = scope.keys();
        assert_eq!(keys.current, "dropgate:{drop-1}:current");
        assert_eq!(keys.state, format!("dropgate:{{drop-1}}:{tag}:state"));
        assert_eq!(keys.claims, format!("dropgate:{{drop-1}}:{tag}:claims"));
        assert_eq!(keys.outbox, format!("dropgate:{{drop-1}}:{tag}:outbox"));
    }

    #[test]
    fn all_keys_of_a_sale_are_in_the_slot_of_its_id() {
        for name in ["drop-1", "a", "0", "x-9"] {
            let sale = SaleId::new(name).unwrap();
            let scope = Scope::new(sale.clone(), LogId([7; 16]), Generation(3));
            let keys = scope.keys();
            for key in [&keys.current, &keys.state, &keys.claims, &keys.outbox] {
                assert_eq!(Slot::of_key(key), keys.slot, "{key}");
                assert_eq!(Slot::of_key(key), Slot::of(&sale), "{key}");
            }
        }
    }

    #[test]
    fn another_log_has_other_keys() {
        let sale = SaleId::new("a").unwrap();
        let one = Scope::new(sale.clone(), LogId([1; 16]), Generation(1));
        let two = Scope::new(sale, LogId([2; 16]), Generation(1));
        assert_ne!(one.keys().state, two.keys().state);
        assert_eq!(one.keys().current, two.keys().current);
        assert!(one.is_of_same_log(one.tag()) && !one.is_of_same_log(two.tag()));
        assert!(!one.is_of_same_log("nonsense"));
    }

    #[test]
    fn a_generation_is_before_a_later_one_of_its_log_only() {
        let sale = SaleId::new("a").unwrap();
        let scope = |log, g| Scope::new(sale.clone(), LogId([log; 16]), Generation(g));
        let nine = scope(1, 9);
        assert!(nine.is_before(scope(1, 10).tag()));
        for tag in [
            scope(1, 9).tag(),
            scope(1, 8).tag(),
            scope(2, 10).tag(),
            "",
            "x",
            ":10",
        ] {
            assert!(!nine.is_before(tag), "{tag}");
        }
    }
}
