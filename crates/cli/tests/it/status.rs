//! One screen for the person on call, of sales that are well.

use crate::shop::{Ran, Shop};
use anyhow::Result;
use serde_json::{Value, json};

fn json_of(ran: &Ran) -> Result<Value> {
    Ok(serde_json::from_str(&ran.stdout)?)
}

fn status(shop: &Shop, sale: &str) -> Result<(i32, Value)> {
    let ran = shop.run(&["status", "--sale", sale, "--json"]);
    Ok((ran.code, json_of(&ran)?))
}

#[test]
fn a_sale_that_is_well_is_shown_so_through_its_whole_life() -> Result<()> {
    let shop = Shop::new()?;
    let _serve = shop.serve()?;
    let (code, unknown) = status(&shop, "drop-1")?;
    assert_eq!(code, 1, "{unknown:#}");
    assert!(
        unknown["standing"]["unknown"]
            .as_str()
            .is_some_and(|why| why.contains("no such sale")),
        "{unknown:#}"
    );

    shop.done(&["sale", "create", "drop-1", "--stock", "2"]);
    let (code, created) = status(&shop, "drop-1")?;
    assert_eq!(code, 0, "{created:#}");
    assert_eq!(created["standing"]["known"]["condition"], "not_opened");

    shop.done(&["sale", "open", "drop-1"]);
    let key = shop.token_key()?;
    for user in ["alice", "bob"] {
        shop.claim("drop-1", &Shop::token(&key, user)?)?;
    }
    let none = json!({"events": 0, "generations": 0, "ms": 0});
    let ran = shop.status_until("drop-1", "all caught up", |said| {
        let readers = [
            &said["database"]["known"],
            &said["gateways"][0]["sale"]["known"],
        ];
        let untroubled = said["next"]["known"]["next"] == "nothing";
        untroubled && readers.iter().all(|reader| reader["lag"] == none)
    });
    let live = json_of(&ran)?;
    assert_eq!(ran.code, 0, "{live:#}");
    let standing = &live["standing"]["known"];
    assert_eq!(standing["condition"], "live", "{live:#}");
    assert_eq!(
        (&standing["wins"], &standing["stock"]),
        (&json!(2), &json!(2))
    );
    for reader in ["log", "database"] {
        assert_eq!(live[reader]["known"]["position"], "1.2", "{live:#}");
    }
    assert_eq!(live["redis"]["known"]["seen"]["seq"], 2, "{live:#}");
    assert_eq!(live["redis"]["known"]["seen"]["loss"], Value::Null);
    assert_eq!(live["gateways"][0]["ready"]["known"]["ready"], true);
    assert_eq!(live["watch"]["ready"]["known"]["ready"], true);
    let by = live["next"]["known"]["by"].as_str().unwrap_or_default();
    assert!(by.contains(&shop.watch_url()), "{by}");
    let screen = shop.done(&["status", "--sale", "drop-1"]);
    for text in ["live, sold out", "2 of 2", "current and whole", "0 events"] {
        assert!(screen.contains(text), "{text}\n{screen}");
    }

    shop.done(&["sale", "close", "drop-1"]);
    let (code, closed) = status(&shop, "drop-1")?;
    assert_eq!(code, 0, "{closed:#}");
    assert_eq!(closed["standing"]["known"]["condition"], "closed");
    Ok(())
}

#[test]
fn who_does_not_answer_is_unknown_and_the_others_are_shown() -> Result<()> {
    let shop = Shop::new()?;
    let _serve = shop.serve()?;
    shop.done(&["sale", "create", "drop-1", "--stock", "2"]);
    shop.done(&["sale", "open", "drop-1"]);
    // Port 1: nobody listens there.
    let nobody = "http://127.0.0.1:1";
    let ours = shop.admin_url();
    let args = [
        "status",
        "--sale",
        "drop-1",
        "--json",
        "--gateway",
        nobody,
        "--gateway",
        &ours,
        "--watch",
        nobody,
    ];
    let ran = shop.run(&args);
    let said = json_of(&ran)?;
    assert_eq!(ran.code, 0, "one gateway is ready: {said:#}");
    assert!(
        said["gateways"][0]["ready"]["unknown"].is_string(),
        "{said:#}"
    );
    assert_eq!(
        said["gateways"][1]["ready"]["known"]["ready"], true,
        "{said:#}"
    );
    assert_eq!(
        said["gateways"][1]["sale"]["known"]["position"], "1.0",
        "{said:#}"
    );
    let by = said["next"]["known"]["by"].as_str().unwrap_or_default();
    assert!(
        by.contains("did not answer") && by.contains(nobody),
        "{said:#}"
    );

    // Without the admin key a gateway tells whether it is ready, and no more.
    std::fs::rename(shop.path("data/admin.key"), shop.path("admin.key"))?;
    let ran = shop.run(&["status", "--sale", "drop-1", "--json"]);
    let said = json_of(&ran)?;
    assert_eq!(ran.code, 0, "{said:#}");
    assert_eq!(
        said["gateways"][0]["ready"]["known"]["ready"], true,
        "{said:#}"
    );
    let why = said["gateways"][0]["sale"]["unknown"].as_str();
    assert!(
        why.is_some_and(|why| why.contains("DROPGATE_ADMIN_KEY")),
        "{said:#}"
    );
    Ok(())
}
