//! Who is not master any more, or not for all, is not certified.

use crate::fixture::{eventually, sale_id};
use crate::place::{As, Place};
use dropgate_admission::{NotCertified, Operator, RedisConfig};
use dropgate_domain::SaleId;
use dropgate_testkit::{ClusterOptions, TrioOptions, Value};
use std::time::Duration;

/// An operator that stays where it is: it does not ask again who is master.
async fn stubborn(place: &Place, sale: &SaleId) -> Operator {
    let operator = Operator::new(RedisConfig {
        discovery_interval: Duration::from_secs(60),
        ..place.config(As::Operator)
    });
    eventually("a master", || operator.certify(sale), Result::is_ok)
        .await
        .unwrap();
    operator
}

async fn refused(operator: &Operator, sale: &SaleId, say: &str) {
    let named = |answer: &Result<(), NotCertified>| {
        let unfit = |all: &[String]| all.iter().any(|problem| problem.contains(say));
        match answer {
            Ok(()) => panic!("certified, and not refused for {say:?}"),
            Err(NotCertified::Unfit(all)) => unfit(all),
            // A connection that the failover cut has to come up again first.
            Err(_) => false,
        }
    };
    let _ = eventually(say, || operator.certify(sale), named).await;
}

#[tokio::test]
async fn a_demoted_master_is_refused() {
    for place in [
        Place::trio(&TrioOptions::default()),
        Place::cluster(&ClusterOptions::default()),
    ] {
        let sale = sale_id("drop-1");
        let finder = stubborn(&place, &sale).await;
        let old = place.master(&sale);
        let url = place.server(old).operator_url();
        place.failover(&sale);
        place.healthy();
        // By who takes it for a server of its own.
        let operator = Operator::new(RedisConfig::at(&url));
        refused(&operator, &sale, "slave").await;
        // Who was refused looks for the new one at once.
        let found = eventually("the new master", || finder.certify(&sale), Result::is_ok);
        found.await.unwrap();
    }
}

#[tokio::test]
async fn a_master_that_the_sentinels_cannot_see_is_refused_though_it_still_says_master() {
    let place = Place::trio(&TrioOptions::default());
    let sale = sale_id("drop-1");
    let operator = stubborn(&place, &sale).await;
    let old = place.master(&sale);
    // To the sentinels it is gone; to clients it is not.
    let server = place.server(old);
    let mut connection = server.connect().unwrap();
    for user in ["sentinel", "replication", "default"] {
        for command in [
            &["ACL", "SETUSER", user, "off"][..],
            &["CLIENT", "KILL", "USER", user],
        ] {
            let reply = connection.command(command).unwrap();
            assert!(!matches!(reply, Value::Error(_)), "{command:?}: {reply:?}");
        }
    }
    place.new_master(&sale, old);
    let facts = operator.policy(&sale).await.unwrap();
    assert_eq!(facts.role, "master");
    refused(&operator, &sale, "sentinels").await;
    // Who asks again finds the new one.
    let operator = Operator::new(place.config(As::Operator));
    let found = eventually("the new master", || operator.certify(&sale), Result::is_ok);
    found.await.unwrap();
}

#[tokio::test]
async fn a_master_that_only_one_sentinel_can_vouch_for_is_refused() {
    let mut place = Place::trio(&TrioOptions::default());
    let sale = sale_id("drop-1");
    let operator = Operator::new(RedisConfig {
        command_timeout: Duration::from_secs(1),
        ..place.config(As::Operator)
    });
    let certified = eventually("a master", || operator.certify(&sale), Result::is_ok);
    certified.await.unwrap();
    if let Place::Trio(trio) = &mut place {
        trio.sentinel_mut(0).kill9().unwrap();
        trio.sentinel_mut(1).pause().unwrap();
    }
    refused(&operator, &sale, "only 1 of 3 sentinels").await;
}

#[tokio::test]
async fn a_master_whose_cluster_is_down_is_refused() {
    let mut place = Place::cluster(&ClusterOptions::default());
    let sale = sale_id("drop-1");
    let operator = Operator::new(RedisConfig {
        command_timeout: Duration::from_secs(1),
        ..place.config(As::Operator)
    });
    let certified = eventually("a master", || operator.certify(&sale), Result::is_ok);
    certified.await.unwrap();
    let master = place.master(&sale);
    for other in (0..6).filter(|other| *other != master) {
        place.server_mut(other).pause().unwrap();
    }
    let down = |answer: &Result<(), NotCertified>| matches!(answer, Err(NotCertified::Unfit(_)));
    let error = eventually("a refusal", || operator.certify(&sale), down).await;
    assert!(error.unwrap_err().to_string().contains("cluster is down"));
}
