use anyhow::Result;
use dropgate_testkit::redis::{GATEWAY_PASSWORD, OPERATOR_PASSWORD};
use dropgate_testkit::{AppendOnly, Redis, RedisOptions, Value};

fn alive(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn redis_runs_commands_and_dies_with_its_owner() -> Result<()> {
    let redis = Redis::start(&RedisOptions::default())?;
    assert!(redis.port() < 22_000);
    assert_eq!(redis.cli(&["SET", "a", "1"])?, "OK");
    assert_eq!(redis.command(&["GET", "a"])?, Value::Bulk(b"1".to_vec()));
    let pid = redis.pid();
    drop(redis);
    assert!(!alive(pid), "redis {pid} outlived its owner");
    Ok(())
}

#[test]
fn a_panic_takes_the_server_with_it() -> Result<()> {
    let (sender, pid) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        let redis = Redis::start(&RedisOptions::default()).unwrap();
        sender.send(redis.pid()).unwrap();
        panic!("as a failing test does");
    });
    let pid = pid.recv()?;
    assert!(thread.join().is_err());
    assert!(!alive(pid), "redis {pid} outlived a panic");
    Ok(())
}

#[test]
fn append_only_data_survives_a_kill_and_the_script_cache_does_not() -> Result<()> {
    let mut redis = Redis::start(&RedisOptions {
        append_only: AppendOnly::Always,
        ..RedisOptions::default()
    })?;
    let port = redis.port();
    redis.cli(&["SET", "a", "1"])?;
    let hash = redis.cli(&["SCRIPT", "LOAD", "return 1"])?;
    assert_eq!(redis.command(&["EVALSHA", &hash, "0"])?, Value::Int(1));
    redis.kill9()?;
    assert!(redis.connect().is_err(), "a killed Redis answered");
    redis.restart()?;
    assert_eq!(redis.port(), port);
    assert_eq!(redis.cli(&["GET", "a"])?, "1");
    let Value::Error(error) = redis.command(&["EVALSHA", &hash, "0"])? else {
        panic!("a restarted Redis still knew a script");
    };
    assert!(error.starts_with("NOSCRIPT"), "{error}");
    Ok(())
}

#[test]
fn a_paused_redis_runs_what_was_buffered() -> Result<()> {
    let mut redis = Redis::start(&RedisOptions::default())?;
    let mut connection = redis.connect()?;
    redis.pause()?;
    connection.send(&["INCR", "n"])?;
    redis.resume()?;
    assert_eq!(connection.read()?, Value::Int(1));
    Ok(())
}

#[test]
fn a_replica_follows_and_can_be_promoted() -> Result<()> {
    let master = Redis::start(&RedisOptions::default())?;
    master.cli(&["SET", "a", "1"])?;
    let replica = Redis::start(&RedisOptions {
        replica_of: Some(master.port()),
        ..RedisOptions::default()
    })?;
    replica.wait_for_replication()?;
    assert_eq!(replica.cli(&["GET", "a"])?, "1");
    let refused = replica.command(&["SET", "a", "2"])?;
    assert!(
        matches!(&refused, Value::Error(e) if e.starts_with("READONLY")),
        "{refused:?}"
    );
    replica.promote()?;
    assert_eq!(replica.cli(&["SET", "a", "2"])?, "OK");
    assert_eq!(master.cli(&["GET", "a"])?, "1");
    Ok(())
}

fn refused(value: &Value) -> bool {
    matches!(value, Value::Error(e) if e.starts_with("NOPERM"))
}

#[test]
fn the_gateway_user_runs_scripts_by_hash_only_and_only_on_its_keys() -> Result<()> {
    let redis = Redis::start(&RedisOptions::default())?;
    let script = "redis.call('HSET', KEYS[1], 'f', 'v') \
                  redis.call('XADD', KEYS[2], '1-0', 'e', 'x') \
                  redis.call('XTRIM', KEYS[2], 'MINID', '1') \
                  return {redis.call('TIME')[1], redis.call('HMGET', KEYS[1], 'f')[1], \
                          redis.call('HGET', KEYS[1], 'f'), redis.call('GET', KEYS[3]), \
                          #redis.call('XRANGE', KEYS[2], '-', '+')}";
    let mut operator = redis.connect_as("operator", OPERATOR_PASSWORD)?;
    let hash = operator.command(&["SCRIPT", "LOAD", script])?.to_string();
    let mut gateway = redis.connect_as("gateway", GATEWAY_PASSWORD)?;
    let keys = ["dropgate:{a}:h", "dropgate:{a}:s", "dropgate:{a}:current"];
    let reply = gateway.command(&["EVALSHA", &hash, "3", keys[0], keys[1], keys[2]])?;
    assert_eq!(reply.items().map(<[Value]>::len), Some(5), "{reply:?}");
    for command in [
        vec!["SCRIPT", "LOAD", "return 1"],
        vec!["SCRIPT", "FLUSH"],
        vec!["EVAL", "return 1", "0"],
        vec!["FUNCTION", "LIST"],
        vec!["FLUSHALL"],
        vec!["DEL", "dropgate:{a}:h"],
        vec!["KEYS", "*"],
        vec!["CONFIG", "GET", "maxmemory-policy"],
        vec!["GET", "other"],
        vec!["EVALSHA", &hash, "3", "x", "y", "z"],
    ] {
        let reply = gateway.command(&command)?;
        assert!(
            refused(&reply),
            "gateway was allowed {command:?}: {reply:?}"
        );
    }
    let info = gateway.command(&["INFO", "memory"])?.to_string();
    assert!(info.contains("maxmemory_policy:noeviction"), "{info}");
    Ok(())
}

#[test]
fn the_operator_user_builds_state_but_cannot_wipe_it() -> Result<()> {
    let redis = Redis::start(&RedisOptions::default())?;
    let mut operator = redis.connect_as("operator", OPERATOR_PASSWORD)?;
    for command in [
        vec!["HSET", "dropgate:{a}:h", "f", "v"],
        vec!["HSCAN", "dropgate:{a}:h", "0"],
        vec!["HGETALL", "dropgate:{a}:h"],
        vec!["SET", "dropgate:{a}:current", "x:1"],
        vec!["GET", "dropgate:{a}:current"],
        vec!["UNLINK", "dropgate:{a}:h"],
        vec!["SCRIPT", "EXISTS", "0"],
        vec!["CONFIG", "GET", "maxmemory-policy"],
        vec!["INFO"],
        vec!["ROLE"],
        vec!["TIME"],
    ] {
        let reply = operator.command(&command)?;
        assert!(!matches!(reply, Value::Error(_)), "{command:?}: {reply:?}");
    }
    for command in [
        vec!["FLUSHALL"],
        vec!["SCRIPT", "FLUSH"],
        vec!["CONFIG", "SET", "maxmemory-policy", "allkeys-lru"],
        vec!["GET", "other"],
        vec!["EVAL", "return 1", "0"],
    ] {
        let reply = operator.command(&command)?;
        assert!(
            refused(&reply),
            "operator was allowed {command:?}: {reply:?}"
        );
    }
    Ok(())
}
