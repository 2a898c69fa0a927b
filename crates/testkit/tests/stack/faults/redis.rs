//! A Redis that forgets, or might.

use anyhow::{Result, ensure};
use dropgate_testkit::wait::{self, Seen};

use crate::crowd::Crowd;
use crate::stack::{Own, Stack};
use crate::verdict::Asked;

#[test]
fn a_redis_that_forgets_in_mid_sale_halts_it_everywhere_and_nobody_is_told_sold_out() -> Result<()>
{
    Stack::start(Own::default())?.play(|stack| {
        might_forget(stack)?;
        forgets(stack)
    })
}

/// With an eviction policy no gateway is ready, and it says why.
fn might_forget(stack: &Stack) -> Result<()> {
    let policy = |policy| {
        stack
            .redis
            .cli(&["CONFIG", "SET", "maxmemory-policy", policy])
    };
    policy("allkeys-lru")?;
    for gateway in 0..stack.gateways.len() {
        let says = stack.readiness(gateway, 503)?;
        ensure!(says.contains("allkeys-lru"), "{says}");
    }
    policy("noeviction")?;
    for gateway in 0..stack.gateways.len() {
        stack.readiness(gateway, 200)?;
    }
    Ok(())
}

fn forgets(stack: &mut Stack) -> Result<()> {
    const STOCK: u64 = 1_000;
    stack.open("forgotten", STOCK)?;
    let crowd = Crowd {
        users: 1_200,
        rate: 300,
        // A halt ends only by hand: whoever has not won by then ends without an answer.
        patience: 3,
    };
    let clicking = crowd.come(stack, "forgotten")?;
    stack.sold(0, "forgotten", 200)?;
    stack.redis.cli(&["FLUSHALL"])?;
    for gateway in 0..stack.gateways.len() {
        let mut client = stack.client(gateway);
        wait::until("the sale to be halted", wait::START, || {
            let state = client.state("forgotten")?;
            Ok(match state.text("state") {
                "halted" => Seen::Done(()),
                "open" => Seen::NotYet(format!("{state:?}")),
                _ => anyhow::bail!("neither open nor halted: {state:?}"),
            })
        })?;
        client.is_refused("forgotten", "late", "503 halted")?;
    }
    let heard = clicking.done()?;
    let report = &heard.report;
    println!(
        "{} won, {} ended halted; answers by status {:?}",
        report.won, report.errors, report.http
    );
    ensure!(
        report.sold_out == 0 && (200..STOCK).contains(&report.won) && report.errors > 0,
        "{report:?}"
    );
    winners_still_see_their_claims(stack, &heard.told)?;
    // All but Redis balances, and the reconciler does not say that Redis does.
    stack.caught_up("forgotten")?;
    let judged = stack.ask_the_oracle("forgotten", &heard.told, Asked::NotRedis)?;
    ensure!(judged.holds, "the oracle: {}", judged.text);
    let reconciled = stack.reconcile("forgotten", &heard.told)?;
    ensure!(!reconciled.holds, "the reconciler: {}", reconciled.text);
    Ok(())
}

/// A win that was told stays told, from the log.
fn winners_still_see_their_claims(stack: &Stack, told: &std::path::Path) -> Result<()> {
    let told = std::fs::read_to_string(told)?;
    let mut checked = 0;
    for line in told.lines() {
        let line: serde_json::Value = serde_json::from_str(line)?;
        if line["status"] != "won" || checked == 20 {
            continue;
        }
        checked += 1;
        let (user, claim) = (&line["user"], &line["claim"]);
        let (user, claim) = (user.as_str().unwrap(), claim.as_str().unwrap());
        for gateway in 0..stack.gateways.len() {
            let path = format!("/v1/sales/forgotten/claims/{claim}");
            let mut client = stack.client(gateway);
            let found = client.look_up(&path, user)?;
            let found = client.follow("forgotten", user, found)?;
            ensure!(
                found.status == 200 && found.body["unit"] == line["unit"],
                "{found:?}"
            );
        }
    }
    ensure!(checked == 20, "{checked} winners");
    Ok(())
}
