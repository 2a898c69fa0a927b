//! Another server becomes the master: the clients find it, the data is there, and the scripts are
//! not, whatever became of the old one.

use super::{ask, told};
use crate::fixture::{claim, eventually, fresh, head_of_start, sale_id};
use crate::place::{Live, Place, durable_cluster, durable_trio};
use dropgate_admission::{CallError, Claimed, Scope, Scripts, Switched, hashes_for};
use dropgate_domain::{Definition, Generation, Nonce, SaleId, Seq, Unit};
use dropgate_testkit::{ClusterOptions, TrioOptions};

/// A sale that has sold one unit, which the replica knows of.
async fn sold_one(place: &Place, sale: &SaleId) -> Live {
    let live = Live::brisk(place, sale, 9).await;
    let won = ask(&live, "u").await.unwrap();
    assert!(matches!(won, Claimed::Won { .. }), "{won:?}");
    place.healthy();
    live
}

/// The state went with the sale to its new master, and the fence holds.
async fn fenced_with_its_data(live: &Live) {
    assert_eq!(told(live, "v").await, Err(CallError::NoScript));
    let state = || live.operator.state(&live.scope);
    let stored = eventually("the state", state, Result::is_ok).await;
    assert_eq!(stored.unwrap().unwrap().seq, Seq(1));
    assert_eq!(live.operator.claims_count(&live.scope).await.unwrap(), 1);
}

/// What a recovery does: the next generation, on new scripts, on a certified master.
async fn recovered(live: Live, nonce: Nonce) -> Live {
    let sale = live.scope.sale().clone();
    let certified = || live.operator.certify(&sale);
    eventually("a certified master", certified, Result::is_ok)
        .await
        .unwrap();
    let hashes = live.operator.load_scripts(&sale, nonce).await.unwrap();
    let scripts = Scripts::from_started(&hashes).unwrap();
    let generation = live.scope.generation().next();
    let scope = Scope::new(sale.clone(), live.scope.log(), generation);
    let mut state = fresh(&sale, Definition::of(9));
    state.head = head_of_start(&sale, generation);
    (state.seq, state.next) = (Seq(1), Unit(2));
    live.operator.build(&scope, &state, []).await.unwrap();
    let switched = live
        .operator
        .switch(&scripts, Some(&live.scope), &scope, Seq(1), state.head);
    assert_eq!(switched.await.unwrap().value, Switched::Switched);
    Live {
        scope,
        scripts,
        ..live
    }
}

async fn wins(live: &Live, name: &str) {
    let won = told(live, name).await.unwrap();
    assert!(matches!(won, Claimed::Won { .. }), "{won:?}");
}

async fn killed(mut place: Place) {
    let sale = sale_id("drop-1");
    let live = sold_one(&place, &sale).await;
    let old = place.master(&sale);
    place.server_mut(old).kill9().unwrap();
    place.new_master(&sale, old);
    fenced_with_its_data(&live).await;
    let live = recovered(live, Nonce([2; 16])).await;
    wins(&live, "w").await;
    // The old one comes back with what it had, and follows.
    place.server_mut(old).restart().unwrap();
    place.healthy();
    wins(&live, "x").await;
    assert_eq!(live.gateway.problems().await.unwrap(), [""; 0]);
    place.nobody_was_refused();
}

#[tokio::test]
async fn the_sentinels_choice_is_found_after_a_kill() {
    killed(durable_trio()).await;
}

#[tokio::test]
async fn the_clusters_choice_is_found_after_a_kill() {
    killed(durable_cluster()).await;
}

async fn paused(mut place: Place) {
    let sale = sale_id("drop-1");
    let live = sold_one(&place, &sale).await;
    let old = place.master(&sale);
    // Its connections stay open and silent.
    place.server_mut(old).pause().unwrap();
    place.new_master(&sale, old);
    fenced_with_its_data(&live).await;
    let live = recovered(live, Nonce([2; 16])).await;
    wins(&live, "w").await;
    place.server_mut(old).resume().unwrap();
    place.healthy();
    wins(&live, "x").await;
    place.nobody_was_refused();
}

#[tokio::test]
async fn the_sentinels_choice_is_found_while_the_old_master_is_silent() {
    paused(Place::trio(&TrioOptions::default())).await;
}

#[tokio::test]
async fn the_clusters_choice_is_found_while_the_old_master_is_silent() {
    paused(Place::cluster(&ClusterOptions::default())).await;
}

#[tokio::test]
async fn a_master_is_followed_when_a_sentinel_dies_with_it() {
    let mut place = Place::trio(&TrioOptions::default());
    let sale = sale_id("drop-1");
    let live = sold_one(&place, &sale).await;
    let old = place.master(&sale);
    if let Place::Trio(trio) = &mut place {
        trio.sentinel_mut(0).kill9().unwrap();
        trio.server_mut(old).kill9().unwrap();
    }
    place.new_master(&sale, old);
    fenced_with_its_data(&live).await;
    // It is back before the old master: what it wrote down last is old.
    if let Place::Trio(trio) = &mut place {
        trio.sentinel_mut(0).restart().unwrap();
        trio.server_mut(old).restart().unwrap();
    }
    place.healthy();
    let live = recovered(live, Nonce([2; 16])).await;
    wins(&live, "w").await;
}

/// A to B to A: a demoted server keeps its script cache, and would answer to the old hashes.
async fn there_and_back(place: Place) {
    let sale = sale_id("drop-1");
    let first = sold_one(&place, &sale).await;
    let (old_scope, old_scripts) = (first.scope.clone(), first.scripts);
    let a = place.master(&sale);
    let b = place.failover(&sale);
    // Until it is demoted, the old one goes on serving whoever is connected to it.
    place.healthy();
    fenced_with_its_data(&first).await;
    let second = recovered(first, Nonce([2; 16])).await;
    wins(&second, "w").await;
    place.healthy();
    assert_eq!(place.failover(&sale), a, "from {b} back");
    place.healthy();
    // It holds the scripts of the first nonce, and the second generation is on another.
    assert_eq!(told(&second, "x").await, Err(CallError::NoScript));
    let claim = claim("x", 1);
    let old = second
        .gateway
        .claim(&old_scope, &old_scripts, Seq(0), &claim);
    assert_eq!(old.await, Err(CallError::Stale));
    let held = hashes_for(crate::fixture::NONCE);
    let loaded = || second.operator.scripts_loaded(&sale, &held);
    let yes = |answer: &Result<bool, CallError>| *answer == Ok(true);
    let _ = eventually("the old scripts", loaded, yes).await;
    let third = recovered(second, Nonce([3; 16])).await;
    assert_eq!(third.scope.generation(), Generation(3));
    wins(&third, "x").await;
    place.nobody_was_refused();
}

#[tokio::test]
async fn a_server_that_was_master_before_is_fenced_when_sentinels_choose_it_again() {
    there_and_back(Place::trio(&TrioOptions::default())).await;
}

#[tokio::test]
async fn a_server_that_was_master_before_is_fenced_when_its_cluster_chooses_it_again() {
    there_and_back(Place::cluster(&ClusterOptions::default())).await;
}
