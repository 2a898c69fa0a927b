//! A broker that stops, dies, or loses a topic.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dropgate_testkit::Kafka;

use crate::client::{Answer, Client};
use crate::crowd::{Crowd, Transcript};
use crate::stack::{Own, Stack, TICK};
use crate::topics;

const STOCK: u64 = 600;

/// How long the broker is away: several times what a claim waits, and what a log is fresh for.
const AWAY: Duration = Duration::from_secs(6);

/// Ten times `confirm_max`: what an answer may take on a busy machine.
const ANSWER_MAX: Duration = Duration::from_secs(20);

#[test]
fn without_its_broker_a_sale_tells_no_false_win_and_goes_on_by_itself() -> Result<()> {
    let own = Own {
        kafka: true,
        ..Own::default()
    };
    Stack::start(own)?.play(|stack| {
        interrupted(stack, "stopped", Kafka::pause, Kafka::resume)?;
        interrupted(stack, "killed", Kafka::kill9, Kafka::restart)?;
        a_topic_made_anew(stack)
    })
}

/// What one more user was told.
struct Told {
    user: String,
    answer: Answer,
    /// The broker was away from before the claim until after the answer.
    away: bool,
}

/// A sale whose broker goes away in the middle of it, and comes back.
fn interrupted(
    stack: &mut Stack,
    sale: &str,
    down: fn(&mut Kafka) -> Result<()>,
    up: fn(&mut Kafka) -> Result<()>,
) -> Result<()> {
    stack.open(sale, STOCK)?;
    let crowd = Crowd {
        users: 1_500,
        rate: 300,
        patience: 60,
    };
    let clicking = crowd.come(stack, sale)?;
    let sold = stack.sold(0, sale, STOCK / 4)?;
    let clients = [0, 1].map(|gateway| stack.client(gateway));
    let kafka = stack.kafka.as_mut().context("a broker")?;
    down(kafka)?;
    let back = &AtomicBool::new(false);
    let told = thread::scope(|scope| {
        let askers = clients.map(|client| scope.spawn(move || ask(client, sale, back)));
        thread::sleep(AWAY);
        back.store(true, Ordering::SeqCst);
        let up = up(kafka);
        let told = askers.map(|asker| asker.join().ok().context("a thread")?);
        up.and(told.into_iter().collect::<Result<Vec<_>>>())
    })?;
    let away = only_pending_or_unavailable(told.iter().flatten())?;
    for gateway in 0..told.len() {
        stack.readiness(gateway, 200)?;
    }
    let mut last = Vec::new();
    for (gateway, told) in told.into_iter().enumerate() {
        let mut client = stack.client(gateway);
        for Told { user, answer, .. } in told {
            let answer = client.follow(sale, &user, answer)?;
            last.push((client.url(), user, answer));
        }
    }
    let heard = clicking.done()?;
    let mut transcript = Transcript::append(&heard.told, sale)?;
    for (gateway, user, answer) in &last {
        transcript.note(gateway, user, answer)?;
    }
    let won = last
        .iter()
        .filter(|(_, _, answer)| answer.body["unit"].is_u64());
    let won = won.count() as u64;
    println!(
        "{sale} at {sold} wins; of {} who asked meanwhile {won} won in the end; the answers while \
         it was away: {away:?}; the crowd's by status: {:?}",
        last.len(),
        heard.report.http
    );
    heard.sold_all(STOCK - won)?;
    stack.books(sale, STOCK, &heard.told)
}

/// Claims for one new user after the other until the broker is back.
fn ask(mut client: Client, sale: &str, back: &AtomicBool) -> Result<Vec<Told>> {
    let mut told = Vec::new();
    while !back.load(Ordering::SeqCst) {
        let user = format!("meanwhile-{}-{}", client.port(), told.len());
        let answer = client.claim(sale, &user)?;
        let away = !back.load(Ordering::SeqCst);
        told.push(Told { user, answer, away });
        thread::sleep(TICK);
    }
    Ok(told)
}

/// Counts the answers that were given while the broker was away, with the slowest of each kind in
/// milliseconds: there must be none but 202 and 503.
fn only_pending_or_unavailable<'a>(
    told: impl Iterator<Item = &'a Told>,
) -> Result<BTreeMap<String, (u64, u128)>> {
    let mut kinds = BTreeMap::new();
    for Told { user, answer, .. } in told.filter(|told| told.away) {
        ensure!(
            matches!(answer.status, 202 | 503) && answer.code() != "halted",
            "{user} was told {answer:?} by a log that was away"
        );
        ensure!(answer.took < ANSWER_MAX, "{user} waited for {answer:?}");
        let (count, slowest) = kinds.entry(answer.kind()).or_insert((0, 0));
        *count += 1;
        *slowest = answer.took.as_millis().max(*slowest);
    }
    let unavailable = kinds.keys().any(|kind| kind.starts_with("503"));
    ensure!(
        unavailable,
        "nobody was told that it is unavailable: {kinds:?}"
    );
    Ok(kinds)
}

/// The topic of the claims is deleted under running services, and made anew: an empty log of the
/// same name is not taken for the old one, by nobody.
fn a_topic_made_anew(stack: &mut Stack) -> Result<()> {
    stack.open("anew", 100)?;
    for gateway in 0..stack.gateways.len() {
        let user = format!("early-{gateway}");
        let won = stack.client(gateway).buy("anew", &user)?;
        ensure!(won.status == 201, "{won:?}");
    }
    let port = stack.kafka.as_ref().context("a broker")?.port();
    let topic = format!("{}-claims", stack.run);
    topics::delete(port, &topic)?;
    nobody_sells(stack)?;
    topics::create(port, &topic, 4)?;
    nobody_sells(stack)?;
    // The writer has nothing left to follow, and says so with its exit.
    let code = stack.writer.process.wait(ANSWER_MAX)?;
    let output = stack.writer.process.output()?;
    ensure!(
        code.is_some_and(|code| code != 0) && output.contains(&topic),
        "the order-writer ended with {code:?}: {output}"
    );
    // Nor by a gateway that starts on the new one.
    let gateway = stack.gateways.last_mut().context("a gateway")?;
    gateway.process.restart()?;
    let mut client = stack.client(1);
    client.is_refused("anew", "late", "503 halted")?;
    let state = client.state("anew")?;
    ensure!(state.text("state") == "halted", "{state:?}");
    Ok(())
}

/// No gateway is ready any more, and none gives a claim any answer but 503.
fn nobody_sells(stack: &Stack) -> Result<()> {
    for gateway in 0..stack.gateways.len() {
        let says = stack.readiness(gateway, 503)?;
        println!("gateway {gateway} of a topic that is gone: {says}");
    }
    for user in 0..20 {
        for gateway in 0..stack.gateways.len() {
            let mut client = stack.client(gateway);
            let refused = client.claim("anew", &format!("late-{user}"))?;
            ensure!(refused.status == 503, "{refused:?}");
            let again = client.claim("anew", &format!("early-{gateway}"))?;
            ensure!(again.status == 503, "{again:?}");
        }
        thread::sleep(TICK);
    }
    Ok(())
}
