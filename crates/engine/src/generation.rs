//! Beginning a generation, the same for an opening and for a recovery: append its record, read
//! the log to it, load its scripts, build its state from the ledger, and make it current.
//!
//! A crash or a pause anywhere is harmless. The record alone changes nothing that was told, and a
//! state that is not current is looked at by nobody; whoever comes later begins the next one.

use crate::admin::AdminError;
use crate::handle::Served;
use crate::sale::Sale;
use crate::shared::Shared;
use dropgate_admission::{Entry, Operator, Scope, Scripts, State, Switched, hashes_for};
use dropgate_domain::{
    Body, CALLS_VERSION, Event, Generation, Identity, Nonce, RULE_VERSION, SaleId, Seq, Started,
    TimeMs, UserId, Win,
};
use dropgate_events::encode_event;
use dropgate_stream::AppendError;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long each step may take that only needs the log to answer.
pub(crate) const LOG_TAKES_MAX: Duration = Duration::from_secs(30);
/// How long a record whose fate is not known is looked for before it is appended again.
const RESEND_PAUSE: Duration = Duration::from_secs(1);
/// How many wins are read at a time while a state is built: the log's reader waits that long.
const WINS_AT_ONCE: usize = 1_000;

/// What a beginning has come to, for who watches it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Redis is fit: a master that takes writes.
    Certified,
    /// The state of the generation before answers nobody any more; `found` when it was there.
    Halted {
        /// Whether Redis had it.
        found: bool,
    },
    /// What waited in the outbox is in the log.
    Published {
        /// How many events that were.
        events: u64,
    },
    /// The record of the new generation is in the log, and its wins are known.
    Started {
        /// The new generation.
        generation: Generation,
        /// Wins that its state is built from.
        wins: u64,
    },
    /// The state is being written.
    Written {
        /// Wins that have been written, of those told by `Started`.
        wins: u64,
    },
    /// The new generation is current.
    Switched,
}

/// Is told how far a beginning is.
pub(crate) type OnProgress<'a> = &'a (dyn Fn(Progress) + Send + Sync);

/// A generation to begin.
pub(crate) struct Beginning<'a> {
    /// The generation before; 0: the sale opens.
    pub from: Generation,
    /// Who begins it, for people.
    pub by: &'a str,
    /// Why, for people.
    pub reason: &'a str,
    /// Until when.
    pub deadline: Instant,
    pub on_progress: OnProgress<'a>,
}

/// Begins the generation after `from` on a Redis that has been certified. False when somebody
/// else began it.
pub(crate) async fn begin_generation(
    shared: &Shared,
    served: &Arc<Served>,
    beginning: &Beginning<'_>,
) -> Result<bool, AdminError> {
    let operator = shared.operator()?;
    let from = beginning.from;
    let (nonce, loaded) = nonce_for(shared, operator, &served.sale.pin().sale, from).await?;
    if !start(shared, served, beginning, nonce).await? {
        return Ok(false);
    }
    // The scripts first: a Redis that forgets while the state is written cannot run the switch.
    if !loaded {
        operator
            .load_scripts(&served.sale.pin().sale, nonce)
            .await?;
    }
    let scripts = Scripts::from_started(&hashes_for(nonce))
        .map_err(|error| AdminError::Unavailable(error.to_string()))?;
    let pin = served.sale.pin();
    let scope = Scope::new(pin.sale.clone(), pin.log_id, from.next());
    let state = state(&served.sale, from.next())?;
    let claims = Claims::at(&served.sale, state.seq, beginning.on_progress);
    operator.build(&scope, &state, claims).await?;
    let old = (from != Generation(0)).then(|| Scope::new(pin.sale.clone(), pin.log_id, from));
    let switched = operator
        .switch(&scripts, old.as_ref(), &scope, state.seq, state.head)
        .await?;
    match switched.value {
        Switched::Switched | Switched::Already => {
            (beginning.on_progress)(Progress::Switched);
            Ok(true)
        }
        Switched::NotBuilt => Err(AdminError::Unavailable(
            "redis lost the new generation while it was built".to_owned(),
        )),
        Switched::Backwards => overtaken(operator, &pin.sale, &scope).await,
    }
}

/// Appends the generation's record and reads the log to it. False when another one is the first
/// of its number.
async fn start(
    shared: &Shared,
    served: &Served,
    beginning: &Beginning<'_>,
    nonce: Nonce,
) -> Result<bool, AdminError> {
    let generation = beginning.from.next();
    let opening = beginning.from == Generation(0);
    let identity = Identity(shared.random()?);
    let pin = served.sale.pin();
    let started = Event {
        sale: pin.sale.clone(),
        generation,
        body: Body::Started(Box::new(Started {
            identity,
            nonce,
            scripts: hashes_for(nonce),
            rule: RULE_VERSION,
            calls: CALLS_VERSION,
            window: shared.config.window,
            definition: opening.then(|| pin.definition.clone()),
            by: beginning.by.to_owned(),
            reason: beginning.reason.to_owned(),
            at: Some(now_ms()),
        })),
    };
    let record = encode_event(&started);
    let read = || {
        let ledger = served.sale.ledger();
        let current = ledger.current()?;
        let wins = ledger.wins().len() as u64;
        (current.generation() >= generation).then(|| (current.identity(), wins))
    };
    let deadline = beginning.deadline.min(Instant::now() + LOG_TAKES_MAX);
    let (first, wins) = loop {
        let acknowledged = match shared.log.append(served.lane(), record.clone()).await {
            Ok(_) => true,
            // It may have been lost: the same record is appended again, of which the first counts.
            Err(AppendError::Unknown(_)) => false,
            Err(error @ AppendError::Refused(_)) => {
                return Err(AdminError::Unavailable(format!("log: {error}")));
            }
        };
        let patience = if acknowledged {
            LOG_TAKES_MAX
        } else {
            RESEND_PAUSE
        };
        match shared
            .until(deadline.min(Instant::now() + patience), read)
            .await
        {
            Ok(found) => break found,
            Err(_) if !acknowledged && Instant::now() < deadline => served.followable()?,
            Err(error) => return Err(error),
        }
    };
    if first == identity {
        (beginning.on_progress)(Progress::Started { generation, wins });
    }
    Ok(first == identity)
}

/// Redis refuses to go back: a later recovery did this one's work, or the key is of another log.
async fn overtaken(operator: &Operator, sale: &SaleId, ours: &Scope) -> Result<bool, AdminError> {
    match operator.current(sale).await? {
        Some(tag) if !ours.is_of_same_log(&tag) => Err(of_another_log(sale, &tag)),
        _ => Ok(false),
    }
}

/// What is to be done about a Redis that another log's sale lives in.
pub(crate) fn of_another_log(sale: &SaleId, tag: &str) -> AdminError {
    AdminError::Halted(format!(
        "redis holds a sale of this id from another log ({tag}); delete its key \
         dropgate:{{{sale}}}:current if that log is no longer used"
    ))
}

/// The nonce of the generation to begin, and whether its scripts are loaded.
///
/// An opening uses those of the newest generation that this process has read of, if Redis still
/// has them, since a loaded script is never freed. They are not loaded again, were they gone a
/// moment later: a nonce's scripts are loaded once in history, or a Redis that forgot would be
/// taught to answer. A recovery always draws a new nonce: that is the fence.
async fn nonce_for(
    shared: &Shared,
    operator: &Operator,
    sale: &SaleId,
    from: Generation,
) -> Result<(Nonce, bool), AdminError> {
    let newest = *shared.followed.newest_nonce.read();
    if let Some(nonce) = newest.filter(|_| from == Generation(0)) {
        // The hashes of this release's scripts: another release's are not found loaded.
        if operator.scripts_loaded(sale, &hashes_for(nonce)).await? {
            return Ok((nonce, true));
        }
    }
    Ok((Nonce(shared.random()?), false))
}

/// What a new generation begins with: the ledger as it stands at its `Started` record.
fn state(sale: &Sale, generation: Generation) -> Result<State, AdminError> {
    let ledger = sale.ledger();
    let overtaken = || AdminError::Unavailable("another generation has begun".to_owned());
    let position = ledger.position().ok_or_else(overtaken)?;
    if position.generation != generation {
        return Err(overtaken());
    }
    Ok(State {
        definition: sale.pin().definition.clone(),
        next: ledger.next_fresh(),
        seq: position.seq,
        head: position.chain,
        time: ledger.last_time(),
        window: ledger.current().ok_or_else(overtaken)?.window(),
        closed: ledger.closed_at().is_some(),
    })
}

/// The claims of every user as of a seq, read from the ledger a few at a time: a million of them
/// are never in memory twice, and the log's reader does not wait for them.
///
/// The ledger may meanwhile go on in a generation that came later. Wins are only ever added, so
/// those through the seq stay what they were.
struct Claims<'a> {
    sale: Arc<Sale>,
    through: Seq,
    /// The index of the next win to read.
    next: usize,
    chunk: VecDeque<(UserId, Vec<Entry>)>,
    on_progress: OnProgress<'a>,
}

impl<'a> Claims<'a> {
    fn at(sale: &Arc<Sale>, through: Seq, on_progress: OnProgress<'a>) -> Self {
        Self {
            sale: Arc::clone(sale),
            through,
            next: 0,
            chunk: VecDeque::new(),
            on_progress,
        }
    }

    /// Reads the next wins; false when there are none.
    fn refill(&mut self) -> bool {
        let ledger = self.sale.ledger();
        let wins = ledger.wins().get(self.next..).unwrap_or_default();
        let wins = wins.iter().take(WINS_AT_ONCE);
        let mut read = 0;
        for win in wins.take_while(|win| win.seq <= self.through) {
            read += 1;
            // All claims of a user are one value: they go with the first.
            if ledger
                .win_of(&win.user)
                .is_some_and(|first| first.seq == win.seq)
            {
                let mine = ledger.wins_of(&win.user);
                let entries = mine.filter(|win| win.seq <= self.through).map(entry);
                self.chunk.push_back((win.user.clone(), entries.collect()));
            }
        }
        drop(ledger);
        self.next += read;
        if read > 0 {
            let wins = self.next as u64;
            (self.on_progress)(Progress::Written { wins });
        }
        read > 0
    }
}

impl Iterator for Claims<'_> {
    type Item = (UserId, Vec<Entry>);

    fn next(&mut self) -> Option<Self::Item> {
        while self.chunk.is_empty() && self.refill() {}
        self.chunk.pop_front()
    }
}

fn entry(win: &Win) -> Entry {
    Entry {
        seq: win.seq,
        unit: win.unit,
        attempt: win.attempt,
        key: win.key.clone(),
    }
}

/// The clock of this machine. What it says judges nothing.
pub(crate) fn now_ms() -> TimeMs {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    TimeMs(since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX)))
}
