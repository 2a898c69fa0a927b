//! Many at once.

use crate::fixture::{Sale, attempt, claim, config, user};
use dropgate_admission::{Admission, Claim, Claimed};
use dropgate_domain::{AttemptId, Body, Definition, IdempotencyKey, Seq, Unit};
use std::collections::{BTreeMap, BTreeSet};

/// Sends all claims at once over so many connections; the answers in the order of the claims.
async fn all_at_once(sale: &Sale, connections: usize, claims: Vec<Claim>) -> Vec<Claimed> {
    let mut clients = Vec::new();
    for _ in 0..connections {
        let config = config(&sale.redis.gateway_url());
        clients.push(Admission::connect(&config).await.unwrap());
    }
    let calls = claims.into_iter().enumerate().map(|(n, claim)| {
        let client = clients[n % connections].clone();
        let (scope, scripts) = (sale.scope.clone(), sale.scripts);
        tokio::spawn(async move {
            let reply = client.claim(&scope, &scripts, Seq(0), &claim).await;
            reply.unwrap().value
        })
    });
    let mut answers = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        answers.push(call.await.unwrap());
    }
    answers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_units_raced_by_many_connections_go_to_exactly_as_many_users() {
    const STOCK: u64 = 50;
    let sale = Sale::open(Definition::of(STOCK)).await;
    let claims = (0..1000).map(|n| claim(&format!("u{n}"), n)).collect();
    let answers = all_at_once(&sale, 20, claims).await;
    let mut units = BTreeMap::new();
    for answer in answers {
        match answer {
            Claimed::Won { seq, event } => {
                let record = dropgate_events::decode_event(&event).unwrap();
                let Body::Won(won) = record.event.body else {
                    panic!("not a win");
                };
                assert_eq!(won.link.seq, seq);
                assert_eq!(units.insert(won.unit, won.user), None);
            }
            Claimed::SoldOut { seq } => assert_eq!(seq, Seq(STOCK)),
            other => panic!("{other:?}"),
        }
    }
    let expected: Vec<Unit> = (1..=STOCK).map(Unit).collect();
    assert_eq!(units.keys().copied().collect::<Vec<_>>(), expected);
    let winners: BTreeSet<_> = units.values().collect();
    assert_eq!(winners.len() as u64, STOCK);
    let stored = sale.cli(&["HKEYS", &sale.key("claims")]);
    let stored: BTreeSet<_> = stored.lines().map(user).collect();
    assert_eq!(stored.iter().collect::<BTreeSet<_>>(), winners);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_requests_of_one_user_at_once_win_once() {
    let sale = Sale::open(Definition::of(100)).await;
    let claims = (0..1000).map(|n| claim("u", n)).collect();
    let answers = all_at_once(&sale, 8, claims).await;
    let mut winners = Vec::new();
    let mut repeats: BTreeSet<AttemptId> = BTreeSet::new();
    for (n, answer) in answers.into_iter().enumerate() {
        match answer {
            Claimed::Won { seq, .. } => {
                assert_eq!(seq, Seq(1));
                winners.push(attempt(n as u64));
            }
            Claimed::Again { seq, unit, attempt } => {
                assert_eq!((seq, unit), (Seq(1), Unit(1)));
                repeats.insert(attempt);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(winners.len(), 1);
    assert_eq!(repeats, winners.into_iter().collect());
    assert_eq!(sale.cli(&["HLEN", &sale.key("claims")]), "1");
}

#[tokio::test]
async fn ids_that_differ_beyond_2_to_53_or_in_case_or_in_spelling_are_different_users() {
    let sale = Sale::open(Definition::of(100)).await;
    let names = [
        "9007199254740992",
        "9007199254740993",
        "90071992547409920000000000000001",
        "90071992547409920000000000000002",
        "alice",
        "Alice",
        "1",
        "1.0",
        "01",
        "0x1",
        "ä",
        "a\u{308}",
    ];
    for (n, name) in names.iter().enumerate() {
        let claim = Claim {
            user: user(name),
            key: IdempotencyKey::none(),
            attempt: attempt(n as u64),
        };
        let reply = sale
            .gateway
            .claim(&sale.scope, &sale.scripts, Seq(0), &claim);
        let value = reply.await.unwrap().value;
        assert!(matches!(value, Claimed::Won { .. }), "{name}: {value:?}");
    }
    let count = sale.operator.claims_count(&sale.scope).await.unwrap();
    assert_eq!(count, names.len() as u64);
}
