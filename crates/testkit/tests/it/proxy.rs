use std::time::Duration;

use anyhow::Result;
use dropgate_testkit::{Proxy, Redis, RedisOptions, RespConnection, Value};

fn pong() -> Value {
    Value::Status("PONG".into())
}

#[test]
fn bytes_flow_before_a_cut_and_none_after() -> Result<()> {
    let redis = Redis::start(&RedisOptions::default())?;
    let proxy = Proxy::start(redis.port())?;
    let mut client = RespConnection::connect(proxy.port())?;
    assert_eq!(client.command(&["PING"])?, pong());
    let before = (proxy.bytes_to_server(), proxy.bytes_to_client());
    assert_eq!(before, (14, 7), "a PING is 14 bytes, a PONG is 7");

    proxy.cut()?;
    assert!(
        client.command(&["PING"]).is_err(),
        "a cut connection answered"
    );
    assert!(
        RespConnection::connect(proxy.port()).is_err(),
        "a cut proxy took a connection"
    );
    let after = (proxy.bytes_to_server(), proxy.bytes_to_client());
    assert_eq!(after, before, "bytes passed after the cut");
    assert_eq!(
        redis.command(&["PING"])?,
        pong(),
        "the server itself runs on"
    );

    proxy.heal()?;
    let mut client = RespConnection::connect(proxy.port())?;
    assert_eq!(client.command(&["PING"])?, pong());
    assert!(proxy.bytes_to_client() > before.1);
    Ok(())
}

#[test]
fn a_blackhole_holds_bytes_back_and_a_heal_lets_them_go() -> Result<()> {
    let redis = Redis::start(&RedisOptions::default())?;
    let proxy = Proxy::start(redis.port())?;
    let mut old = RespConnection::connect(proxy.port())?;
    assert_eq!(old.command(&["PING"])?, pong());
    let before = (proxy.bytes_to_server(), proxy.bytes_to_client());

    proxy.blackhole()?;
    old.send(&["INCR", "n"])?;
    let mut new = RespConnection::connect(proxy.port())?;
    new.send(&["INCR", "n"])?;
    // The server is asked directly: it has seen neither.
    assert_eq!(redis.command(&["GET", "n"])?, Value::Nil);
    assert_eq!((proxy.bytes_to_server(), proxy.bytes_to_client()), before);

    proxy.heal()?;
    let replies = [old.read()?, new.read()?];
    assert!(replies.contains(&Value::Int(1)) && replies.contains(&Value::Int(2)));
    Ok(())
}

#[test]
fn a_swallowed_reply_means_that_the_server_acted() -> Result<()> {
    let redis = Redis::start(&RedisOptions::default())?;
    let proxy = Proxy::start(redis.port())?;
    let mut client = RespConnection::connect(proxy.port())?;
    assert_eq!(client.command(&["PING"])?, pong());
    let before = proxy.bytes_to_client();
    proxy.swallow_replies()?;
    client.send(&["INCR", "n"])?;
    dropgate_testkit::wait::until("the server to act", Duration::from_secs(30), || {
        Ok(match redis.command(&["GET", "n"])? {
            Value::Nil => dropgate_testkit::wait::Seen::NotYet("nothing".into()),
            _ => dropgate_testkit::wait::Seen::Done(()),
        })
    })?;
    assert_eq!(proxy.bytes_to_client(), before);
    Ok(())
}

#[test]
fn a_delay_holds_every_answer_back() -> Result<()> {
    let redis = Redis::start(&RedisOptions::default())?;
    let proxy = Proxy::start(redis.port())?;
    let mut client = RespConnection::connect(proxy.port())?;
    proxy.delay(Duration::from_millis(50))?;
    let begun = std::time::Instant::now();
    assert_eq!(client.command(&["PING"])?, pong());
    // A lower bound: once for the request, once for the reply.
    assert!(begun.elapsed() >= Duration::from_millis(100));
    Ok(())
}

#[tokio::test]
async fn it_works_inside_a_runtime_of_one_thread() -> Result<()> {
    let redis = Redis::start(&RedisOptions::default())?;
    let proxy = Proxy::start(redis.port())?;
    proxy.cut()?;
    proxy.heal()?;
    let mut client = RespConnection::connect(proxy.port())?;
    assert_eq!(client.command(&["PING"])?, pong());
    Ok(())
}
