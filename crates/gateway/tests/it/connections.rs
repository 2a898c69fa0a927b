//! The cap on connections: answered, never left hanging.

use crate::stack::{Stack, Wanted};
use crate::wire::{BOUND, Connection};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn above_the_cap_a_connection_is_told_503_and_closed_and_a_freed_place_is_good_again() {
    let wanted = Wanted {
        config: vec!["http.connections_max = 3".into()],
        ..Wanted::default()
    };
    let stack = Stack::with(wanted).await;
    stack.create("s", 1).await;
    let mut kept = Vec::new();
    for _ in 0..3 {
        let mut connection = Connection::open(stack.addr).await;
        assert_eq!(
            connection.send("GET", "/v1/sales/s", &[], b"").await.status,
            200
        );
        kept.push(connection);
    }
    for _ in 0..5 {
        let mut above = Connection::open(stack.addr).await;
        let reply = above.send("GET", "/v1/sales/s", &[], b"").await;
        assert_eq!(reply.said(), (503, "overloaded"));
        assert!(reply.header("retry-after").is_some());
        assert!(above.is_closed().await);
    }
    // Those within the cap did not suffer.
    for connection in &mut kept {
        assert_eq!(
            connection.send("GET", "/v1/sales/s", &[], b"").await.status,
            200
        );
    }
    drop(kept);
    let again = async {
        loop {
            let mut connection = Connection::open(stack.addr).await;
            if connection.send("GET", "/v1/sales/s", &[], b"").await.status == 200 {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(BOUND, again)
        .await
        .expect("the places were not given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_spike_of_connections_is_accepted_whole() {
    let stack = Stack::start().await;
    stack.create("s", 1).await;
    let spike = (0..500).map(|_| {
        let addr = stack.addr;
        tokio::spawn(async move {
            let mut connection = Connection::open(addr).await;
            connection.send("GET", "/v1/sales/s", &[], b"").await.status
        })
    });
    let spike: Vec<_> = spike.collect();
    for one in spike {
        assert_eq!(one.await.unwrap(), 200);
    }
}
