"""The rule of the log, sentence by sentence, and as properties."""

import random
import unittest

from fold import Fold, Stop
from messages import decode_event
from tests import world as w


class Folding(unittest.TestCase):
    def setUp(self):
        self.fold, self.offset = Fold(), 0
        self.first = w.started(1, w.definition(5, 2), window=4)

    def feed(self, *records):
        for record in records:
            self.fold.feed(self.offset, decode_event(record), record)
            self.offset += 1
        return self.fold

    def chain(self, start, count, generation=1, seq=0, limit_users=3):
        """`count` events on the record `start`."""
        out, prev = [], w.sha1(start)
        for n in range(seq + 1, seq + count + 1):
            out.append(self.win(n, prev, generation, f"u{n % limit_users}"))
            prev = w.sha1(out[-1])
        return out

    @staticmethod
    def win(seq, prev, generation=1, user="u", unit=None, time_ms=1):
        return w.won(generation, user, bytes([seq]) * 16, "", seq, unit or seq, time_ms, prev)

    def test_events_apply_in_order(self):
        events = self.chain(self.first, 5)
        fold = self.feed(self.first, *events)
        self.assertEqual((fold.seq, fold.wins, fold.chain), (5, 5, w.sha1(events[-1])))
        self.assertEqual([win.unit for win in fold.by_seq], [1, 2, 3, 4, 5])
        self.assertIsNone(fold.ended)

    def test_the_chain_of_a_generation_without_events_is_its_start(self):
        fold = self.feed(self.first)
        self.assertEqual((fold.generation, fold.seq, fold.chain), (1, 0, w.sha1(self.first)))

    def test_any_order_within_the_window_and_any_duplicates_give_the_same_state(self):
        events = self.chain(self.first, 5)
        for seed in range(300):
            rng, self.fold = random.Random(seed), Fold()
            todo = events + rng.choices(events, k=rng.randrange(4))
            rng.shuffle(todo)
            # The window of 4 does not hold event 5 while event 1 is out.
            if todo.index(events[4]) < todo.index(events[0]):
                continue
            fold = self.feed(self.first, *todo)
            self.assertEqual((fold.seq, fold.chain, fold.ended), (5, w.sha1(events[4]), None))
            self.assertEqual(fold.counts["duplicates"], len(todo) - 5)

    def test_what_comes_early_waits(self):
        one, two, three = self.chain(self.first, 3)
        self.assertEqual(self.feed(self.first, three, two).seq, 0)
        self.assertEqual(self.feed(one).seq, 3)

    def test_what_comes_before_the_window_ends_the_generation(self):
        events = self.chain(self.first, 5)
        self.assertEqual(self.feed(self.first, events[4]).ended, "beyond_window")
        self.assertEqual(self.feed(*events[:4]).seq, 0)

    def test_a_second_event_of_a_seq_ends_the_generation_and_changes_nothing(self):
        one, two = self.chain(self.first, 2)
        fold = self.feed(self.first, one, two, self.win(1, w.sha1(self.first), user="thief"))
        self.assertEqual((fold.ended, fold.seq), ("two_events_one_seq", 2))
        self.assertNotIn("thief", fold.by_user)

    def test_a_second_event_of_a_waiting_seq_ends_the_generation(self):
        one, two, _ = self.chain(self.first, 3)
        fold = self.feed(self.first, two, self.win(2, w.sha1(one), user="thief"))
        self.assertEqual((fold.ended, fold.seq), ("two_events_one_seq", 0))
        self.assertEqual(fold.counts["void_events"], 2)

    def test_a_broken_chain_ends_the_generation(self):
        one, two = self.chain(self.first, 2)
        fold = self.feed(self.first, one, self.win(2, w.sha1(two)), two)
        self.assertEqual((fold.ended, fold.seq), ("broken_chain", 1))

    def test_a_broken_chain_found_while_draining_ends_the_generation(self):
        one, _, three, _ = self.chain(self.first, 4)
        other = self.win(2, w.sha1(one), user="other")
        fold = self.feed(self.first, three, other)
        self.assertIsNone(fold.ended)
        self.assertEqual((self.feed(one).ended, fold.seq), ("broken_chain", 2))

    def test_nothing_of_an_ended_generation_applies(self):
        one, two, three = self.chain(self.first, 3)
        fold = self.feed(self.first, one, self.win(2, b"x" * 20), two, three, one)
        self.assertEqual((fold.seq, fold.wins), (1, 1))
        self.assertEqual((fold.counts["void_events"], fold.counts["duplicates"]), (3, 1))
        self.assertIn(f"1-2-{'02' * 16}", fold.void)

    def test_a_new_generation_goes_on_from_what_was_applied(self):
        one, two, three = self.chain(self.first, 3)
        second = w.started(2, window=4)
        events = self.chain(second, 2, generation=2, seq=1)
        fold = self.feed(self.first, one, three, second, *events)
        self.assertEqual((fold.generation, fold.seq, fold.base), (2, 3, 1))
        self.assertEqual(fold.counts["void_events"], 1)
        self.assertEqual(self.feed(two, three, one).seq, 3)
        self.assertEqual(fold.counts["duplicates"], 1)
        self.assertEqual([win.generation for win in fold.by_seq], [1, 2, 2])

    def test_of_two_starts_with_one_number_the_first_counts(self):
        other = w.started(1, w.definition(5, 2), window=4, identity=b"j" * 16)
        fold = self.feed(self.first, other, *self.chain(self.first, 2))
        self.assertEqual((fold.seq, fold.counts["late_starts"]), (2, 1))
        self.assertEqual(self.feed(*self.chain(other, 2)).ended, "two_events_one_seq")

    def test_a_seq_of_an_earlier_generation_ends_the_new_one(self):
        one, two = self.chain(self.first, 2)
        fold = self.feed(self.first, one, two, w.started(2, window=4), self.win(2, b"x" * 20, 2))
        self.assertEqual(fold.ended, "seq_of_earlier_generation")

    def test_an_event_of_a_generation_that_has_not_started_stops_the_reader(self):
        for record in (self.chain(self.first, 1)[0], w.halted(1), w.started(2),
                       w.closed(1, 1, 1, b"p" * 20)):
            with self.assertRaises(Stop) as caught:
                self.feed(record)
            self.assertEqual(caught.exception.kind, "generation_never_started")
        self.feed(self.first)
        for record in (self.win(1, b"x" * 20, 2), w.started(3), w.halted(2)):
            with self.assertRaises(Stop):
                self.feed(record)

    def test_a_halt_voids_nothing(self):
        one, two = self.chain(self.first, 2)
        fold = self.feed(self.first, one, w.halted(1), two)
        self.assertEqual((fold.halted, fold.seq, fold.ended), (True, 2, None))
        self.assertFalse(self.feed(w.started(2), w.halted(1)).halted)

    def test_after_the_close_nothing_applies_not_even_in_a_later_generation(self):
        close = w.closed(1, 1, 7, w.sha1(self.first))
        fold = self.feed(self.first, close)
        self.assertEqual((fold.closed_ms, fold.seq, fold.wins), (7, 1, 0))
        self.assertEqual(self.feed(self.win(2, w.sha1(close))).ended, "event_after_close")
        second = w.started(2)
        fold = self.feed(second, self.win(2, w.sha1(second), 2))
        self.assertEqual((fold.ended, fold.closed_ms, fold.wins), ("event_after_close", 7, 0))

    def test_what_breaks_a_promise_ends_the_generation(self):
        one = self.win(1, w.sha1(self.first))
        for cause, bad in (("unit_taken", self.win(2, w.sha1(one), user="v", unit=1)),
                           ("unit_beyond_stock", self.win(2, w.sha1(one), unit=6)),
                           ("unit_beyond_stock", w.won(1, "u", b"a" * 16, "", 2, 0, 1,
                                                       w.sha1(one)))):
            self.fold = Fold()
            fold = self.feed(self.first, one, bad)
            self.assertEqual((fold.ended, fold.wins), (cause, 1))
        self.fold = Fold()
        two = self.win(2, w.sha1(one))
        fold = self.feed(self.first, one, two, self.win(3, w.sha1(two)))
        self.assertEqual((fold.ended, fold.wins), ("user_over_limit", 2))

    def test_users_are_told_apart_byte_for_byte(self):
        self.first = w.started(1, w.definition(5))
        prev, names = self.first, ["alice", "Alice", "é", "e\u0301"]
        self.feed(self.first)
        for n, user in enumerate(names, 1):
            prev = self.win(n, w.sha1(prev), user=user)
            self.feed(prev)
        self.assertEqual(sorted(self.fold.by_user), sorted(names))

    def test_time_that_goes_back_and_wins_outside_the_hours_are_noted(self):
        first = w.started(1, w.definition(5, 2, 10, 20))
        one = self.win(1, w.sha1(first), time_ms=9)
        two = self.win(2, w.sha1(one), time_ms=19, user="v")
        three = self.win(3, w.sha1(two), time_ms=18)
        fold = self.feed(first, one, two, three, w.closed(1, 4, 21, w.sha1(three)))
        self.assertEqual([kind for kind, _ in fold.notes], ["won_outside_hours", "time_went_back"])
        self.assertEqual((fold.seq, fold.ended), (4, None))

    def test_a_log_read_in_pieces_gives_the_same_promises_at_every_seq(self):
        for seed in range(20):
            made, self.fold = w.World(stock=9, limit=2, recoveries=2, seed=seed), Fold()
            for record in made.log[w.FROM:]:
                if decode_event(record).sale != w.SALE:
                    continue
                fold = self.feed(record)
                self.assertEqual(sorted(fold.by_unit), list(range(1, fold.wins + 1)))
                self.assertLessEqual(fold.wins, 9)
                self.assertTrue(all(len(wins) <= 2 for wins in fold.by_user.values()))
            self.assertEqual(fold.wins, 9)

    def test_claims_are_found_by_their_one_spelling(self):
        fold = self.feed(self.first, *self.chain(self.first, 2))
        self.assertEqual(fold.win_of_claim(fold.by_seq[1].claim), fold.by_seq[1])
        for bad in (None, "", "1-2", "1-3-" + "02" * 16, "2-2-" + "02" * 16, "1-x-" + "02" * 16,
                    "01-2-" + "02" * 16, "1-0-" + "02" * 16, "1-2-" + "03" * 16, 7):
            self.assertIsNone(fold.win_of_claim(bad), bad)
