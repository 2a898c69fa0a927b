//! The ledger: the one pure fold of a sale's log into its state.
//!
//! The same code judges in the gateway, the order-writer, the recovery, the reconciler and the
//! model, so that all of them stop, void and apply at the same offsets, whatever they know
//! besides. It has no clock, no I/O and no configuration: what influences its judgement is in
//! the log.
//!
//! *The rule.* Within a generation the first record with seq n is event n. It applies in seq
//! order and on the chain of event n−1 only; what comes early waits in a buffer of `window`
//! events. The same bytes again are a duplicate. The first record that breaks this means that
//! Redis lost writes: it ends the generation, and everything of that generation that was not
//! applied is void. A generation begins with its `Started` record and continues the seq.

mod book;
mod incarnation;
mod outcome;
mod rule;
#[cfg(test)]
mod tests;

pub use book::{Counts, Win};
pub use incarnation::Incarnation;
pub use outcome::{Applied, Cause, Fed, Found, Phase, Position, Stop, What};
pub use rule::{FullRule, Rule};

use crate::event::{Body, CALLS_VERSION, Definition, Halted, Link, RULE_VERSION, Record, Started};
use crate::ids::{Digest, Generation, Offset, SaleId, Seq, TimeMs, UserId};
use crate::promise::Broken;
use book::Book;
use std::collections::BTreeMap;
use std::marker::PhantomData;

/// The state of a sale, as far as its log has been read.
///
/// It judges by the whole rule, unless a type says otherwise: see [`Rule`].
#[derive(Debug, Clone)]
pub struct Ledger<R: Rule = FullRule> {
    sale: SaleId,
    /// From the opening on.
    sold: Option<Book>,
    current: Option<Incarnation>,
    /// Of each generation, in order: the seq before its first event.
    bases: Vec<Seq>,
    /// When each generation was begun, as its author said.
    starts: Vec<Option<TimeMs>>,
    /// What came early, by seq; fewer than `window` records.
    early: BTreeMap<Seq, Record>,
    last_offset: Option<Offset>,
    stopped: Option<Stop>,
    rule: PhantomData<fn() -> R>,
}

impl Ledger {
    /// The ledger of a sale whose log has not been read yet.
    #[must_use]
    pub fn new(sale: SaleId) -> Self {
        Self::judged_by(sale)
    }
}

impl<R: Rule> Ledger<R> {
    /// Like [`Ledger::new`], by the rule `R`.
    #[must_use]
    pub fn judged_by(sale: SaleId) -> Self {
        Self {
            sale,
            sold: None,
            current: None,
            bases: Vec::new(),
            starts: Vec::new(),
            early: BTreeMap::new(),
            last_offset: None,
            stopped: None,
            rule: PhantomData,
        }
    }

    /// Reads the next record of the log. What it made effective is pushed to `out`, in order.
    ///
    /// # Errors
    /// [`Stop`]: this is not the log of the sale as it was written, or it follows a rule that
    /// this release does not know. The ledger judges nothing more and keeps what it has.
    pub fn feed(
        &mut self,
        at: Offset,
        record: Record,
        out: &mut Vec<Applied>,
    ) -> Result<Fed, Stop> {
        if let Some(stop) = &self.stopped {
            return Err(stop.clone());
        }
        let judged = self.judge(at, record, out);
        if let Err(stop) = &judged {
            self.stopped = Some(stop.clone());
        }
        judged
    }

    fn judge(&mut self, at: Offset, record: Record, out: &mut Vec<Applied>) -> Result<Fed, Stop> {
        if record.event.sale != self.sale {
            return Err(Stop::OtherSale);
        }
        if self.last_offset.is_some_and(|last| at <= last) {
            return Err(Stop::OffsetWentBack { at });
        }
        self.last_offset = Some(at);
        let generation = record.event.generation;
        let link = match record.event.body {
            Body::Started(started) => {
                return self.start(at, generation, *started, record.digest, out);
            }
            Body::Halted(halted) => return self.halt(generation, halted),
            Body::Won(ref won) => won.link,
            Body::Closed(link) => link,
        };
        if self.is_over(generation)? {
            return Ok(Fed::Void);
        }
        Ok(self.sequenced(at, link, record, out))
    }

    /// Whether nothing of `generation` counts any more.
    fn is_over(&self, generation: Generation) -> Result<bool, Stop> {
        let now = self.generation();
        if generation > now {
            return Err(Stop::GenerationNotStarted { generation, now });
        }
        let passed = R::generation_cut() && generation < now;
        Ok(passed || self.current.as_ref().is_none_or(|c| c.ended.is_some()))
    }

    fn halt(&mut self, generation: Generation, halted: Halted) -> Result<Fed, Stop> {
        if self.is_over(generation)? {
            return Ok(Fed::Void);
        }
        if let Some(current) = self.current.as_mut() {
            current.halted.get_or_insert(halted);
        }
        Ok(Fed::Halted)
    }

    fn start(
        &mut self,
        at: Offset,
        generation: Generation,
        started: Started,
        digest: Digest,
        out: &mut Vec<Applied>,
    ) -> Result<Fed, Stop> {
        let now = self.generation();
        if generation <= now {
            // Of two with the same number the first counts, and a number that has passed
            // was somebody's late recovery.
            return Ok(Fed::Void);
        }
        if generation != now.next() {
            return Err(Stop::GenerationNotStarted { generation, now });
        }
        if started.rule != RULE_VERSION || started.calls != CALLS_VERSION {
            return Err(Stop::UnknownVersion {
                rule: started.rule,
                calls: started.calls,
            });
        }
        match (&started.definition, &self.sold) {
            (Some(definition), None) => self.sold = Some(Book::new(definition.clone())),
            (None, Some(_)) => {}
            (None, None) | (Some(_), Some(_)) => return Err(Stop::DefinitionMisplaced),
        }
        let base = self.applied();
        self.bases.push(base);
        self.starts.push(started.at);
        self.early.clear();
        self.current = Some(Incarnation {
            generation,
            started,
            base,
            digests: Vec::new(),
            root: digest,
            halted: None,
            ended: None,
        });
        out.push(Applied {
            at,
            position: Position {
                generation,
                seq: base,
                chain: digest,
            },
            what: What::Started,
        });
        Ok(Fed::Started(generation))
    }

    fn sequenced(&mut self, at: Offset, link: Link, record: Record, out: &mut Vec<Applied>) -> Fed {
        let (Some(current), Some(sold)) = (self.current.as_mut(), self.sold.as_mut()) else {
            return Fed::Void;
        };
        let (seq, applied) = (link.seq, current.applied());
        if seq <= current.base {
            return Self::end(current, &mut self.early, Cause::SeqTaken { seq });
        }
        let known = if seq <= applied {
            let index = (seq.0 - current.base.0 - 1) as usize;
            current.digests.get(index).copied()
        } else {
            self.early.get(&seq).map(|early| early.digest)
        };
        if let Some(known) = known {
            if known == record.digest {
                return Fed::Duplicate;
            }
            if !R::first_wins() {
                return self.second(at, link.seq, record, out);
            }
            return Self::end(current, &mut self.early, Cause::OtherBytes { seq });
        }
        if seq.0 - applied.0 > u64::from(current.window().get()) {
            return Self::end(current, &mut self.early, Cause::BeyondWindow { seq });
        }
        if seq != applied.next() && R::strict_order() {
            self.early.insert(seq, record);
            return Fed::Buffered;
        }
        let mut applied = 0;
        let mut next = Some((seq, record));
        while let Some((seq, record)) = next {
            match Self::apply(current, sold, seq, record) {
                Ok((position, what)) => out.push(Applied { at, position, what }),
                Err(cause) => return Self::end(current, &mut self.early, cause),
            }
            applied += 1;
            next = self.early.remove_entry(&current.applied().next());
        }
        Fed::Applied(applied)
    }

    /// Applies an event, if it hangs on the chain and the state allows it. It is next in seq,
    /// unless the rule does not wait for those before it: then these are passed over.
    fn apply(
        current: &mut Incarnation,
        sold: &mut Book,
        seq: Seq,
        record: Record,
    ) -> Result<(Position, What), Cause> {
        let on_chain = |link: &Link| {
            if link.prev == current.chain() || !R::chain() {
                Ok(())
            } else {
                Err(Cause::ChainBroken { seq })
            }
        };
        let what = match record.event.body {
            Body::Won(won) => {
                on_chain(&won.link)?;
                What::Won(sold.win(current.generation, won, R::guard())?)
            }
            Body::Closed(link) => {
                on_chain(&link)?;
                sold.close(link)?;
                What::Closed(link.time)
            }
            Body::Started(_) | Body::Halted(_) => return Err(Cause::ChainBroken { seq }),
        };
        // One more, unless events were passed over.
        let length = (seq.0 - current.base.0) as usize;
        current.digests.resize(length, record.digest);
        let position = Position {
            generation: current.generation,
            seq,
            chain: record.digest,
        };
        Ok((position, what))
    }

    fn end(current: &mut Incarnation, early: &mut BTreeMap<Seq, Record>, cause: Cause) -> Fed {
        early.clear();
        current.ended = Some(cause);
        Fed::Ended(cause)
    }

    /// The sale.
    #[must_use]
    pub fn sale(&self) -> &SaleId {
        &self.sale
    }

    /// The current generation; 0 before the opening.
    #[must_use]
    pub fn generation(&self) -> Generation {
        self.current
            .as_ref()
            .map_or(Generation(0), Incarnation::generation)
    }

    /// The current generation's particulars; `None` before the opening.
    #[must_use]
    pub fn current(&self) -> Option<&Incarnation> {
        self.current.as_ref()
    }

    /// When each generation was begun, in order, by the clock of who began it. Judges nothing: it
    /// is there for who bounds how often a sale is recovered.
    #[must_use]
    pub fn starts(&self) -> &[Option<TimeMs>] {
        &self.starts
    }

    /// What is sold; `None` before the opening.
    #[must_use]
    pub fn definition(&self) -> Option<&Definition> {
        self.sold.as_ref().map(Book::definition)
    }

    /// The last applied seq; 0 when none is.
    #[must_use]
    pub fn applied(&self) -> Seq {
        self.current.as_ref().map_or(Seq(0), Incarnation::applied)
    }

    /// How far the sale is; `None` before the opening.
    #[must_use]
    pub fn position(&self) -> Option<Position> {
        self.current.as_ref().map(|current| Position {
            generation: current.generation,
            seq: current.applied(),
            chain: current.chain(),
        })
    }

    /// The digest of an applied event of the current generation; of the seq before its first
    /// event: of its `Started` record. `None` for a seq that it has not.
    #[must_use]
    pub fn chain_at(&self, seq: Seq) -> Option<Digest> {
        let current = self.current.as_ref()?;
        match seq.0.checked_sub(current.base.0)?.checked_sub(1) {
            Some(index) => current.digests.get(usize::try_from(index).ok()?).copied(),
            None => Some(current.root),
        }
    }

    /// What became of the event that was given `seq` in `generation`.
    #[must_use]
    pub fn event_at(&self, generation: Generation, seq: Seq) -> Found<'_> {
        let now = self.generation();
        if generation > now {
            return Found::Open;
        }
        let index = (generation.0 as usize).checked_sub(1);
        let Some((index, &base)) = index.and_then(|i| Some((i, self.bases.get(i)?))) else {
            return Found::Void;
        };
        let end = self.bases.get(index + 1).copied();
        // Nothing applies after the close either.
        let ended =
            self.closed_at().is_some() || self.current.as_ref().is_none_or(|c| c.ended.is_some());
        if seq > base && seq <= end.unwrap_or(self.applied()) {
            let win = self.sold.as_ref().and_then(|sold| sold.win_at(seq));
            win.map_or(Found::AppliedOther, Found::Applied)
        } else if seq <= base || end.is_some() || ended {
            Found::Void
        } else {
            Found::Open
        }
    }

    /// The user's first live win.
    #[must_use]
    pub fn win_of(&self, user: &UserId) -> Option<&Win> {
        self.wins_of(user).next()
    }

    /// The user's live wins, in order.
    pub fn wins_of<'a>(&'a self, user: &UserId) -> impl Iterator<Item = &'a Win> + use<'a, R> {
        self.sold
            .as_ref()
            .map(|sold| sold.wins_of(user))
            .into_iter()
            .flatten()
    }

    /// All live wins, in the order of their seq.
    #[must_use]
    pub fn wins(&self) -> &[Win] {
        self.sold.as_ref().map_or(&[], Book::wins)
    }

    /// Every user with live wins, in no order.
    pub fn users(&self) -> impl Iterator<Item = &UserId> {
        self.sold.as_ref().map(Book::users).into_iter().flatten()
    }

    /// stock, sold, held, free; all 0 before the opening.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.sold.as_ref().map(Book::counts).unwrap_or_default()
    }

    /// Units that a claim could get now.
    #[must_use]
    pub fn claimable(&self) -> u64 {
        self.counts().free
    }

    /// The lowest unit that nobody ever had, where a new generation goes on.
    #[must_use]
    pub fn next_fresh(&self) -> crate::ids::Unit {
        self.sold
            .as_ref()
            .map_or(crate::ids::Unit(1), Book::next_fresh)
    }

    /// The time of the last applied event; 0 when none is.
    #[must_use]
    pub fn last_time(&self) -> TimeMs {
        self.sold.as_ref().map(Book::last_time).unwrap_or_default()
    }

    /// When the sale was closed, if it was.
    #[must_use]
    pub fn closed_at(&self) -> Option<TimeMs> {
        self.sold.as_ref().and_then(Book::closed_at)
    }

    /// How many records wait for those before them.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.early.len()
    }

    /// In what state the sale is, by its log alone.
    #[must_use]
    pub fn phase(&self) -> Phase {
        let Some(current) = &self.current else {
            return Phase::NotOpened;
        };
        if let Some(stop) = &self.stopped {
            return Phase::Stopped(stop.clone());
        }
        // What comes after the close changes nothing for anybody, so it is the first thing to tell.
        if self.closed_at().is_some() {
            return Phase::Closed;
        }
        if let Some(cause) = current.ended {
            return Phase::Ended(cause);
        }
        match &current.halted {
            Some(halted) => Phase::Halted(halted.clone()),
            None => Phase::Open,
        }
    }

    /// Recomputes promises 1, 2 and 5 from the wins, in O(wins).
    ///
    /// # Errors
    /// The first promise that does not hold.
    pub fn check(&self) -> Result<(), Broken> {
        self.sold.as_ref().map_or(Ok(()), Book::check)
    }
}
