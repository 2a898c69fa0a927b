//! A gateway that the network keeps from a master whom all others still see.

use super::{ask, told};
use crate::fixture::{eventually, sale_id};
use crate::place::{Live, Place};
use dropgate_admission::{CallError, Claimed, Outage};
use dropgate_domain::Seq;
use dropgate_testkit::{ClusterOptions, Proxy, TrioOptions};

async fn wins(live: &Live, name: &str) {
    let won = told(live, name).await.unwrap();
    assert!(matches!(won, Claimed::Won { .. }), "{won:?}");
}

/// The network does something to the clients' connections, and is healed.
async fn kept_away(place: &Place, what: impl Fn(&Proxy)) {
    let sale = sale_id("drop-1");
    let live = Live::brisk(place, &sale, 9).await;
    wins(&live, "u").await;
    let master = place.master(&sale);
    let proxy = place.server(master).proxy().unwrap();
    what(proxy);
    let away = |answer: &Result<Claimed, CallError>| {
        matches!(answer, Err(CallError::Unavailable(Outage::NotConnected)))
    };
    let _ = eventually("the client to notice", || ask(&live, "v"), away).await;
    // The sentinels and the other nodes see nothing of it.
    place.healthy();
    assert_eq!(place.master(&sale), master);
    proxy.heal().unwrap();
    // The script cache is as it was: nothing was forgotten.
    wins(&live, "w").await;
    // The operator's connection has its own way back.
    let certified = || live.operator.certify(&sale);
    eventually("a certified master", certified, Result::is_ok)
        .await
        .unwrap();
    let stored = live.operator.state(&live.scope).await;
    assert!(stored.unwrap().unwrap().seq >= Seq(2));
    place.nobody_was_refused();
}

fn trio() -> Place {
    Place::trio(&TrioOptions {
        proxied: true,
        ..TrioOptions::default()
    })
}

fn cluster() -> Place {
    Place::cluster(&ClusterOptions {
        proxied: true,
        ..ClusterOptions::default()
    })
}

#[tokio::test]
async fn a_cut_that_sentinels_do_not_see_heals() {
    kept_away(&trio(), |proxy| proxy.cut().unwrap()).await;
}

#[tokio::test]
async fn a_silence_that_sentinels_do_not_see_heals() {
    kept_away(&trio(), |proxy| proxy.blackhole().unwrap()).await;
}

#[tokio::test]
async fn a_cut_that_the_cluster_does_not_see_heals() {
    kept_away(&cluster(), |proxy| proxy.cut().unwrap()).await;
}

#[tokio::test]
async fn a_silence_that_the_cluster_does_not_see_heals() {
    kept_away(&cluster(), |proxy| proxy.blackhole().unwrap()).await;
}
