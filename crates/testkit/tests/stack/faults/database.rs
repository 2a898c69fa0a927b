//! A database that is down or locked. Nobody who claims may notice.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use dropgate_testkit::wait::{self, Seen};

use crate::crowd::{Crowd, Transcript};
use crate::stack::{Own, Servers, Stack, readiness};

/// How long the orders are locked, in seconds: longer than a statement may take.
const LOCKED_SECONDS: u64 = 20;

#[test]
fn a_sale_goes_on_without_its_database_and_the_rows_follow() -> Result<()> {
    let mut servers = Servers::start(Own {
        postgres: true,
        ..Own::default()
    })?;
    // Before anybody has reached it: gateways and writer have never seen it.
    let postgres = servers.postgres.as_mut().context("a database")?;
    postgres.kill9()?;
    Stack::on(servers, "/livez")?.play(|stack| {
        down_for_the_whole_sale(stack)?;
        locked_for_a_while(stack)
    })
}

fn down_for_the_whole_sale(stack: &mut Stack) -> Result<()> {
    const STOCK: u64 = 300;
    stack.open("down", STOCK)?;
    let crowd = Crowd {
        users: 1_000,
        rate: 400,
        patience: 60,
    };
    let heard = crowd.come(stack, "down")?.done()?;
    heard.sold_all(STOCK)?;
    let asked = stack.client(0).buy("down", "late")?;
    ensure!(asked.kind() == "409 sold_out", "{asked:?}");
    let url = stack.gateways[0].url();
    Transcript::append(&heard.told, "down")?.note(&url, "late", &asked)?;
    let postgres = stack.postgres.as_mut().context("a database")?;
    postgres.restart()?;
    readiness(stack.writer.ops.number(), 200, "")?;
    stack.books("down", STOCK, &heard.told)
}

fn locked_for_a_while(stack: &mut Stack) -> Result<()> {
    const CLAIMS: u64 = 400;
    stack.open("locked", 1_000_000)?;
    let told = stack.file("locked-told.jsonl");
    let mut buyer = Buyer {
        stack,
        transcript: Transcript::append(&told, "locked")?,
        claims: 0,
    };
    buyer.median(CLAIMS)?;
    let before = buyer.median(CLAIMS)?;
    let lock = format!(
        "BEGIN; LOCK TABLE orders IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep({LOCKED_SECONDS})"
    );
    let mut lock = stack
        .database
        .sql_in_background(&lock, &stack.file("lock.log"))?;
    wait::until("the orders to be locked", wait::START, || {
        Ok(match locked(stack)? {
            true => Seen::Done(()),
            false => Seen::NotYet("not locked".to_owned()),
        })
    })?;
    let rows = rows(stack)?;
    let during = buyer.median(CLAIMS)?;
    let mut more = 0;
    // To its end: the writer's statements time out, and are tried again.
    while lock.alive() {
        buyer.median(CLAIMS / 10)?;
        more += CLAIMS / 10;
    }
    let after = buyer.median(CLAIMS)?;
    let sold = buyer.claims;
    println!(
        "median of a claim: {before:?} before, {during:?} while the orders were locked, \
         {after:?} after; {rows} rows at the lock, {more} further wins under it, {sold} in all"
    );
    ensure!(
        2 * during <= 3 * before,
        "{during:?} is more than 1.5 times {before:?}"
    );
    stack.books("locked", sold, &told)
}

fn locked(stack: &Stack) -> Result<bool> {
    let sql = "SELECT count(*) FROM pg_locks WHERE relation = 'orders'::regclass \
               AND mode = 'AccessExclusiveLock' AND granted";
    Ok(stack.database.sql(sql)?.trim() == "1")
}

/// How many rows have been written, by the sale's own row: the orders may be locked.
fn rows(stack: &Stack) -> Result<u64> {
    let sql = "SELECT sold FROM sales WHERE sale_id = 'locked'";
    Ok(stack.database.sql(sql)?.trim().parse()?)
}

/// Buys for one user after the other.
struct Buyer<'a> {
    stack: &'a Stack,
    transcript: Transcript,
    claims: u64,
}

impl Buyer<'_> {
    /// The median of so many claims.
    fn median(&mut self, claims: u64) -> Result<Duration> {
        let mut client = self.stack.client(0);
        let mut took = Vec::new();
        for _ in 0..claims {
            self.claims += 1;
            let user = format!("buyer-{}", self.claims);
            let answer = client.buy("locked", &user)?;
            ensure!(answer.status == 201, "{answer:?}");
            self.transcript.note(&client.url(), &user, &answer)?;
            took.push(answer.took);
        }
        took.sort();
        took.get(took.len() / 2).copied().context("a claim")
    }
}
