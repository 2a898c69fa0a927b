//! Asking the sentinels who is master.
//!
//! Every sentinel is asked at an interval, on a connection of its own, and the view of the latest
//! configuration epoch counts: that of a sentinel which was cut off is older. Others were bitten
//! by less: a client that trusts the first sentinel to answer follows one that is cut off; one
//! that waits for the announcement of a switch misses it when the sentinel beside the master
//! dies with it, and then writes to a replica for ever.

use super::dial::{Address, Dial};
use super::item::Item;
use super::lane::{Lane, Target};
use crate::error::{CallError, Outage};
use futures::future::join_all;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

/// The shortest pause between two questions to one server.
pub(super) const PAUSE_MIN: Duration = Duration::from_millis(20);

/// How long the view of a sentinel counts that does not answer any more. Long enough that one slow
/// answer of the only sentinel that knows of a new master does not lead back to the old one.
const KEEP: Duration = Duration::from_secs(10);

/// The sentinels of a service. They are asked until this is dropped.
#[derive(Debug)]
pub(crate) struct Sentinels {
    service: Arc<str>,
    lanes: Vec<Arc<Lane>>,
    target: Target,
    /// Something is wrong with the master: ask now.
    hurry: Arc<Notify>,
    views: Arc<Views>,
    pollers: Vec<AbortOnDropHandle<()>>,
}

/// What a sentinel says of the master.
#[derive(Debug, Clone, PartialEq, Eq)]
struct View {
    address: Address,
    epoch: u64,
    /// It takes the master for up, and is not replacing it.
    well: bool,
}

/// What all sentinels said last, and when; `None` for one that has not answered for long.
#[derive(Debug)]
struct Views {
    views: Mutex<Vec<Option<(View, Instant)>>>,
    target: watch::Sender<Option<Address>>,
    /// Why one that answers does not say who is master.
    trouble: Mutex<Option<String>>,
}

impl Sentinels {
    /// Begins to ask.
    pub(crate) fn start(
        dial: &Arc<Dial>,
        addresses: Vec<Address>,
        service: &str,
        interval: Duration,
    ) -> Self {
        let (sender, target) = watch::channel(None);
        let views = Arc::new(Views {
            views: Mutex::new(vec![None; addresses.len()]),
            target: sender,
            trouble: Mutex::new(None),
        });
        let hurry = Arc::new(Notify::new());
        let service: Arc<str> = service.into();
        let mut lanes = Vec::with_capacity(addresses.len());
        let mut pollers = Vec::with_capacity(addresses.len());
        for (index, address) in addresses.into_iter().enumerate() {
            let lane = Arc::new(Lane::fixed(Arc::clone(dial), address));
            let poller = poll(
                Arc::clone(&lane),
                Arc::clone(&service),
                (index, Arc::clone(&views)),
                (interval, Arc::clone(&hurry)),
            );
            pollers.push(AbortOnDropHandle::new(tokio::spawn(poller)));
            lanes.push(lane);
        }
        Self {
            service,
            lanes,
            target,
            hurry,
            views,
            pollers,
        }
    }

    /// Why no master is known, if a sentinel has said so.
    pub(crate) fn trouble(&self) -> Option<String> {
        if self.target.borrow().is_some() {
            return None;
        }
        let trouble = self.views.trouble.lock().clone()?;
        Some(format!(
            "the sentinels name no master of {:?} ({trouble}); check redis.sentinel.service and \
             redis.sentinel.username",
            self.service
        ))
    }

    /// Where the master is.
    pub(crate) fn target(&self) -> Target {
        self.target.clone()
    }

    /// Asks all of them now.
    pub(crate) fn hurry(&self) {
        self.hurry.notify_waiters();
    }

    /// Asks all sentinels once more whether this is the master, and says why not: a majority of
    /// those that are configured must name it, and take it for up.
    pub(crate) async fn agree_on(&self, address: &Address) -> Vec<String> {
        let answers = join_all(self.lanes.iter().map(|lane| ask(lane, &self.service))).await;
        let all = answers.len();
        let (mut named, mut well, mut others) = (0, 0, Vec::new());
        for view in &answers {
            match view {
                Ok(view) if view.address == *address => {
                    named += 1;
                    well += usize::from(view.well);
                }
                Ok(view) => others.push(format!("one names {}", view.address)),
                Err(error) => others.push(format!("one: {error}")),
            }
        }
        if named <= all / 2 {
            others.sort();
            return vec![format!(
                "only {named} of {all} sentinels name {address} as the master ({}); wait until a \
                 majority agrees",
                others.join(", ")
            )];
        }
        if well <= all / 2 {
            return vec![format!(
                "the sentinels take the master {address} for down, or are replacing it; wait for \
                 the failover"
            )];
        }
        Vec::new()
    }

    /// Ends the connections.
    pub(crate) fn close(&self) {
        for poller in &self.pollers {
            poller.abort();
        }
        for lane in &self.lanes {
            lane.close();
        }
    }
}

/// Asks one sentinel until it is aborted.
async fn poll(
    lane: Arc<Lane>,
    service: Arc<str>,
    (index, views): (usize, Arc<Views>),
    (interval, hurry): (Duration, Arc<Notify>),
) {
    let mut complained = false;
    loop {
        let view = ask(&lane, &service).await;
        match &view {
            // Not connected: the connection's own failures are on record.
            Ok(_) | Err(CallError::Unavailable(_)) => complained = false,
            Err(error) => {
                if !complained {
                    tracing::warn!(%error, "a sentinel does not say who is master");
                }
                complained = true;
                *views.trouble.lock() = Some(error.to_string());
            }
        }
        let connected = !matches!(view, Err(CallError::Unavailable(Outage::NotConnected)));
        views.saw(index, view.ok(), Instant::now());
        // However many calls fail, a sentinel is not asked without a pause.
        tokio::time::sleep(interval.min(PAUSE_MIN)).await;
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = hurry.notified() => {}
            // Up for the first time, or again. The lane is kept up for ever.
            _ = lane.wait(), if !connected => {}
        }
    }
}

impl Views {
    /// Takes note of a view. The latest epoch decides; among views of one epoch, which differ only
    /// for a moment, the one that more share.
    fn saw(&self, index: usize, view: Option<View>, now: Instant) {
        let mut views = self.views.lock();
        if let Some(slot) = views.get_mut(index) {
            *slot = match view {
                Some(view) => Some((view, now)),
                None => slot
                    .take()
                    .filter(|(_, seen)| now.saturating_duration_since(*seen) < KEEP),
            };
        }
        let all = || views.iter().flatten().map(|(view, _)| view);
        let votes = |view: &View| {
            let same = |other: &&View| other.address == view.address && other.epoch == view.epoch;
            all().filter(same).count()
        };
        let best = all().max_by_key(|view| (view.epoch, votes(view)));
        let Some(best) = best else { return };
        self.target.send_if_modified(|target| {
            let moved = target.as_ref() != Some(&best.address);
            if moved {
                tracing::info!(master = %best.address, epoch = best.epoch, "redis master is");
                *target = Some(best.address.clone());
            }
            moved
        });
    }
}

/// What one sentinel says.
async fn ask(lane: &Lane, service: &str) -> Result<View, CallError> {
    let reply = lane
        .connection()?
        .ask("SENTINEL", &["MASTER", service])
        .await?;
    read(&reply).ok_or_else(|| CallError::Protocol("SENTINEL MASTER cannot be read".to_owned()))
}

/// Reads names and values in turn.
fn read(reply: &Item) -> Option<View> {
    let items = reply.items()?;
    let field = |name: &str| {
        let mut pairs = items.chunks_exact(2);
        pairs.find(|pair| pair[0].text() == Some(name))?[1].text()
    };
    let flags = field("flags")?;
    let ill = ["s_down", "o_down", "failover_in_progress", "disconnected"];
    Some(View {
        address: Address {
            host: field("ip")?.to_owned(),
            port: field("port")?.parse().ok()?,
        },
        epoch: field("config-epoch")?.parse().ok()?,
        well: !flags.split(',').any(|flag| ill.contains(&flag)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn reply(fields: &[(&str, &str)]) -> Item {
        let text = |text: &str| Item::Bytes(Bytes::copy_from_slice(text.as_bytes()));
        let pair = |(name, value): &(&str, &str)| [text(name), text(value)];
        Item::List(fields.iter().flat_map(pair).collect())
    }

    fn view(port: u16, epoch: u64) -> View {
        View {
            address: Address {
                host: "h".into(),
                port,
            },
            epoch,
            well: true,
        }
    }

    #[test]
    fn a_master_that_is_down_or_being_replaced_is_not_well() {
        let with = |flags| {
            reply(&[
                ("name", "s"),
                ("ip", "h"),
                ("port", "1"),
                ("flags", flags),
                ("config-epoch", "7"),
            ])
        };
        assert_eq!(read(&with("master")), Some(view(1, 7)));
        for flags in ["s_down,master", "master,failover_in_progress,o_down"] {
            assert!(!read(&with(flags)).unwrap().well, "{flags}");
        }
        assert_eq!(read(&reply(&[("ip", "h"), ("port", "1")])), None);
        assert_eq!(read(&Item::Nil), None);
    }

    #[test]
    fn the_latest_epoch_decides_whoever_else_is_left_and_then_the_number() {
        let (target, seen) = watch::channel(None);
        let views = Views {
            views: Mutex::new(vec![None; 3]),
            target,
            trouble: Mutex::new(None),
        };
        let port = || seen.borrow().as_ref().map(|address: &Address| address.port);
        assert_eq!(port(), None);
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        for (time, index, said, expected) in [
            (0, 0, Some(view(1, 0)), 1),
            (0, 1, Some(view(2, 1)), 2),
            (0, 2, Some(view(1, 0)), 2),
            // One that does not answer is believed for a while.
            (9, 1, None, 2),
            (10, 1, None, 1),
            (30, 0, None, 1),
            (30, 2, None, 1),
            (31, 0, Some(view(3, 5)), 3),
            (31, 1, Some(view(4, 4)), 3),
            (32, 2, Some(view(4, 6)), 4),
        ] {
            views.saw(index, said.clone(), at(time));
            assert_eq!(port(), Some(expected), "{time} {index} {said:?}");
        }
        // Of one epoch, the one that more share.
        for (index, said) in [(0, view(5, 7)), (1, view(6, 7)), (2, view(6, 7))] {
            views.saw(index, Some(said), at(33));
        }
        assert_eq!(port(), Some(6));
    }
}
