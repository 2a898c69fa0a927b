//! The one table of the scripts in `lua/`.

use dropgate_domain::{Digest, Nonce, ScriptHash};
use sha1::{Digest as _, Sha1};

/// A script of `lua/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Script {
    /// Gives a unit to a user.
    ClaimUnit,
    /// Ends a sale.
    CloseSale,
    /// How far a sale has come, and what is not applied yet.
    ReadTip,
    /// Makes a generation the current one.
    SwitchGeneration,
}

impl Script {
    /// All of them, in the order in which a `Started` record names them.
    pub const ALL: [Self; 4] = [
        Self::ClaimUnit,
        Self::CloseSale,
        Self::ReadTip,
        Self::SwitchGeneration,
    ];

    /// The file's stem, by which the log names the script.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClaimUnit => "claim_unit",
            Self::CloseSale => "close_sale",
            Self::ReadTip => "read_tip",
            Self::SwitchGeneration => "switch_generation",
        }
    }

    const fn source(self) -> &'static str {
        match self {
            Self::ClaimUnit => include_str!("../../../lua/claim_unit.lua"),
            Self::CloseSale => include_str!("../../../lua/close_sale.lua"),
            Self::ReadTip => include_str!("../../../lua/read_tip.lua"),
            Self::SwitchGeneration => include_str!("../../../lua/switch_generation.lua"),
        }
    }

    /// The text that Redis is given: the file below a line with the nonce, so that its hash is
    /// one that no Redis knew before.
    #[must_use]
    pub fn text(self, nonce: Nonce) -> String {
        format!("-- nonce {nonce}\n{}", self.source())
    }
}

/// The scripts of a nonce: what to load, in the order of [`Script::ALL`].
#[must_use]
pub fn scripts_for(nonce: Nonce) -> Vec<(Script, String)> {
    let text = |script: Script| (script, script.text(nonce));
    Script::ALL.into_iter().map(text).collect()
}

/// The names and hashes of a nonce's scripts, as a `Started` record holds them.
#[must_use]
pub fn hashes_for(nonce: Nonce) -> Vec<ScriptHash> {
    let hash = |(script, text): (Script, String)| ScriptHash {
        name: script.name().to_owned(),
        sha1: Digest(Sha1::digest(text.as_bytes()).into()),
    };
    scripts_for(nonce).into_iter().map(hash).collect()
}

/// The hashes by which a generation's scripts are called; they come from the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scripts {
    /// Of `claim_unit`.
    pub claim_unit: Digest,
    /// Of `close_sale`.
    pub close_sale: Digest,
    /// Of `read_tip`.
    pub read_tip: Digest,
    /// Of `switch_generation`.
    pub switch_generation: Digest,
}

/// A `Started` record does not name every script that this release calls.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the generation's record names {found} scripts of the name {script}; expected one")]
pub struct ScriptsError {
    /// The script's name.
    pub script: &'static str,
    /// How often the record names it.
    pub found: usize,
}

impl Scripts {
    /// The hashes that a `Started` record names. Scripts that this release does not call are left
    /// out; one that is missing or named twice is an error.
    pub fn from_started(hashes: &[ScriptHash]) -> Result<Self, ScriptsError> {
        let find = |script: Script| {
            let mut found = hashes.iter().filter(|hash| hash.name == script.name());
            match (found.next(), found.count()) {
                (Some(hash), 0) => Ok(hash.sha1),
                (first, more) => Err(ScriptsError {
                    script: script.name(),
                    found: more + usize::from(first.is_some()),
                }),
            }
        };
        Ok(Self {
            claim_unit: find(Script::ClaimUnit)?,
            close_sale: find(Script::CloseSale)?,
            read_tip: find(Script::ReadTip)?,
            switch_generation: find(Script::SwitchGeneration)?,
        })
    }

    pub(crate) fn hash(&self, script: Script) -> Digest {
        match script {
            Script::ClaimUnit => self.claim_unit,
            Script::CloseSale => self.close_sale,
            Script::ReadTip => self.read_tip,
            Script::SwitchGeneration => self.switch_generation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_nonce_is_another_text_of_every_script() {
        let one = hashes_for(Nonce([1; 16]));
        let two = hashes_for(Nonce([2; 16]));
        assert_eq!(one, hashes_for(Nonce([1; 16])));
        for (a, b) in one.iter().zip(&two) {
            assert_eq!(a.name, b.name);
            assert_ne!(a.sha1, b.sha1);
        }
    }

    #[test]
    fn hashes_come_back_from_the_record_that_names_them() {
        let hashes = hashes_for(Nonce([3; 16]));
        let scripts = Scripts::from_started(&hashes).unwrap();
        for (script, hash) in Script::ALL.into_iter().zip(&hashes) {
            assert_eq!(scripts.hash(script), hash.sha1);
        }
    }

    #[test]
    fn a_record_that_names_too_few_or_one_twice_is_refused() {
        let hashes = hashes_for(Nonce([3; 16]));
        let error = Scripts::from_started(&hashes[1..]).unwrap_err();
        assert_eq!((error.script, error.found), ("claim_unit", 0));
        let mut twice = hashes.clone();
        twice.push(hashes[2].clone());
        let error = Scripts::from_started(&twice).unwrap_err();
        assert_eq!((error.script, error.found), ("read_tip", 2));
    }

    #[test]
    fn scripts_never_swallow_an_error_of_redis() {
        for script in Script::ALL {
            let text = script.source();
            assert!(!text.contains("pcall"), "{}", script.name());
            assert!(text.is_ascii(), "{}", script.name());
        }
    }
}
