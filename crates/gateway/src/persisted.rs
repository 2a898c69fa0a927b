//! Whether a claim is in the database: known in the background, told from memory.
//!
//! The database is never on a claim's path. A sale that somebody asks about has its position
//! read once a second; a win at or before that position has been written.

use dropgate_domain::{Generation, SaleId, Seq, Win};
use dropgate_store::Store;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_util::task::AbortOnDropHandle;

/// How often a sale's position is read.
const EVERY: Duration = Duration::from_secs(1);
/// How long after the last question a sale's position goes on being read.
const WANTED_FOR: Duration = Duration::from_secs(30);
/// How old a position may be for "not yet" to be said by it. "Written" stays true for ever.
const FRESH_FOR: Duration = Duration::from_secs(5);

#[derive(Debug)]
struct Seen {
    asked: Instant,
    /// The last position that was read, and when it was asked for.
    position: Option<((Generation, Seq), Instant)>,
}

type Sales = Mutex<HashMap<SaleId, Seen>>;

/// The positions of the database, as far as they are known. Stops reading when dropped.
#[derive(Debug)]
pub struct Persisted {
    sales: Arc<Sales>,
    reader: Option<AbortOnDropHandle<()>>,
}

impl Persisted {
    /// Without a database nothing is ever known.
    #[must_use]
    pub fn unknown() -> Self {
        Self {
            sales: Arc::default(),
            reader: None,
        }
    }

    /// Reads positions from `store` on the caller's runtime.
    #[must_use]
    pub fn reading(store: Store) -> Self {
        let sales: Arc<Sales> = Arc::default();
        let reader = tokio::spawn(read(store, Arc::clone(&sales)));
        Self {
            sales,
            reader: Some(AbortOnDropHandle::new(reader)),
        }
    }

    /// Whether the database has the win; `None` when that is not known. Does no I/O.
    #[must_use]
    pub fn has(&self, sale: &SaleId, win: &Win) -> Option<bool> {
        self.reader.as_ref()?;
        let now = Instant::now();
        let mut sales = self.sales.lock();
        let Some(seen) = sales.get_mut(sale) else {
            let seen = Seen {
                asked: now,
                position: None,
            };
            sales.insert(sale.clone(), seen);
            return None;
        };
        seen.asked = now;
        verdict(seen.position, (win.generation, win.seq), now)
    }
}

fn verdict(
    position: Option<((Generation, Seq), Instant)>,
    win: (Generation, Seq),
    now: Instant,
) -> Option<bool> {
    let (through, at) = position?;
    if win <= through {
        return Some(true);
    }
    (now.saturating_duration_since(at) <= FRESH_FOR).then_some(false)
}

async fn read(store: Store, sales: Arc<Sales>) {
    let mut tick = tokio::time::interval(EVERY);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        let wanted: Vec<SaleId> = {
            let mut sales = sales.lock();
            sales.retain(|_, seen| seen.asked.elapsed() <= WANTED_FOR);
            sales.keys().cloned().collect()
        };
        for sale in wanted {
            let asked = Instant::now();
            match store.sale(&sale).await {
                Ok(row) => {
                    // A sale without a row has nothing written: it is before every win.
                    let through = row.map_or((Generation(0), Seq(0)), |row| {
                        (row.position.generation, row.position.seq)
                    });
                    if let Some(seen) = sales.lock().get_mut(&sale) {
                        seen.position = Some((through, asked));
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "database position is not known");
                    // The others would fail alike; all are asked again at the next tick.
                    break;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_is_null_and_what_was_written_stays_so() {
        let now = Instant::now();
        let old = now.checked_sub(FRESH_FOR * 2).unwrap();
        let at = |seq| (Generation(2), Seq(seq));
        assert_eq!(verdict(None, at(1), now), None);
        assert_eq!(verdict(Some((at(5), now)), at(5), now), Some(true));
        assert_eq!(verdict(Some((at(5), now)), at(6), now), Some(false));
        assert_eq!(verdict(Some((at(5), old)), at(5), now), Some(true));
        assert_eq!(verdict(Some((at(5), old)), at(6), now), None);
        assert_eq!(
            verdict(Some((at(5), now)), (Generation(1), Seq(9)), now),
            Some(true)
        );
    }
}
