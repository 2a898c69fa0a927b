//! `dropgate status` when what it asks is gone.

use crate::shop::{PATIENCE, Shop};
use anyhow::Result;
use serde_json::Value;
use std::time::Instant;

#[test]
fn a_sale_whose_redis_is_gone_is_in_trouble_and_the_rest_is_still_shown() -> Result<()> {
    let mut shop = Shop::new()?;
    let serve = shop.serve()?;
    shop.done(&["sale", "create", "drop-1", "--stock", "5"]);
    shop.done(&["sale", "open", "drop-1"]);
    let key = shop.token_key()?;
    shop.claim("drop-1", &Shop::token(&key, "alice")?)?;
    shop.redis.kill9()?;
    let unready = |said: &Value| said["gateways"][0]["ready"]["known"]["ready"] == false;
    let ran = shop.status_until("drop-1", "unready", unready);
    assert_eq!(ran.code, 1, "{ran:#?}");
    let said: Value = serde_json::from_str(&ran.stdout)?;
    assert!(said["redis"]["unknown"].is_string(), "{said:#}");
    let standing = &said["standing"]["known"];
    assert_eq!(standing["condition"], "unreachable", "{said:#}");
    assert_eq!(standing["wins"], 1, "{said:#}");
    assert_eq!(said["log"]["known"]["position"], "1.1", "{said:#}");
    let reasons = &said["gateways"][0]["ready"]["known"]["reasons"];
    assert!(
        reasons.as_array().is_some_and(|all| !all.is_empty()),
        "{said:#}"
    );
    let screen = shop.run(&["status", "--sale", "drop-1"]);
    for text in [
        "Not ready\n",
        "State       unreachable",
        "Won         1 of 5",
    ] {
        assert!(screen.stdout.contains(text), "{text}\n{}", screen.stdout);
    }
    // The last word of Redis is good for seconds; from then on it has to be asked.
    let deadline = Instant::now() + PATIENCE;
    let recover = loop {
        let ran = shop.run(&["recover", "--sale", "drop-1"]);
        if ran.code != 0 {
            break ran;
        }
        assert!(Instant::now() < deadline, "{ran:#?}");
    };
    assert_eq!(recover.code, 2, "{recover:#?}");
    assert!(
        recover.stderr.contains("may be given again"),
        "{recover:#?}"
    );

    // Nothing is left to be asked.
    drop(serve);
    std::fs::rename(shop.path("data"), shop.path("gone"))?;
    let ran = shop.run(&["status", "--sale", "drop-1"]);
    assert_eq!(ran.code, 2, "{ran:#?}");
    for row in ["log  ", "redis  ", "database  ", "gateway http"] {
        let line = ran.stdout.lines().find(|line| line.starts_with(row));
        assert!(
            line.is_some_and(|line| line.contains("unknown")),
            "{row}\n{}",
            ran.stdout
        );
    }
    Ok(())
}
