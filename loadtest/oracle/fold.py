"""What the log says about one sale: the rule of the protocol, "The log decides", in plain Python.

    within a generation, the first record with seq n is event n;
    it applies in seq order only, and only on the chain of event n-1;
    what comes early waits, at most `window` events ahead;
    the first record that breaks the rules ends its generation;
    a new generation starts on what was applied, and voids the rest.
"""

import hashlib
from array import array
from typing import NamedTuple

# These ends of a generation cannot happen unless a script is wrong: the log stops them, and they
# are a broken promise all the same.
BROKEN_PROMISES = {"unit_beyond_stock": "oversold", "unit_taken": "unit_sold_twice",
                   "user_over_limit": "user_over_limit"}


class Stop(Exception):
    """The log is not the log: nothing after this may be judged. `kind` names why."""

    def __init__(self, kind, detail):
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail = kind, detail


class Win(NamedTuple):
    """One unit of one user."""
    generation: int
    seq: int
    unit: int
    user: str
    attempt: str
    key: str
    won_ms: int

    @property
    def claim(self):
        return f"{self.generation}-{self.seq}-{self.attempt}"


class Fold:
    """The state of one sale after the records fed so far."""

    def __init__(self):
        self.generation = 0        # 0: not open yet
        self.definition = None
        self.window = 0
        self.base = 0              # the last seq before this generation
        self.seq = 0               # the last applied
        self.chain = bytes(20)     # its digest, or the Started record's if none is applied yet
        self.ended = None          # a cause, when this generation is over
        self.halted = False
        self.closed_ms = None
        self.time_ms = 0
        self.waiting = {}          # seq -> (event, digest): what came early
        self.by_seq = []           # event n is by_seq[n - 1]: its Win, or None for a close
        self.generations = array("I")  # the generation of event n
        self.digests = bytearray()     # 20 bytes for each event
        self.by_unit = {}
        self.by_user = {}
        self.wins = 0
        self.void = set()          # claims whose event is void
        self.counts = {"applied": 0, "duplicates": 0, "void_events": 0, "late_starts": 0,
                       "halts": 0, "generations_ended": 0}
        self.endings = []          # (generation, cause, detail)
        self.notes = []            # (kind, detail): wrong, but not a matter of the rule

    def feed(self, offset, event, record):
        """Takes the next record of the sale. Raises Stop when the log must have lost one."""
        if event.kind == "started":
            return self._start(event, record)
        if event.generation > self.generation:
            raise Stop("generation_never_started", f"offset {offset}: a {event.kind} event of "
                       f"generation {event.generation} in generation {self.generation}")
        if event.kind == "halted":
            self.counts["halts"] += 1
            self.halted |= event.generation == self.generation
            return None
        return self._numbered(offset, event, hashlib.sha1(record).digest())

    def _start(self, event, record):
        if event.generation > self.generation + 1:
            raise Stop("generation_never_started", f"generation {event.generation} starts in "
                       f"generation {self.generation}")
        if event.generation <= self.generation:
            self.counts["late_starts"] += 1
            return
        for early, _ in self.waiting.values():
            self._discard(early)
        self.waiting = {}
        self.generation, self.window, self.base = event.generation, event.window, self.seq
        self.definition = self.definition or event.definition
        self.chain = hashlib.sha1(record).digest()
        self.ended, self.halted = None, False

    def _numbered(self, offset, event, digest):
        """An event with a seq, of this generation or of an earlier one."""
        known = self._digest_of(event.generation, event.seq)
        if known == digest:
            self.counts["duplicates"] += 1
        elif event.generation < self.generation or self.ended:
            self._discard(event)
        elif known is not None:
            self._end("two_events_one_seq", offset, event)
        elif event.seq <= self.base:
            self._end("seq_of_earlier_generation", offset, event)
        elif event.seq > self.seq + self.window:
            # A script refuses when `window` events are not applied, so this is no honest event.
            self._end("beyond_window", offset, event)
        else:
            self.waiting[event.seq] = (event, digest)
            self._drain(offset)

    def _digest_of(self, generation, seq):
        """The digest of the event (generation, seq) if it is known, applied or waiting."""
        if seq <= self.seq:
            same = self.generations[seq - 1] == generation
            return bytes(self.digests[20 * (seq - 1):20 * seq]) if same else None
        waits = self.waiting.get(seq) if generation == self.generation else None
        return waits[1] if waits else None

    def _drain(self, offset):
        while not self.ended and self.seq + 1 in self.waiting:
            event, digest = self.waiting.pop(self.seq + 1)
            wrong = self._wrong(event)
            if wrong:
                self._end(wrong, offset, event)
            else:
                self._apply(event, digest)

    def _wrong(self, event):
        """Why the next event may not apply, or None."""
        if event.prev != self.chain:
            return "broken_chain"
        if self.closed_ms is not None:
            return "event_after_close"
        if event.kind == "won":
            if not 1 <= event.unit <= self.definition.stock:
                return "unit_beyond_stock"
            if event.unit in self.by_unit:
                return "unit_taken"
            if len(self.by_user.get(event.user, ())) >= self.definition.per_user_limit:
                return "user_over_limit"
        return None

    def _apply(self, event, digest):
        win = None
        if event.kind == "won":
            win = Win(event.generation, event.seq, event.unit, event.user, event.attempt,
                      event.key, event.time_ms)
            self.by_unit[win.unit] = win
            self.by_user[win.user] = self.by_user.get(win.user, ()) + (win,)
            self.wins += 1
            if not self._open_at(event.time_ms):
                self.notes.append(("won_outside_hours", f"{win.claim} at {event.time_ms}"))
        else:
            self.closed_ms = event.time_ms
        if event.time_ms < self.time_ms:
            self.notes.append(("time_went_back", f"seq {event.seq}: {event.time_ms}"))
        self.time_ms = max(self.time_ms, event.time_ms)
        self.seq, self.chain = event.seq, digest
        self.by_seq.append(win)
        self.generations.append(event.generation)
        self.digests += digest
        self.counts["applied"] += 1

    def _open_at(self, time_ms):
        closes = self.definition.closes_ms
        return self.definition.opens_ms <= time_ms and (not closes or time_ms < closes)

    def _end(self, cause, offset, event):
        detail = (f"offset {offset}: generation {event.generation} ends at seq {event.seq}, "
                  f"after {self.seq} applied")
        self.ended = cause
        self.endings.append((self.generation, cause, detail))
        self.counts["generations_ended"] += 1
        for early, _ in self.waiting.values():
            self._discard(early)
        self.waiting = {}
        self._discard(event)

    def _discard(self, event):
        self.counts["void_events"] += 1
        if event.kind == "won":
            self.void.add(f"{event.generation}-{event.seq}-{event.attempt}")

    def win_of_claim(self, claim):
        """The win that a claim id names, or None."""
        try:
            seq = int(claim.split("-")[1])
        except (AttributeError, IndexError, ValueError):
            return None
        win = self.by_seq[seq - 1] if 1 <= seq <= self.seq else None
        return win if win and win.claim == claim else None
