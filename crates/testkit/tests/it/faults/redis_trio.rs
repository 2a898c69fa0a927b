//! A master with a replica and three sentinels.

use anyhow::{Context, Result};
use dropgate_testkit::redis::{DISCOVERY_PASSWORD, DISCOVERY_USER, GATEWAY_PASSWORD};
use dropgate_testkit::{RedisTrio, RespConnection, TrioOptions, Value};

/// Nobody was refused anything: the users that are shipped may do what is needed.
fn nobody_was_refused(trio: &RedisTrio) -> Result<()> {
    for server in trio.servers() {
        assert_eq!(server.cli(&["ACL", "LOG"])?, "", "a server");
    }
    for sentinel in trio.sentinels() {
        assert_eq!(sentinel.cli(&["ACL", "LOG"])?, "", "a sentinel");
    }
    Ok(())
}

#[test]
fn the_replica_takes_over_from_a_killed_master_and_the_old_one_follows_it() -> Result<()> {
    let mut trio = RedisTrio::start(&TrioOptions::default())?;
    let old = trio.wait_healthy()?;
    assert_eq!(old, 0);
    trio.server(old).cli(&["SET", "dropgate:a", "1"])?;
    trio.wait_healthy()?;
    trio.server_mut(old).kill9()?;
    let new = trio.wait_for_new_master(old)?;
    assert_eq!(trio.server(new).cli(&["GET", "dropgate:a"])?, "1");
    trio.server_mut(old).restart()?;
    assert_eq!(trio.wait_healthy()?, new);
    assert_eq!(trio.server(old).cli(&["GET", "dropgate:a"])?, "1");
    nobody_was_refused(&trio)
}

#[test]
fn a_paused_master_is_replaced_and_follows_when_it_goes_on() -> Result<()> {
    let mut trio = RedisTrio::start(&TrioOptions::default())?;
    let old = trio.master()?;
    trio.server_mut(old).pause()?;
    let new = trio.wait_for_new_master(old)?;
    trio.server_mut(old).resume()?;
    assert_eq!(trio.wait_healthy()?, new);
    nobody_was_refused(&trio)
}

#[test]
fn a_failover_by_hand_goes_there_and_back() -> Result<()> {
    let trio = RedisTrio::start(&TrioOptions {
        replicas: 2,
        ..TrioOptions::default()
    })?;
    let old = trio.master()?;
    for _ in 0..2 {
        let master = trio.wait_healthy()?;
        trio.failover()?;
        trio.wait_for_new_master(master)?;
    }
    trio.wait_healthy()?;
    assert!(old < 3);
    nobody_was_refused(&trio)
}

#[test]
fn clients_are_cut_off_from_a_master_that_sentinels_and_replica_still_reach() -> Result<()> {
    let trio = RedisTrio::start(&TrioOptions {
        proxied: true,
        ..TrioOptions::default()
    })?;
    let master = trio.master()?;
    let server = trio.server(master);
    let proxy = server.proxy().context("a proxy")?;
    assert_eq!(proxy.connections(), 0, "servers are not counted");
    let told = trio.sentinels()[0].master(RedisTrio::SERVICE)?;
    assert_eq!(told["port"], proxy.port().to_string());
    let mut client = RespConnection::connect(proxy.port())?;
    let auth = ["AUTH", "gateway", GATEWAY_PASSWORD];
    assert_eq!(client.command(&auth)?, Value::Status("OK".into()));

    proxy.cut()?;
    assert!(client.command(&["PING"]).is_err(), "an old connection");
    let refused = RespConnection::connect(proxy.port()).and_then(|mut c| c.command(&["PING"]));
    assert!(refused.is_err(), "a new connection: {refused:?}");
    // The replica goes on following, and the sentinels see nothing.
    server.cli(&["SET", "dropgate:a", "1"])?;
    assert_eq!(trio.wait_healthy()?, master);
    proxy.heal()?;
    let answer = RespConnection::connect(proxy.port())?.command(&auth)?;
    assert_eq!(answer, Value::Status("OK".into()));
    nobody_was_refused(&trio)
}

#[test]
fn the_user_that_asks_sentinels_may_do_nothing_else() -> Result<()> {
    let trio = RedisTrio::start(&TrioOptions::default())?;
    let sentinel = &trio.sentinels()[0];
    let mut client = RespConnection::connect(sentinel.port())?;
    let auth = ["AUTH", DISCOVERY_USER, DISCOVERY_PASSWORD];
    assert_eq!(client.command(&auth)?, Value::Status("OK".into()));
    let service = RedisTrio::SERVICE;
    let reply = client.command(&["SENTINEL", "MASTER", service])?;
    assert!(reply.items().is_some(), "{reply:?}");
    for denied in [
        &["SENTINEL", "FAILOVER", service][..],
        &["SENTINEL", "REMOVE", service],
        &["SENTINEL", "SET", service, "quorum", "1"],
        &["SENTINEL", "CONFIG", "GET", "*"],
        &["SHUTDOWN"],
    ] {
        let reply = client.command(denied)?;
        let is_denied = matches!(&reply, Value::Error(text) if text.starts_with("NOPERM"));
        assert!(is_denied, "{denied:?}: {reply:?}");
    }
    Ok(())
}
