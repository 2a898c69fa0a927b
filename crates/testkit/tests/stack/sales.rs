//! Sales in which nothing breaks.

use std::collections::BTreeSet;
use std::sync::Barrier;

use anyhow::{Context, Result, ensure};

use crate::client::Answer;
use crate::crowd::{Crowd, Transcript};
use crate::from_env;
use crate::stack::{Gateway, Own, Stack};

/// The same stock for ten times the crowd: the database must not see the difference. Both are sold
/// side by side, so that whatever else this machine does happens to both.
#[test]
fn the_database_sees_wins_and_not_clicks() -> Result<()> {
    let attempts = from_env("ATTEMPTS", 1_500)?;
    // Enough transactions for their number not to be chance.
    let stock = (attempts / 10).max(600);
    Stack::start(Own::default())?.play(|stack| {
        let sales = [("few", attempts), ("many", attempts * 10)];
        for (sale, _) in sales {
            stack.open(sale, stock)?;
        }
        let mut clicking = Vec::new();
        for (sale, attempts) in sales {
            let crowd = Crowd {
                // One in ten clicks twice.
                users: attempts * 10 / 11,
                rate: from_env("RATE", 750)?,
                patience: 60,
            };
            clicking.push(crowd.come(stack, sale)?);
        }
        let mut transactions = Vec::new();
        for ((sale, attempts), clicking) in sales.into_iter().zip(clicking) {
            let heard = clicking.done()?;
            heard.sold_all(stock)?;
            let clicks = heard.report.attempts;
            ensure!(
                clicks.abs_diff(attempts) < attempts / 20,
                "{clicks} clicks, not {attempts}"
            );
            stack.books(sale, stock, &heard.told)?;
            transactions.push(transactions_of(stack, sale)?);
        }
        println!("{stock} wins: {transactions:?} transactions for {attempts} clicks and ten times");
        let (few, many) = (transactions[0], transactions[1]);
        ensure!(few <= stock && many <= stock, "more than the wins");
        ensure!(
            2 * few.max(many) < 3 * few.min(many),
            "{few} and {many} differ by 1.5 times or more"
        );
        Ok(())
    })
}

/// How many transactions wrote the orders: whoever inserted a row has left its id there.
fn transactions_of(stack: &Stack, sale: &str) -> Result<u64> {
    let sql = format!("SELECT count(DISTINCT xmin::text) FROM orders WHERE sale_id = '{sale}'");
    Ok(stack.database.sql(&sql)?.trim().parse()?)
}

#[test]
fn a_user_who_clicks_at_two_gateways_at_once_gets_one_claim() -> Result<()> {
    const USERS: u64 = 100;
    Stack::start(Own::default())?.play(|stack| {
        stack.open("twice", 2 * USERS)?;
        // A gateway that has just read of the opening says "not ready" for a moment.
        let url = stack.gateways[1].url();
        let first = stack.client(1).buy("twice", "first")?;
        let told = stack.file("twice-told.jsonl");
        let mut transcript = Transcript::append(&told, "twice")?;
        transcript.note(&url, "first", &first)?;
        let at_once = Barrier::new(2);
        let clicks = |gateway| -> Result<Vec<Answer>> {
            let mut client = stack.client(gateway);
            let users = 0..USERS;
            let click = |number| {
                at_once.wait();
                client.claim("twice", &format!("user-{number}"))
            };
            // Every click is made, whatever became of another: the other side waits for it.
            users.map(click).collect::<Vec<_>>().into_iter().collect()
        };
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(|| clicks(1));
            Ok::<_, anyhow::Error>((clicks(0)?, other.join().ok().context("a thread")??))
        })?;
        let mut claims = BTreeSet::new();
        for (number, pair) in one.iter().zip(&other).enumerate() {
            let statuses = BTreeSet::from([pair.0.status, pair.1.status]);
            ensure!(
                pair.0.text("claim") == pair.1.text("claim")
                    && !pair.0.text("claim").is_empty()
                    && statuses.is_subset(&BTreeSet::from([200, 201])),
                "user {number}: {pair:?}"
            );
            claims.insert(pair.0.text("claim"));
            for (gateway, answer) in [(0, pair.0), (1, pair.1)] {
                let url = stack.gateways[gateway].url();
                transcript.note(&url, &format!("user-{number}"), answer)?;
            }
        }
        ensure!(claims.len() as u64 == USERS, "{} claims", claims.len());
        stack.books("twice", USERS + 1, &told)
    })
}

#[test]
fn a_gateway_sells_with_the_restricted_user_and_opens_only_with_the_operators() -> Result<()> {
    Stack::start(Own::default())?.play(|stack| {
        stack.open("opened", 1)?;
        let restricted = Gateway::start(&stack.settings, "gateway-3", false)?;
        stack.gateways.push(restricted);
        let body = "{\"id\":\"refused\",\"stock\":1}";
        let created = stack.admin(2).admin("POST", "", body)?;
        ensure!(created.status == 201, "{created:?}");
        let opened = stack.admin(2).admin("POST", "/refused/open", "{}")?;
        ensure!(
            opened.kind() == "503 operator_credentials_missing",
            "{opened:?}"
        );
        // What it may not open it sells all the same, as the restricted user.
        let won = stack.client(2).buy("opened", "somebody")?;
        ensure!(won.status == 201, "{won:?}");
        let users = clients(stack)?;
        ensure!(
            users.iter().filter(|user| *user == "gateway").count() >= 3,
            "not every gateway is the restricted user: {users:?}"
        );
        let opened = stack.admin(1).admin("POST", "/refused/open", "{}")?;
        ensure!(opened.status == 200, "{opened:?}");
        nothing_was_refused(stack)
    })
}

/// Whom Redis' connections belong to, the test's own left out.
fn clients(stack: &Stack) -> Result<Vec<String>> {
    let list = stack.redis.cli(&["CLIENT", "LIST"])?;
    let users = list.split_whitespace().filter_map(|word| {
        word.strip_prefix("user=")
            .filter(|&user| user != "default")
            .map(str::to_owned)
    });
    Ok(users.collect())
}

/// The list of what the services' users may do is long enough: Redis has refused them nothing but
/// the client library's question for its own connection's number, which it can do without.
fn nothing_was_refused(stack: &Stack) -> Result<()> {
    let log = stack.redis.cli(&["ACL", "LOG"])?;
    let lines: Vec<_> = log.lines().map(str::trim).collect();
    let objects = lines.windows(2).filter(|pair| pair[0] == "object");
    let refused: BTreeSet<_> = objects.map(|pair| pair[1]).collect();
    ensure!(
        refused.is_subset(&BTreeSet::from(["client|id"])),
        "Redis refused {refused:?}"
    );
    Ok(())
}
