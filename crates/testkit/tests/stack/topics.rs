//! Deleting a topic and making it anew, as somebody with the broker's tools would: two requests of
//! Kafka's protocol, written out.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};

use anyhow::{Context, Result, bail, ensure};
use dropgate_testkit::wait::{self, Seen};

use crate::client::BOUND;

const CREATE_TOPICS: i16 = 19;
const DELETE_TOPICS: i16 = 20;
const UNKNOWN_TOPIC: i16 = 3;
const ALREADY_EXISTS: i16 = 36;

/// How long the broker may take for one, in milliseconds.
const TIMEOUT_MS: i32 = 30_000;

/// Deletes a topic and waits until the broker no longer knows it.
pub fn delete(port: u16, topic: &str) -> Result<()> {
    let mut body = Vec::new();
    body.extend(1_i32.to_be_bytes());
    text(&mut body, topic)?;
    body.extend(TIMEOUT_MS.to_be_bytes());
    wait::until("the topic to be gone", wait::START, || {
        Ok(match ask(port, DELETE_TOPICS, &body, topic)? {
            UNKNOWN_TOPIC => Seen::Done(()),
            0 => Seen::NotYet("it was there".to_owned()),
            error => bail!("the broker answers with error {error}"),
        })
    })
}

/// Makes a topic.
pub fn create(port: u16, topic: &str, partitions: i32) -> Result<()> {
    let mut body = Vec::new();
    body.extend(1_i32.to_be_bytes());
    text(&mut body, topic)?;
    body.extend(partitions.to_be_bytes());
    body.extend(1_i16.to_be_bytes());
    // No assignments, no settings.
    body.extend([0; 8]);
    body.extend(TIMEOUT_MS.to_be_bytes());
    // Not only a trial.
    body.push(0);
    wait::until("the topic to be made", wait::START, || {
        Ok(match ask(port, CREATE_TOPICS, &body, topic)? {
            0 => Seen::Done(()),
            ALREADY_EXISTS => Seen::NotYet("the old one is there".to_owned()),
            error => bail!("the broker answers with error {error}"),
        })
    })
}

/// Sends one request, in version 2 of either kind, and gives the topic's error code.
fn ask(port: u16, kind: i16, body: &[u8], topic: &str) -> Result<i16> {
    let mut request = Vec::new();
    request.extend(kind.to_be_bytes());
    request.extend(2_i16.to_be_bytes());
    // The number of the request, and no name of the client.
    request.extend(1_i32.to_be_bytes());
    request.extend((-1_i16).to_be_bytes());
    request.extend(body);
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(BOUND))?;
    stream.write_all(&i32::try_from(request.len())?.to_be_bytes())?;
    stream.write_all(&request)?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::try_from(i32::from_be_bytes(length))?];
    stream.read_exact(&mut answer)?;
    // Number, time throttled, count of topics; of each the name, then the code.
    let mut expected = vec![0, 0, 0, 1];
    text(&mut expected, topic)?;
    let found = answer.get(8..).context("a whole answer")?;
    ensure!(found.starts_with(&expected), "not this topic: {answer:?}");
    let code = found.get(expected.len()..expected.len() + 2);
    let code = code.and_then(|code| code.try_into().ok());
    Ok(i16::from_be_bytes(code.context("an error code")?))
}

fn text(out: &mut Vec<u8>, text: &str) -> Result<()> {
    out.extend(i16::try_from(text.len())?.to_be_bytes());
    out.extend(text.as_bytes());
    Ok(())
}
