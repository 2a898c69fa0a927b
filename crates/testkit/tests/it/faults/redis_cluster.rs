//! Three masters with a replica each.

use anyhow::{Context, Result};
use dropgate_testkit::{ClusterOptions, RedisCluster, RespConnection, Value};

#[test]
fn a_killed_master_is_replaced_and_comes_back_as_a_replica() -> Result<()> {
    let mut cluster = RedisCluster::start(&ClusterOptions::default())?;
    let key = "dropgate:{drop-1}:current";
    let old = cluster.master_of(key)?;
    cluster.node(old).cli(&["SET", key, "1"])?;
    let other = cluster.node((old + 1) % 3).command(&["GET", key])?;
    assert!(
        matches!(&other, Value::Error(text) if text.starts_with("MOVED")),
        "{other:?}"
    );
    cluster.node_mut(old).kill9()?;
    let new = cluster.wait_for_new_master(key, old)?;
    assert_eq!(cluster.master_of(key)?, new);
    cluster.node_mut(old).restart()?;
    cluster.wait_healthy()?;
    assert_eq!(cluster.node(new).cli(&["GET", key])?, "1");
    for node in cluster.nodes() {
        assert_eq!(node.cli(&["ACL", "LOG"])?, "");
    }
    Ok(())
}

#[test]
fn a_failover_by_hand_and_a_cut_of_the_clients_alone() -> Result<()> {
    let cluster = RedisCluster::start(&ClusterOptions {
        proxied: true,
        ..ClusterOptions::default()
    })?;
    let key = "dropgate:{drop-1}:current";
    let old = cluster.master_of(key)?;
    let new = cluster.failover(key)?;
    assert_ne!(new, old);
    cluster.wait_healthy()?;
    let node = cluster.node(new);
    let proxy = node.proxy().context("a proxy")?;
    assert!(
        cluster
            .addresses()
            .contains(&format!("127.0.0.1:{}", proxy.port()))
    );
    let mut client = RespConnection::connect(proxy.port())?;
    assert_eq!(client.command(&["PING"])?, Value::Status("PONG".into()));
    proxy.cut()?;
    assert!(client.command(&["PING"]).is_err());
    cluster.wait_healthy()?;
    proxy.heal()?;
    let pong = RespConnection::connect(proxy.port())?.command(&["PING"])?;
    assert_eq!(pong, Value::Status("PONG".into()));
    Ok(())
}
