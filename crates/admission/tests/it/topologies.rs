//! The contract of claims, closing, tips, switching and building, wherever a sale lives.

use crate::fixture::{attempt, claim, eventually, fresh, head_of_start, key, sale_id, user};
use crate::place::{As, Live, Place};
use dropgate_admission::{
    Admission, CallError, Claimed, Closed, ConnectError, Entry, NotCertified, Operator, Scope,
    Scripts, Switched, hashes_for,
};
use dropgate_domain::{Definition, Generation, Nonce, SaleId, Seq, Unit};
use dropgate_testkit::redis::Authority;
use dropgate_testkit::{ClusterOptions, Redis, RedisOptions, TrioOptions};
use std::collections::BTreeSet;

/// Everything that is called in the life of a sale, on what a place gives.
async fn contract(place: &Place, sale: &SaleId) {
    let live = Live::open(place, sale, 2).await;
    assert_eq!(live.gateway.problems().await.unwrap(), [""; 0]);
    sells(&live).await;
    goes_on(&live).await;
    place.nobody_was_refused();
}

async fn ask(
    live: &Live,
    (scope, scripts): (&Scope, &Scripts),
    (name, n): (&str, u64),
    applied: u64,
) -> Result<Claimed, CallError> {
    let claim = claim(name, n);
    let reply = live.gateway.claim(scope, scripts, Seq(applied), &claim);
    reply.await.map(|reply| reply.value)
}

/// The claim of `u`, asked again.
fn again() -> Claimed {
    Claimed::Again {
        seq: Seq(1),
        unit: Unit(1),
        attempt: attempt(1),
    }
}

/// Both units are sold.
async fn sells(live: &Live) {
    let of = (&live.scope, &live.scripts);
    let won = ask(live, of, ("u", 1), 0).await.unwrap();
    assert!(matches!(won, Claimed::Won { seq: Seq(1), .. }), "{won:?}");
    assert_eq!(ask(live, of, ("u", 2), 0).await.unwrap(), again());
    ask(live, of, ("v", 3), 0).await.unwrap();
    let sold_out = Claimed::SoldOut { seq: Seq(2) };
    assert_eq!(ask(live, of, ("w", 4), 0).await.unwrap(), sold_out);
    let tip = live.gateway.tip(of.0, of.1, Seq(1), 10).await.unwrap();
    assert_eq!((tip.value.seq, tip.value.applied), (Seq(2), Seq(1)));
    assert_eq!(tip.value.outbox.len(), 1);
    assert_eq!(live.operator.outbox_len(of.0).await.unwrap(), 1);
    let behind = ask(live, of, ("w", 4), 9).await;
    assert_eq!(behind, Err(CallError::Behind));
}

/// The next generation, on scripts of its own, sells one more and is closed.
async fn goes_on(live: &Live) {
    let (operator, scope, sale) = (&live.operator, &live.scope, live.scope.sale());
    let nonce = Nonce([3; 16]);
    operator.certify(sale).await.unwrap();
    let hashes = hashes_for(nonce);
    assert!(!operator.scripts_loaded(sale, &hashes).await.unwrap());
    let hashes = operator.load_scripts(sale, nonce).await.unwrap();
    assert!(operator.scripts_loaded(sale, &hashes).await.unwrap());
    let scripts = Scripts::from_started(&hashes).unwrap();
    let next = Scope::new(sale.clone(), scope.log(), Generation(2));
    let mut state = fresh(sale, Definition::of(4));
    let head = head_of_start(sale, Generation(2));
    (state.next, state.seq, state.head) = (Unit(3), Seq(2), head);
    let claims = [("u", 1), ("v", 2)].map(|(name, n)| {
        let entry = Entry {
            seq: Seq(n),
            unit: Unit(n),
            attempt: attempt(n),
            key: key(""),
        };
        (user(name), vec![entry])
    });
    assert!(operator.halt(scope).await.unwrap());
    let missing = ask(live, (scope, &live.scripts), ("w", 5), 2).await;
    assert_eq!(missing, Err(CallError::Missing));
    operator.build(&next, &state, claims).await.unwrap();
    assert_eq!(operator.claims_count(&next).await.unwrap(), 2);
    let switched = operator.switch(&scripts, Some(scope), &next, Seq(2), head);
    assert_eq!(switched.await.unwrap().value, Switched::Switched);
    let stale = ask(live, (scope, &live.scripts), ("w", 5), 2).await;
    assert_eq!(stale, Err(CallError::Stale));
    assert!(operator.delete(scope).await.unwrap());

    let of = (&next, &scripts);
    assert_eq!(ask(live, of, ("u", 6), 2).await.unwrap(), again());
    let won = ask(live, of, ("w", 7), 2).await.unwrap();
    assert!(matches!(won, Claimed::Won { seq: Seq(3), .. }), "{won:?}");
    let close = || live.gateway.close(&next, &scripts, Seq(2));
    let closed = close().await.unwrap().value;
    let is_it = matches!(closed, Closed::Now { seq: Seq(4), .. });
    assert!(is_it, "{closed:?}");
    assert_eq!(close().await.unwrap().value, Closed::Already);
    let stored = operator.state(&next).await.unwrap().unwrap();
    assert_eq!((stored.open, stored.seq), (false, Seq(4)));
}

#[tokio::test]
async fn a_single_redis_keeps_the_contract() {
    contract(&Place::single(), &sale_id("drop-1")).await;
}

#[tokio::test]
async fn a_redis_with_tls_keeps_the_contract() {
    contract(&Place::tls(), &sale_id("drop-1")).await;
}

#[tokio::test]
async fn a_master_behind_sentinels_keeps_the_contract() {
    let place = Place::trio(&TrioOptions::default());
    contract(&place, &sale_id("drop-1")).await;
}

#[tokio::test]
async fn every_master_of_a_cluster_keeps_the_contract() {
    let place = Place::cluster(&ClusterOptions::default());
    let mut masters = BTreeSet::new();
    for n in 0.. {
        let sale = sale_id(&format!("drop-{n}"));
        if masters.insert(place.master(&sale)) {
            contract(&place, &sale).await;
        }
        if masters.len() == 3 {
            break;
        }
    }
}

#[tokio::test]
async fn a_certificate_of_a_stranger_is_refused_and_the_reason_named() {
    let place = Place::tls();
    let stranger = Authority::new().unwrap();
    for user in [As::Gateway, As::Operator] {
        let mut config = place.config(user);
        config.tls.ca_file = Some(stranger.ca_file());
        let error = Admission::connect(&config).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(matches!(error, ConnectError::Untrusted(_)), "{shown}");
        assert!(shown.contains("UnknownIssuer"), "{shown}");
        let error = Operator::new(config)
            .certify(&sale_id("a"))
            .await
            .unwrap_err();
        assert!(
            matches!(&error, NotCertified::Call(CallError::Denied(text))
            if text.contains("UnknownIssuer")),
            "{error:?}"
        );
    }
    // The name must be right, too: the certificate is for localhost and 127.0.0.1.
    let mut config = place.config(As::Gateway);
    let port = place.server(0).tls_port().unwrap();
    config.url = format!("rediss://[::ffff:127.0.0.1]:{port}").into();
    let error = Admission::connect(&config).await.unwrap_err();
    assert!(matches!(error, ConnectError::Untrusted(_)), "{error:?}");
    // Without TLS on a port that speaks it, nothing is said in the clear that is answered.
    config.url = format!("redis://127.0.0.1:{port}").into();
    config.tls.ca_file = None;
    config.connect_timeout = std::time::Duration::from_millis(500);
    let plain = Admission::connect(&config).await.unwrap();
    assert!(is_down(plain).await);
}

async fn is_down(client: Admission) -> bool {
    matches!(client.problems().await, Err(CallError::Unavailable(_)))
}

#[tokio::test]
async fn files_of_tls_that_cannot_be_used_are_named() {
    let place = Place::tls();
    let folder = place.server(0).folder().to_owned();
    let (no_pem, missing) = (folder.join("redis.conf"), folder.join("nowhere.pem"));
    let mut config = place.config(As::Gateway);
    for (file, say) in [(&no_pem, "no certificate"), (&missing, "cannot be read")] {
        config.tls.ca_file = Some(file.clone());
        let error = Admission::connect(&config).await.unwrap_err();
        let shown = error.to_string();
        assert!(matches!(error, ConnectError::Invalid(_)), "{shown}");
        assert!(
            shown.contains("tls.ca_file") && shown.contains(say),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn a_server_that_asks_for_a_certificate_is_shown_one() {
    let authority = std::sync::Arc::new(Authority::new().unwrap());
    let redis = Redis::start(&RedisOptions {
        tls: Some(std::sync::Arc::clone(&authority)),
        extra: vec!["tls-auth-clients yes".into()],
        ..RedisOptions::default()
    })
    .unwrap();
    let folder = redis.folder().join("client");
    std::fs::create_dir(&folder).unwrap();
    let (cert, key) = authority.issue(&folder, &["gateway"]).unwrap();
    let place = Place::Tls(redis, authority);
    let mut config = place.config(As::Gateway);
    let error = Admission::connect(&config).await.unwrap_err();
    assert!(matches!(error, ConnectError::Untrusted(_)), "{error:?}");
    config.tls.cert_file = Some(cert);
    config.tls.key_file = Some(key);
    let gateway = Admission::connect(&config).await.unwrap();
    assert_eq!(gateway.problems().await.unwrap(), [""; 0]);
}

#[tokio::test]
async fn wrong_passwords_are_clear_errors_wherever_they_are_wrong() {
    let trio = Place::trio(&TrioOptions::default());
    let cluster = Place::cluster(&ClusterOptions::default());
    let of = |place: &Place| place.config(As::Gateway);
    let (mut to_server, mut to_sentinel, mut to_node) = (of(&trio), of(&trio), of(&cluster));
    to_server.password = Some("hunter2".into());
    to_sentinel.sentinel.password = Some("hunter2".into());
    to_node.password = Some("hunter2".into());
    for config in [to_server, to_sentinel, to_node] {
        let error = Admission::connect(&config).await.unwrap_err();
        let shown = format!("{error} {error:?}");
        assert!(matches!(error, ConnectError::Denied(_)), "{shown}");
        assert!(
            shown.contains("WRONGPASS") && !shown.contains("hunter2"),
            "{shown}"
        );
    }
}

#[tokio::test]
async fn a_topology_that_is_not_the_servers_is_named_as_the_problem() {
    let cluster = Place::cluster(&ClusterOptions::default());
    let trio = Place::trio(&TrioOptions::default());
    let single = Place::single();
    let port = cluster.server(0).port();
    let mut as_single = cluster.config(As::Gateway);
    as_single.topology = dropgate_admission::Topology::Single;
    as_single.url = format!("redis://127.0.0.1:{port}").into();
    as_single.nodes = Vec::new();
    let mut as_cluster = single.config(As::Gateway);
    as_cluster.topology = dropgate_admission::Topology::Cluster;
    as_cluster.nodes = vec![format!("127.0.0.1:{}", single.server(0).port())];
    as_cluster.url = dropgate_admission::RedisConfig::default().url;
    as_cluster.connect_timeout = std::time::Duration::from_millis(500);
    for (config, say) in [
        (as_single, "topology to cluster"),
        (as_cluster, "topology to single"),
    ] {
        let gateway = Admission::connect(&config).await.unwrap();
        let problems = gateway.problems().await.unwrap();
        assert!(problems.iter().any(|p| p.contains(say)), "{problems:?}");
    }
    // A service that no sentinel knows is named, too.
    let mut config = trio.config(As::Gateway);
    config.sentinel.service = "nobody".into();
    config.connect_timeout = std::time::Duration::from_millis(500);
    let gateway = Admission::connect(&config).await.unwrap();
    let named = |answer: &Result<Vec<String>, CallError>| match answer {
        Ok(problems) => problems.iter().any(|p| p.contains("nobody")),
        Err(_) => false,
    };
    let _ = eventually("the reason", || gateway.problems(), named).await;
}

#[tokio::test]
async fn every_master_with_a_wrong_setting_is_named() {
    let place = Place::cluster(&ClusterOptions::default());
    let gateway = Admission::connect(&place.config(As::Gateway))
        .await
        .unwrap();
    let ask = || async { gateway.problems().await };
    let fine = |problems: &Result<Vec<String>, CallError>| problems == &Ok(Vec::new());
    eventually("no problems", ask, fine).await.unwrap();
    let port = place.server(1).port();
    let set = ["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"];
    place.server(1).cli(&set).unwrap();
    let problems = gateway.problems().await.unwrap();
    let named = problems[0].contains(&port.to_string()) && problems[0].contains("allkeys-lru");
    assert!(problems.len() == 1 && named, "{problems:?}");
}
