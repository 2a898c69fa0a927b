//! The gateway's user can do what gateways do, and nothing else.

use crate::fixture::{Sale, raw};
use dropgate_domain::Definition;
use dropgate_testkit::Value;

#[tokio::test]
async fn the_gateways_user_cannot_load_or_send_a_script_nor_touch_other_keys() {
    let sale = Sale::open(Definition::of(1)).await;
    let mut gateway = raw(&sale.redis);
    let current = sale.key("current");
    let denied: [&[&str]; 14] = [
        &["SCRIPT", "LOAD", "return 1"],
        &["SCRIPT", "FLUSH"],
        &["SCRIPT", "EXISTS", "00"],
        &["EVAL", "return 1", "0"],
        &["FUNCTION", "LOAD", "#!lua name=x"],
        &["FCALL", "f", "0"],
        &["SET", &current, "x"],
        &["DEL", &current],
        &["EXPIRE", &current, "1"],
        &["FLUSHALL"],
        &["CONFIG", "GET", "*"],
        &["KEYS", "*"],
        &["ACL", "LIST"],
        &["GET", "another:key"],
    ];
    let before = sale.dump();
    for command in denied {
        let reply = gateway.command(command).unwrap();
        let is_denied = matches!(&reply, Value::Error(text) if text.starts_with("NOPERM"));
        assert!(is_denied, "{command:?}: {reply:?}");
    }
    assert_eq!(sale.dump(), before);
}
