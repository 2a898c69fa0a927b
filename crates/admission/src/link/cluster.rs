//! Who owns which slot of a Redis Cluster.
//!
//! Every node that is known is asked at an interval, on a connection of its own, and for each slot
//! the owner that most of them name counts: a master that was cut off still names itself. A MOVED
//! makes all be asked at once.

use super::dial::{Address, Dial};
use super::item::Item;
use super::lane::{Connection, Lane};
use super::sentinel::PAUSE_MIN;
use crate::error::{CallError, Outage};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio_util::task::AbortOnDropHandle;

const SLOTS: usize = 16_384;
/// The most nodes that are kept: far above what a cluster has, and a bound.
const NODES_MAX: usize = 512;

/// The nodes of a cluster. They are asked until this is dropped.
#[derive(Debug)]
pub(crate) struct Cluster {
    dial: Arc<Dial>,
    seeds: BTreeSet<Address>,
    interval: Duration,
    nodes: RwLock<BTreeMap<Address, Node>>,
    views: Mutex<BTreeMap<Address, View>>,
    map: watch::Sender<Arc<Map>>,
    hurry: Arc<Notify>,
}

#[derive(Debug)]
struct Node {
    lane: Arc<Lane>,
    _poller: AbortOnDropHandle<()>,
}

/// What one node says: who owns which slots, and which nodes there are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View {
    ranges: Vec<(u16, u16, Address)>,
    others: BTreeSet<Address>,
}

/// The owner of each slot.
#[derive(Debug, Default)]
pub(super) struct Map {
    masters: Vec<Address>,
    /// For each slot the owner's index in `masters`.
    owners: Vec<Option<u16>>,
}

impl Map {
    pub(super) fn owner(&self, slot: u16) -> Option<&Address> {
        let index = (*self.owners.get(usize::from(slot))?)?;
        self.masters.get(usize::from(index))
    }
}

impl Cluster {
    /// Begins to ask.
    pub(crate) fn start(dial: Arc<Dial>, seeds: Vec<Address>, interval: Duration) -> Arc<Self> {
        let cluster = Arc::new(Self {
            dial,
            seeds: seeds.iter().cloned().collect(),
            interval,
            nodes: RwLock::default(),
            views: Mutex::default(),
            map: watch::channel(Arc::default()).0,
            hurry: Arc::new(Notify::new()),
        });
        for seed in seeds {
            cluster.lane(&seed);
        }
        cluster
    }

    /// The connection to the owner of a slot, if it is known and up.
    pub(crate) fn owner(&self, slot: u16) -> Result<Arc<Connection>, CallError> {
        let none = || CallError::Unavailable(Outage::NotConnected);
        let map = Arc::clone(&self.map.borrow());
        let address = map.owner(slot).ok_or_else(none)?;
        let lane = self.nodes.read().get(address).map(|n| Arc::clone(&n.lane));
        lane.ok_or_else(none)?.connection()
    }

    /// The masters that own slots.
    pub(crate) fn masters(&self) -> Vec<Arc<Lane>> {
        let map = Arc::clone(&self.map.borrow());
        let nodes = self.nodes.read();
        let lanes = map.masters.iter().filter_map(|address| nodes.get(address));
        lanes.map(|node| Arc::clone(&node.lane)).collect()
    }

    /// Any node that is connected.
    pub(crate) fn any(&self) -> Result<Arc<Connection>, CallError> {
        let nodes = self.nodes.read();
        let up = nodes.values().find_map(|node| node.lane.connection().ok());
        up.ok_or(CallError::Unavailable(Outage::NotConnected))
    }

    /// Waits until all slots that anybody owns are known, and a connection to each owner is up.
    /// The caller bounds the wait.
    pub(crate) async fn wait(&self) {
        let mut map = self.map.subscribe();
        let known = map.wait_for(|map| !map.masters.is_empty()).await.is_ok();
        if known {
            for lane in self.masters() {
                let _ = lane.wait().await;
            }
        }
    }

    /// Asks all nodes now: one has said that a slot has moved.
    pub(crate) fn hurry(&self) {
        self.hurry.notify_waiters();
    }

    /// The lane to a node, made if there is none.
    pub(crate) fn lane(self: &Arc<Self>, address: &Address) -> Option<Arc<Lane>> {
        let mut nodes = self.nodes.write();
        if let Some(node) = nodes.get(address) {
            return Some(Arc::clone(&node.lane));
        }
        if nodes.len() >= NODES_MAX {
            return None;
        }
        let lane = Arc::new(Lane::fixed(Arc::clone(&self.dial), address.clone()));
        // Weak, or the cluster would hold the task that holds it.
        let poller = poll(Arc::downgrade(self), Arc::clone(&lane), address.clone());
        let node = Node {
            lane: Arc::clone(&lane),
            _poller: AbortOnDropHandle::new(tokio::spawn(poller)),
        };
        nodes.insert(address.clone(), node);
        Some(lane)
    }

    /// Takes note of what a node says, or that it says nothing.
    fn saw(self: &Arc<Self>, address: &Address, view: Option<View>) {
        let mut views = self.views.lock();
        if views.get(address) == view.as_ref() {
            return;
        }
        match view {
            Some(view) => views.insert(address.clone(), view),
            None => views.remove(address),
        };
        // When nobody answers any more, what was last known stands.
        if views.is_empty() {
            return;
        }
        let before = Arc::clone(&self.map.borrow());
        let map = Arc::new(decide(&views, &before));
        let mut known: BTreeSet<Address> = map.masters.iter().cloned().collect();
        known.extend(views.values().flat_map(|view| view.others.iter().cloned()));
        known.extend(self.seeds.iter().cloned());
        // What a node that is gone has said counts no more.
        views.retain(|node, _| known.contains(node));
        drop(views);
        self.nodes.write().retain(|node, _| known.contains(node));
        for node in &known {
            self.lane(node);
        }
        self.map.send_replace(map);
    }

    /// Ends the connections.
    pub(crate) fn close(&self) {
        for node in self.nodes.read().values() {
            node.lane.close();
        }
    }
}

/// For each slot the owner that most views name; among equals the one before.
fn decide(views: &BTreeMap<Address, View>, before: &Map) -> Map {
    let mut map = Map {
        masters: Vec::new(),
        owners: vec![None; SLOTS],
    };
    // Slots between two borders of anybody's ranges have the same owner in every view.
    let mut borders: BTreeSet<u32> = BTreeSet::new();
    for (first, last, _) in views.values().flat_map(|view| &view.ranges) {
        borders.extend([u32::from(*first), u32::from(*last) + 1]);
    }
    let borders: Vec<u32> = borders.into_iter().collect();
    for pair in borders.windows(2) {
        let &[first, end] = pair else { continue };
        let Ok(slot) = u16::try_from(first) else {
            continue;
        };
        let mut votes: BTreeMap<&Address, usize> = BTreeMap::new();
        for view in views.values() {
            let range = |(from, to, _): &&(u16, u16, Address)| (*from..=*to).contains(&slot);
            if let Some((_, _, owner)) = view.ranges.iter().find(range) {
                *votes.entry(owner).or_default() += 1;
            }
        }
        let stays = |owner: &Address| before.owner(slot) == Some(owner);
        let most = votes.iter().max_by_key(|(owner, n)| (**n, stays(owner)));
        let Some((owner, _)) = most else { continue };
        let index = map.masters.iter().position(|known| known == *owner);
        let index = index.unwrap_or_else(|| {
            map.masters.push((*owner).clone());
            map.masters.len() - 1
        });
        let slots = map.owners.get_mut(first as usize..end as usize);
        slots.unwrap_or_default().fill(u16::try_from(index).ok());
    }
    map
}

/// Asks one node until it is aborted or the cluster is gone.
async fn poll(cluster: Weak<Cluster>, lane: Arc<Lane>, address: Address) {
    let mut complained = false;
    loop {
        let view = ask(&lane).await;
        let connected = !matches!(view, Err(CallError::Unavailable(Outage::NotConnected)));
        if let Err(error) = &view
            && connected
            && !complained
        {
            tracing::warn!(%address, %error, "a node does not say who owns which slot");
        }
        complained = view.is_err();
        let Some(cluster) = cluster.upgrade() else {
            return;
        };
        cluster.saw(&address, view.ok());
        let interval = cluster.interval;
        let hurry = Arc::clone(&cluster.hurry);
        drop(cluster);
        // However many calls fail, a node is not asked without a pause.
        tokio::time::sleep(interval.min(PAUSE_MIN)).await;
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = hurry.notified() => {}
            _ = lane.wait(), if !connected => {}
        }
    }
}

/// What one node says.
async fn ask(lane: &Lane) -> Result<View, CallError> {
    let connection = lane.connection()?;
    let reply = connection.ask("CLUSTER", &["SLOTS"]).await?;
    read(&reply, &connection.address)
        .ok_or_else(|| CallError::Protocol("CLUSTER SLOTS cannot be read".to_owned()))
}

/// Reads `[first, last, [host, port, id, ..], replica, ..]` of each range.
pub(super) fn read(reply: &Item, asked: &Address) -> Option<View> {
    let mut view = View::default();
    for range in reply.items()? {
        let parts = range.items()?;
        let first = u16::try_from(parts.first()?.number()?).ok()?;
        let last = u16::try_from(parts.get(1)?.number()?).ok()?;
        if first > last || usize::from(last) >= SLOTS {
            return None;
        }
        view.ranges
            .push((first, last, address(parts.get(2)?, asked)?));
        for node in &parts[2..] {
            // A node whose address is not known yet.
            if let Some(address) = address(node, asked) {
                view.others.insert(address);
            }
        }
    }
    Some(view)
}

/// A node says nothing, or "", for a host that is its own.
fn address(node: &Item, asked: &Address) -> Option<Address> {
    let parts = node.items()?;
    let host = match parts.first()? {
        Item::Nil => "",
        host => host.text()?,
    };
    let host = if host.is_empty() { &asked.host } else { host };
    let port = u16::try_from(parts.get(1)?.number()?).ok()?;
    (host != "?" && port > 0).then(|| Address {
        host: host.to_owned(),
        port,
    })
}

/// The id of a slot's owner in a reply of `CLUSTER SLOTS`.
pub(crate) fn owner_id(reply: &Item, slot: u16) -> Option<&str> {
    let of = |range: &'_ &Item| {
        let parts = range.items()?;
        let (first, last) = (parts.first()?.number()?, parts.get(1)?.number()?);
        (first..=last).contains(&u64::from(slot)).then_some(())
    };
    let range = reply.items()?.iter().find(|range| of(range).is_some())?;
    range.items()?.get(2)?.items()?.get(2)?.text()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn at(port: u16) -> Address {
        Address {
            host: "h".into(),
            port,
        }
    }

    fn view(ranges: &[(u16, u16, u16)]) -> View {
        View {
            ranges: ranges
                .iter()
                .map(|&(a, b, port)| (a, b, at(port)))
                .collect(),
            others: BTreeSet::new(),
        }
    }

    fn decided(views: &[View], before: &Map) -> Map {
        let numbered = views.iter().enumerate();
        let views = numbered.map(|(n, view)| (at(u16::try_from(n).unwrap()), view.clone()));
        decide(&views.collect(), before)
    }

    #[test]
    fn each_slot_belongs_to_whom_most_nodes_name() {
        let old = view(&[(0, 99, 1), (100, 16_383, 2)]);
        let new = view(&[(0, 49, 1), (50, 99, 3), (100, 16_383, 2)]);
        let map = decided(&[old.clone(), new.clone(), new.clone()], &Map::default());
        let owner = |map: &Map, slot| map.owner(slot).map(|a| a.port);
        assert_eq!(owner(&map, 0), Some(1));
        assert_eq!(owner(&map, 49), Some(1));
        assert_eq!(owner(&map, 50), Some(3));
        assert_eq!(owner(&map, 99), Some(3));
        assert_eq!(owner(&map, 16_383), Some(2));
        // As many name the one as the other: the one before stays.
        let tie = decided(&[old.clone(), new.clone()], &map);
        assert_eq!(owner(&tie, 50), Some(3));
        let tie = decided(&[old.clone(), new], &decided(&[old], &Map::default()));
        assert_eq!(owner(&tie, 50), Some(1));
    }

    #[test]
    fn slots_that_nobody_owns_have_no_owner() {
        let map = decided(&[view(&[(5, 6, 1)])], &Map::default());
        for (slot, owner) in [(4, None), (5, Some(1)), (6, Some(1)), (7, None)] {
            assert_eq!(map.owner(slot).map(|a| a.port), owner, "{slot}");
        }
        assert!(decided(&[view(&[])], &map).owner(5).is_none());
    }

    #[test]
    fn a_host_that_is_not_named_is_the_one_that_was_asked() {
        let text = |text: &'static str| Item::Bytes(Bytes::from_static(text.as_bytes()));
        let node = |host: Item, port| Item::List(vec![host, Item::Int(port), text("id")]);
        let range = |nodes: Vec<Item>| {
            let mut parts = vec![Item::Int(0), Item::Int(9)];
            parts.extend(nodes);
            Item::List(vec![Item::List(parts)])
        };
        let reply = range(vec![
            node(Item::Nil, 1),
            node(text("b"), 2),
            node(text("?"), 3),
        ]);
        let found = read(&reply, &at(9)).unwrap();
        assert_eq!(found.ranges, [(0, 9, at(1))]);
        assert_eq!(found.others.len(), 2);
        assert_eq!(owner_id(&reply, 9), Some("id"));
        assert_eq!(owner_id(&reply, 10), None);
        let none = range(vec![node(text("?"), 1)]);
        assert_eq!(read(&none, &at(9)), None);
        assert_eq!(read(&Item::Nil, &at(9)), None);
    }
}
