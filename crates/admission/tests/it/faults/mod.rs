//! Masters that die, pause, come back, or are cut off. These run alone.

mod certified;
mod cut;
mod failover;
mod late;
mod moved;

use crate::fixture::{claim, eventually};
use crate::place::Live;
use dropgate_admission::{CallError, Claimed};
use dropgate_domain::Seq;

/// One claim, once.
async fn ask(live: &Live, name: &str) -> Result<Claimed, CallError> {
    let claim = claim(name, 1);
    let reply = live
        .gateway
        .claim(&live.scope, &live.scripts, Seq(0), &claim);
    reply.await.map(|reply| reply.value)
}

/// What the gateway is told once a master answers it that takes writes.
async fn told(live: &Live, name: &str) -> Result<Claimed, CallError> {
    let no_answer = |answer: &Result<Claimed, CallError>| {
        !matches!(
            answer,
            Err(CallError::Unavailable(_) | CallError::NotWritable(_))
        )
    };
    eventually("an answer", || ask(live, name), no_answer).await
}
