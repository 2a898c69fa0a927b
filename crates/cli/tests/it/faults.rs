//! `dropgate serve` killed, and started twice.

mod forgetting;
mod silence;

use crate::shop::{PATIENCE, Shop};
use anyhow::Result;

#[test]
fn what_was_told_before_a_kill_is_there_after_it() -> Result<()> {
    let shop = Shop::new()?;
    let mut serve = shop.serve()?;
    shop.done(&["sale", "create", "drop-1", "--stock", "10"]);
    shop.done(&["sale", "open", "drop-1"]);
    let key = shop.token_key()?;
    let mut claims = Vec::new();
    for n in 0..5 {
        let answer = shop.claim("drop-1", &Shop::token(&key, &format!("user-{n}"))?)?;
        assert_eq!(answer.status, "won");
        claims.push(answer.claim);
    }
    // Whether the order-writer had written them is not asked: that is the point.
    serve.restart()?;
    assert_eq!(shop.token_key()?.kid, key.kid);
    for (n, claim) in claims.iter().enumerate() {
        let again = shop.claim("drop-1", &Shop::token(&key, &format!("user-{n}"))?)?;
        assert_eq!((again.status, &again.claim), ("again", claim));
    }
    let next = shop.claim("drop-1", &Shop::token(&key, "user-5")?)?;
    assert_eq!((next.status, next.unit), ("won", Some(6)));
    shop.done(&["reconcile", "--sale", "drop-1"]);
    assert_eq!(serve.terminate(PATIENCE)?, Some(0), "{}", serve.output()?);
    // Ended in order, it has written everything.
    shop.done(&["reconcile", "--sale", "drop-1", "--wait", "0s"]);
    Ok(())
}

#[test]
fn a_second_one_on_the_same_data_is_refused_and_the_first_goes_on() -> Result<()> {
    let shop = Shop::new()?;
    let mut serve = shop.serve()?;
    let second = shop.run_with(
        &[
            ("DROPGATE_HTTP__BIND", "127.0.0.1:0"),
            ("DROPGATE_HTTP__ADMIN_BIND", "127.0.0.1:0"),
            ("DROPGATE_OPS__BIND", "127.0.0.1:0"),
        ],
        &["serve"],
    );
    assert_eq!(second.code, 2, "{second:#?}");
    assert!(
        second.stderr.contains("being written by another process"),
        "{second:#?}"
    );
    shop.done(&["sale", "create", "drop-1", "--stock", "10"]);
    // A port that is taken: what was started before it is ended again.
    let third = shop.run_with(
        &[
            ("DROPGATE_DATA__DIR", shop.path("other").to_str().unwrap()),
            ("DROPGATE_HTTP__BIND", "127.0.0.1:0"),
            ("DROPGATE_HTTP__ADMIN_BIND", "127.0.0.1:0"),
        ],
        &["serve"],
    );
    assert_eq!(third.code, 2, "{third:#?}");
    assert!(third.stderr.contains("cannot listen on"), "{third:#?}");
    assert!(serve.alive());
    Ok(())
}
