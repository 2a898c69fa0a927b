//! A Redis that forgets in mid-sale, and a person with `dropgate status` and `dropgate recover`.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use dropgate_testkit::ProcessOptions;
use dropgate_testkit::wait::{self, Seen};

use crate::crowd::Crowd;
use crate::stack::{Own, Stack};

/// How long a command may take.
const BOUND: Duration = Duration::from_secs(120);

#[test]
fn a_sale_that_redis_forgot_is_seen_in_trouble_and_sells_out_after_recovery_by_hand() -> Result<()>
{
    const STOCK: u64 = 600;
    Stack::start(Own::default())?.play(|stack| {
        stack.open("mended", STOCK)?;
        let crowd = Crowd {
            users: 900,
            rate: 300,
            patience: 60,
        };
        let clicking = crowd.come(stack, "mended")?;
        stack.sold(0, "mended", 100)?;
        let (code, well) = status(stack)?;
        ensure!(code == 0 && well.contains("live"), "{code}: {well}");
        stack.redis.cli(&["FLUSHALL"])?;
        let trouble = wait::until("the halt to be shown", wait::START, || {
            let (code, screen) = status(stack)?;
            let halted = code == 1 && screen.contains("halted by  gateway");
            Ok(match halted {
                true => Seen::Done(screen),
                false => Seen::NotYet(format!("{code}: {screen}")),
            })
        })?;
        println!("{trouble}");
        // Both gateways, by name, and nobody who would do it without being told.
        ensure!(
            trouble.matches("gateway http").count() == 2 && trouble.contains("no watch was asked"),
            "{trouble}"
        );
        let begun = Instant::now();
        let (code, said) = dropgate(stack, &["recover", "--sale", "mended"])?;
        println!("{:?}: {said}", begun.elapsed());
        ensure!(
            code == 0 && said.contains("live in generation 2"),
            "{code}: {said}"
        );
        let heard = clicking.done()?;
        heard.sold_all(STOCK)?;
        let (code, well) = status(stack)?;
        ensure!(
            code == 0 && well.contains("live, sold out"),
            "{code}: {well}"
        );
        stack.books("mended", STOCK, &heard.told)
    })
}

fn status(stack: &Stack) -> Result<(i32, String)> {
    let gateways = stack.gateways.iter();
    let urls: Vec<_> = gateways
        .map(|gateway| format!("http://127.0.0.1:{}", gateway.ports.admin.number()))
        .collect();
    let mut args = vec!["status", "--sale", "mended"];
    for url in &urls {
        args.extend(["--gateway", url]);
    }
    dropgate(stack, &args)
}

/// Runs the operators' command to its end.
fn dropgate(stack: &Stack, args: &[&str]) -> Result<(i32, String)> {
    let config = stack.file("dropgate.toml");
    let mut command = ProcessOptions::of_ours("dropgate")?
        .args(args.iter().copied())
        .args(["--config", &config.to_string_lossy()])
        .start()?;
    let code = command.wait(BOUND)?.context("ended by a signal")?;
    Ok((code, command.output()?))
}
