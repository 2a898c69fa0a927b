use std::io::{Read, Write};
use std::net::TcpStream;

use anyhow::Result;
use dropgate_testkit::{Kafka, KafkaOptions};

/// ApiVersions (request 18, version 0): a broker answers it on any connection.
fn ask(port: u16) -> Result<Vec<u8>> {
    let bound = std::time::Duration::from_secs(60);
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(bound))?;
    stream.write_all(b"\0\0\0\x0a\0\x12\0\0\0\0\0\x07\xff\xff")?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer)?;
    Ok(answer)
}

#[test]
fn the_shared_broker_is_the_same_for_everybody() -> Result<()> {
    let first = Kafka::shared_brokers()?;
    assert_eq!(first, Kafka::shared_brokers()?);
    Ok(())
}

#[test]
fn a_broker_advertises_its_proxy_and_comes_back_after_a_kill() -> Result<()> {
    let mut kafka = Kafka::start(&KafkaOptions {
        proxies: 1,
        ..KafkaOptions::default()
    })?;
    let proxy = kafka.proxy(0)?;
    assert_ne!(kafka.proxied_brokers(0)?, kafka.brokers());
    assert!(ask(proxy.port())?.starts_with(&[0, 0, 0, 7]));
    let before = (proxy.bytes_to_server(), proxy.bytes_to_client());
    assert!(before.0 > 0 && before.1 > 0);
    proxy.cut()?;
    assert!(ask(proxy.port()).is_err(), "a cut broker answered");
    assert_eq!((proxy.bytes_to_server(), proxy.bytes_to_client()), before);
    assert!(ask(kafka.port())?.starts_with(&[0, 0, 0, 7]));
    proxy.heal()?;
    let (proxied, pid) = (proxy.port(), kafka.pid());

    kafka.kill9()?;
    assert!(ask(kafka.port()).is_err(), "a killed broker answered");
    kafka.restart()?;
    assert_ne!(kafka.pid(), pid);
    assert!(ask(proxied)?.starts_with(&[0, 0, 0, 7]));
    Ok(())
}
