//! Kill -9 of a service in the middle of a sale.

use anyhow::{Context, Result};
use dropgate_testkit::Process;

use crate::crowd::Crowd;
use crate::from_env;
use crate::stack::{Own, Stack};

const STOCK: u64 = 600;

/// Which process is killed.
type Victim = fn(&mut Stack) -> &mut Process;

#[test]
fn an_order_writer_that_is_killed_in_mid_sale_leaves_exact_books() -> Result<()> {
    for_every_seed("writer", |stack| &mut stack.writer.process)
}

#[test]
fn a_gateway_that_is_killed_in_mid_sale_leaves_exact_books() -> Result<()> {
    for_every_seed("gateway", |stack| &mut stack.gateways[1].process)
}

/// Sells once for each seed, which decides after how many wins the victim is killed, starts it
/// again, and checks the books.
fn for_every_seed(what: &str, victim: Victim) -> Result<()> {
    let seeds = from_env("SEEDS", 1)?;
    Stack::start(Own::default())?.play(|stack| {
        for seed in 1..=seeds {
            let sale = format!("{what}-{seed}");
            one_sale(stack, &sale, after_wins(seed), victim)
                .with_context(|| format!("seed {seed}"))?;
        }
        Ok(())
    })
}

fn one_sale(stack: &mut Stack, sale: &str, wins: u64, victim: Victim) -> Result<()> {
    stack.open(sale, STOCK)?;
    let crowd = Crowd {
        users: 1_500,
        rate: 400,
        patience: 60,
    };
    let clicking = crowd.come(stack, sale)?;
    let sold = stack.sold(0, sale, wins)?;
    victim(stack).kill9()?;
    let rows = format!("SELECT count(*) FROM orders WHERE sale_id = '{sale}'");
    let rows = stack.database.sql(&rows)?;
    victim(stack).restart()?;
    let heard = clicking.done()?;
    println!(
        "{sale}: killed at {sold} wins and {} rows; answers by status {:?}, slowest win {:?} ms",
        rows.trim(),
        heard.report.http,
        heard.report.latency_ms["won"].max
    );
    heard.sold_all(STOCK)?;
    stack.books(sale, STOCK, &heard.told)
}

/// From 5 to 85 in 100 of the stock, spread over the seeds by the golden ratio.
fn after_wins(seed: u64) -> u64 {
    let percent = 5 + seed * 49 % 81;
    STOCK * percent / 100
}
