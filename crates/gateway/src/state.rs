//! What the handlers of all workers share.

use crate::auth::TokenVerifier;
use crate::metrics::Metrics;
use crate::persisted::Persisted;
use dropgate_engine::Engine;
use secrecy::SecretString;

/// One gateway.
#[derive(Debug)]
pub struct State {
    /// The sales.
    pub engine: Engine,
    /// Who asks.
    pub verifier: TokenVerifier,
    /// The keys of operators.
    pub admin_keys: Vec<SecretString>,
    /// What the database has.
    pub persisted: Persisted,
    /// What is counted.
    pub metrics: Metrics,
}
