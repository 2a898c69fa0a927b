//! Sales and orders to write.

use dropgate_domain::{
    AttemptId, ClaimId, Digest, Generation, IdempotencyKey, LogId, Offset, PartitionId, Position,
    SaleId, Seq, TimeMs, Unit, UserId,
};
use dropgate_store::{Order, OrderStatus, Pin, SaleState, SaleWrite, Store};

pub fn sale_id(text: &str) -> SaleId {
    SaleId::new(text).expect("a sale id")
}

/// The position of an invented history: the chain follows from generation and seq.
pub fn position(generation: u32, seq: u64) -> Position {
    let mut chain = [0; 20];
    chain[..4].copy_from_slice(&generation.to_le_bytes());
    chain[4..12].copy_from_slice(&seq.to_le_bytes());
    Position {
        generation: Generation(generation),
        seq: Seq(seq),
        chain: Digest(chain),
    }
}

/// The win of `unit` by `user` as event `seq`; `salt` keeps the claim ids of sales apart.
pub fn order(salt: u64, seq: u64, unit: u64, user: &str) -> Order {
    let mut attempt = [7; 16];
    attempt[..8].copy_from_slice(&salt.to_le_bytes());
    attempt[8..].copy_from_slice(&seq.to_le_bytes());
    let attempt = AttemptId(attempt);
    Order {
        unit: Unit(unit),
        claim: ClaimId {
            generation: Generation(1),
            seq: Seq(seq),
            attempt,
        },
        user: UserId::new(user).expect("a user id"),
        attempt,
        key: IdempotencyKey::new("key-1").expect("a key"),
        generation: Generation(1),
        seq: Seq(seq),
        status: OrderStatus::Won,
        won_at: TimeMs(1_700_000_000_000 + seq),
    }
}

/// The write that opens a sale and holds its first `orders`, of seq 1, 2, …
pub fn opening(sale: &str, stock: u64, orders: Vec<Order>) -> SaleWrite {
    SaleWrite {
        sale: sale_id(sale),
        from: None,
        to: position(1, orders.len() as u64),
        pin: Pin {
            log_id: LogId([9; 16]),
            partition: PartitionId(3),
            from_offset: Offset(77),
        },
        state: SaleState::Open,
        stock,
        sold: orders.len() as u64,
        held: 0,
        opened_at: Some(TimeMs(1_700_000_000_000)),
        closed_at: None,
        orders,
    }
}

/// The write that follows `before` and holds `orders`.
pub fn following(before: &SaleWrite, orders: Vec<Order>) -> SaleWrite {
    let sold = before.sold + orders.len() as u64;
    SaleWrite {
        from: Some(before.to),
        to: position(1, before.to.seq.0 + orders.len() as u64),
        sold,
        orders,
        ..before.clone()
    }
}

/// Orders of units and seqs `from` to `through`, each of another user.
pub fn orders(salt: u64, from: u64, through: u64) -> Vec<Order> {
    (from..=through)
        .map(|n| order(salt, n, n, &format!("user-{n}")))
        .collect()
}

pub async fn all_orders(store: &Store, sale: &SaleId) -> Vec<Order> {
    let mut pages = store.orders(sale, 1000);
    let mut all = Vec::new();
    while let Some(page) = pages.next().await.expect("a page of orders") {
        all.extend(page);
    }
    all
}
