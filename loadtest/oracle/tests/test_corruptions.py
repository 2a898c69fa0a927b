"""A correct sale passes; every planted corruption is found, by its name."""

import unittest

from tests import world as w


def told_of(world, status, nth=0):
    return [line for line in world.told if line["status"] == status][nth]


class Corruptions(unittest.TestCase):
    def setUp(self):
        self.world = w.World(seed=4)

    def found(self, *kinds, world=None, more=("--complete",)):
        """The oracle says exactly these kinds, and exits with 1."""
        code, found, out = (world or self.world).judge(*more)
        self.assertEqual((found, code), (set(kinds), 1), out)

    def holds(self, world=None, more=("--complete",)):
        code, found, out = (world or self.world).judge(*more)
        self.assertEqual((code, found), (0, set()), out)
        return out

    # --- what is right

    def test_a_correct_sale_passes_whatever_its_shape(self):
        for seed in range(8):
            for shape in ({}, {"recoveries": 2}, {"stock": 15, "limit": 2}, {"close": True},
                          {"stock": 0}, {"stock": 1}, {"stock": 30}, {"stock": 10},
                          {"stock": 15, "limit": 2, "recoveries": 3, "close": True}):
                self.holds(w.World(seed=seed, **shape))

    def test_the_table_shows_the_numbers(self):
        out = self.holds()
        for text in ("stock 6, units log 6, units database 6, units Redis 6, units told 6",
                     "sold 6", "told_sold_out 4", "all that was checked holds"):
            self.assertIn(text, out)

    def test_a_sale_that_is_not_open_yet_passes(self):
        world = w.World(stock=5, users=0)
        world.log, world.sale_row = world.log[:w.FROM], None
        world.redis = {"current": None, "state": {}, "claims": {}}
        self.holds(world)

    def test_records_of_other_sales_are_nobodys_business(self):
        self.world.log.insert(8, w.number(1, 2) + w.blob(3, "other"))   # of another version, too
        self.holds()

    def test_records_that_name_the_sale_before_its_pin_are_counted_and_never_applied(self):
        self.world.log[2] = w.won(9, "x", b"x" * 16, "", 1, 1, 1, b"p" * 20)
        self.assertIn("unpinned 1", self.holds())

    # --- the six kinds of the plan

    def test_missing_row(self):
        del self.world.orders[2]
        self.found("missing_row", "sold_is_not_orders", "told_winner_without_row")

    def test_extra_row(self):
        self.world.orders.append({**self.world.orders[0], "unit": 7, "user_id": "ghost", "seq": 7,
                                  "claim_id": "1-7-" + "00" * 16})
        self.found("extra_row", "oversold", "sold_is_not_orders")

    def test_extra_row_of_a_unit_that_is_free(self):
        self.world = w.World(stock=30)
        self.world.orders.append({**self.world.orders[0], "unit": 12, "user_id": "ghost",
                                  "seq": 12, "claim_id": "1-12-" + "00" * 16})
        self.found("extra_row", "sold_is_not_orders")

    def test_changed_user(self):
        self.world.orders[3]["user_id"] = "ghost"
        self.found("changed_user")

    def test_a_user_of_another_case_is_another_user(self):
        self.world.orders[3]["user_id"] = self.world.orders[3]["user_id"].upper()
        self.found("changed_user")

    def test_changed_unit(self):
        first, second = self.world.orders[:2]
        first["unit"], second["unit"] = second["unit"], first["unit"]
        self.found("changed_unit")

    def test_told_winner_absent_from_log(self):
        self.world = w.World(stock=30)
        self.world.say("ghost", "k", "won", 201, "1-11-" + "00" * 16, 11)
        self.found("told_winner_absent_from_log")

    def test_redis_claim_missing(self):
        del self.world.redis["claims"]["user-2"]
        self.found("redis_claim_missing", "told_winner_without_redis_claim")

    # --- never oversell, per-user limit

    def test_an_event_beyond_the_stock(self):
        world = self.world
        event = w.won(1, "user-8", b"z" * 16, "", 7, 7, world.time_ms, world.chain)
        world.log.append(event)
        self.found("oversold", "unit_beyond_stock")
        world.log.append(w.started(2))   # a recovery does not make it good
        self.assertIn("oversold", world.judge()[1])

    def test_an_event_that_sells_a_unit_twice(self):
        self.world = w.World(stock=30)
        self.world.log.append(w.won(1, "user-8", b"z" * 16, "", 11, 3, 99, self.world.chain))
        self.found("unit_sold_twice", "unit_taken")

    def test_an_event_that_gives_a_user_a_second_unit(self):
        self.world = w.World(stock=30)
        self.world.log.append(w.won(1, "user-8", b"z" * 16, "", 11, 11, 99, self.world.chain))
        self.found("user_over_limit")

    def test_a_unit_with_two_owners_in_the_database(self):
        self.world.orders.append({**self.world.orders[0], "user_id": "ghost",
                                  "claim_id": "1-9-" + "00" * 16})
        self.found("unit_sold_twice", "row_twice", "changed_user", "changed_claim",
                   "sold_is_not_orders")

    def test_a_user_with_two_units_in_redis(self):
        self.world = w.World(stock=30)
        self.world.redis["claims"]["user-1"].append([11, 11, b"z" * 16, ""])
        self.found("user_over_limit", "redis_claim_extra")

    def test_two_users_told_one_unit(self):
        told_of(self.world, "sold_out").update(status="won", http=201, unit=1,
                                               claim="1-1-" + "00" * 16)
        self.found("unit_sold_twice", "told_winner_absent_from_log")

    # --- a told win is never lost

    def test_the_end_of_the_log_is_lost(self):
        while b"user-5" in self.world.log[-1] or b"other" in self.world.log[-1]:
            del self.world.log[-1]
        code, kinds, _ = self.world.judge()
        self.assertEqual(code, 1)
        self.assertLessEqual({"told_winner_absent_from_log", "extra_row", "redis_claim_extra",
                              "position_differs", "redis_seq_differs", "undersold"}, kinds)

    def test_a_void_event_told_as_won(self):
        self.world = w.World(recoveries=1)
        line = told_of(self.world, "void")
        line.update(status="won", http=201, unit=1)
        self.world.told[-1:] = []
        self.found("told_winner_void", "unit_sold_twice")

    def test_an_applied_event_told_as_void(self):
        line = told_of(self.world, "won")
        self.world.say(line["user"], line["key"], "void", 503, line["claim"])
        self.found("told_void_but_applied", "told_void_owns_win", "last_answer_not_final")

    def test_a_winner_told_sold_out_or_closed(self):
        for status in ("sold_out", "closed"):
            self.world = w.World()
            self.world.say("user-2", "another", status, 409)
            self.found(f"told_{status}_owns_win")

    def test_a_refusal_is_known_by_its_code(self):
        self.world.say("user-2", "k", "refused", 403)
        self.holds()
        self.world.told[-1]["code"] = "closed"
        self.found("told_closed_owns_win")

    def test_a_winner_told_sold_out_first(self):
        self.world.say("user-2", "k", "sold_out", 409)
        self.world.told[-1]["done_ms"] = -1
        self.found("told_sold_out_owns_win")

    def test_above_a_limit_of_one_the_keys_tell_claims_apart(self):
        self.world = w.World(stock=15, limit=2)
        self.world.say("user-1", "key-7", "sold_out", 409)
        self.holds()
        self.world.say("user-1", "key-1", "sold_out", 409)
        self.found("told_sold_out_owns_win")
        self.world.told.pop()
        self.world.say("user-1", "", "sold_out", 409)
        self.found("told_sold_out_owns_win")

    def test_a_repeat_that_is_told_another_claim(self):
        self.world = w.World(stock=15, limit=2)
        first, second = [win for win in self.world.wins if win["user_id"] == "user-1"]
        self.world.say("user-1", second["idem_key"], "again", 200, first["claim_id"],
                       first["unit"])
        self.found("told_claim_of_another_key", "told_two_claims")

    def test_a_claim_without_a_key_is_the_users_first(self):
        self.world = w.World(stock=15, limit=2)
        first, second = [win for win in self.world.wins if win["user_id"] == "user-1"]
        self.world.say("user-1", "", "again", 200, first["claim_id"], first["unit"])
        self.holds()
        self.world.told[-1].update(claim=second["claim_id"], unit=second["unit"])
        self.found("told_claim_of_another_key")

    def test_a_winner_told_the_unit_or_the_claim_of_another(self):
        line = told_of(self.world, "won")
        line["unit"] = 7
        self.assertLessEqual({"told_another_unit", "oversold"}, self.world.judge()[1])
        self.world = w.World()
        other = told_of(self.world, "won", 1)
        told_of(self.world, "sold_out").update(status="again", http=200, claim=other["claim"],
                                               unit=other["unit"])
        self.found("told_claim_of_another", "unit_sold_twice")

    def test_a_win_told_without_a_claim(self):
        told_of(self.world, "sold_out").update(status="won", http=201)
        self.found("told_win_without_claim")

    def test_the_limit_told_to_one_who_has_not_reached_it(self):
        self.world = w.World(stock=15, limit=2)
        self.world.say("user-1", "key-9", "limit_reached", 409)
        self.holds()
        self.world.say("user-9", "key-9", "limit_reached", 409)
        self.found("told_limit_without_wins")

    # --- never undersell

    def test_sold_out_told_while_a_unit_is_free(self):
        self.world = w.World(stock=30)
        self.world.say("late", "k", "sold_out", 409)
        self.found("undersold")

    def test_a_unit_that_redis_gave_to_nobody(self):
        self.world = w.World(stock=30)
        self.world.redis["state"]["next"] = b"12"
        self.found("redis_next_differs")

    # --- every last answer is final

    def test_answers_that_are_not_final(self):
        self.world.say("user-9", "k", "pending", 202, "1-9-" + "00" * 16)
        self.world.say("user-8", "k", "error", 0)
        self.found("last_answer_not_final")
        self.assertIn("pending 1, errors 1", self.holds(more=()))

    def test_the_last_answer_is_the_last_in_time(self):
        self.world.say("user-9", "k", "pending", 202)
        self.world.told[-1]["done_ms"] = -1
        self.holds()

    def test_other_refusals_are_final(self):
        self.world.say("u1", "k", "not_open", 403)
        self.world.say("u2", "k", "refused", 401)
        self.holds()

    def test_a_winner_who_never_asked(self):
        self.world.told = [line for line in self.world.told if line["user"] != "user-2"]
        self.found("winner_who_never_asked")
        self.assertIn("never_told 1", self.holds(more=()))

    # --- books

    def test_the_row_of_the_sale(self):
        for change, kinds in (({"seq": 5}, {"position_differs"}),
                              ({"generation": 2}, {"position_differs"}),
                              ({"chain": b"c" * 20}, {"position_differs"}),
                              ({"sold": 5}, {"changed_sold", "sold_is_not_orders"}),
                              ({"held": 1}, {"changed_held"}), ({"stock": 7}, {"changed_stock"}),
                              ({"state": "closed"}, {"changed_state"}),
                              ({"part": 2}, {"changed_part"}), ({"closed_ms": 1},
                                                               {"changed_closed_ms"}),
                              ({"from_offset": 0}, {"changed_from_offset"}),
                              ({"log_id": b"x" * 16}, {"wrong_log_id"})):
            self.world = w.World()
            self.world.sale_row.update(change)
            self.found(*kinds)
        self.world.sale_row = None
        self.found("sale_row_missing")

    def test_the_columns_of_a_row(self):
        for column, value, kind in (("attempt", b"y" * 16, "changed_attempt"),
                                    ("idem_key", "y", "changed_key"), ("seq", 99, "changed_seq"),
                                    ("generation", 2, "changed_generation"),
                                    ("status", "held", "changed_status"),
                                    ("won_ms", 99, "changed_won_ms")):
            self.world = w.World()
            self.world.orders[1][column] = value
            self.found(kind)
        self.world = w.World()
        self.world.orders[1]["claim_id"] = "1-2-" + "00" * 16
        self.found("changed_claim")

    def test_the_entries_of_redis(self):
        for place, value, kinds in ((0, 99, {"redis_claim_extra", "redis_claim_missing"}),
                                    (1, 1, {"redis_changed_unit", "unit_sold_twice"}),
                                    (2, b"y" * 16, {"redis_changed_attempt"}),
                                    (3, "y", {"redis_changed_key"})):
            self.world = w.World(stock=30)
            self.world.redis["claims"]["user-3"][0][place] = value
            _, found, _ = self.world.judge()
            self.assertLessEqual(kinds, found)
        self.world = w.World()
        self.world.redis["claims"]["ghost"] = self.world.redis["claims"].pop("user-3")
        self.found("redis_changed_user")
        self.world.redis["claims"]["user-3"] = self.world.redis["claims"]["ghost"]
        self.found("redis_changed_user", "redis_claim_twice", "unit_sold_twice")

    def test_values_of_redis_that_cannot_be_read(self):
        value = self.world.redis_bytes()["user-3"]
        for bad in (b"", value[:-1], value + b"x", b"x" * 32):
            self.world.redis["claims"]["user-3"] = bad
            self.found("redis_claim_malformed", "redis_claim_missing",
                       "told_winner_without_redis_claim")

    def test_the_state_in_redis(self):
        for name, value, kind in (("seq", b"5", "redis_seq_differs"),
                                  ("stock", b"7", "redis_stock_differs"),
                                  ("window", b"51", "redis_window_differs"),
                                  ("limit", b"2", "redis_limit_differs"),
                                  ("opens", b"1", "redis_opens_differs"),
                                  ("closes", b"1", "redis_closes_differs"),
                                  ("st", b"closed", "redis_st_differs"),
                                  ("time", b"0", "redis_time_behind"),
                                  ("head", b"h" * 20, "redis_head_differs")):
            self.world = w.World()
            self.world.redis["state"][name] = value
            self.found(kind)
            del self.world.redis["state"][name]
            self.found(kind)

    def test_redis_at_another_generation_or_another_log_or_empty(self):
        self.world.redis["current"] = f"{w.L}:2"
        self.found("redis_generation_differs")
        self.world.redis["current"] = "0123456789ab:1"
        self.found("wrong_log_id")
        self.world.redis = {"current": None, "state": {}, "claims": {}}
        self.found("redis_sale_missing", "redis_claim_missing", "told_winner_without_redis_claim")

    def test_the_log_was_made_anew(self):
        self.world.index[1] = w.sale_created(self.world.what, log_id=b"n" * 16)
        self.found("wrong_log_id")

    # --- the log itself

    def stopped(self, kind):
        code, kinds, out = self.world.judge()
        self.assertEqual((code, kind in kinds), (1, True), out)

    def test_records_that_cannot_be_read(self):
        for kind, record in (("truncated_record", self.world.log[6][:-1]),
                             ("unknown_version", w.head(3, 1, version=2)),
                             ("unknown_kind", w.head(5, 1)),
                             ("unknown_field", w.halted(1) + w.number(16, 1)),
                             ("malformed_record", b"\xff" * 11), ("missing_field", b"")):
            self.world = w.World()
            self.world.log.insert(7, record)
            self.stopped(kind)

    def test_an_index_that_cannot_be_read(self):
        self.world.index.insert(0, self.world.index[0][:-1])
        self.stopped("truncated_record")
        self.world.index[0] = w.number(1, 2) + w.blob(2, "other")
        self.holds()
        self.world.index = self.world.index[:2]
        self.found("sale_not_in_index", "told_winner_absent_from_log", "extra_row",
                   "redis_claim_extra", "oversold", "user_over_limit", "sale_row_extra",
                   "wrong_log_id", "redis_generation_differs")

    def test_a_gap_in_the_offsets(self):
        self.world.offsets = [n + (n > 7) for n in range(len(self.world.log))]
        self.stopped("offset_gap")
        self.world.offsets = [n - (n > 7) for n in range(len(self.world.log))]
        self.stopped("offset_gap")

    def test_a_log_that_begins_after_the_pin(self):
        self.world.log = self.world.log[w.FROM + 1:]
        self.world.offsets = range(w.FROM + 1, w.FROM + 1 + len(self.world.log))
        self.stopped("log_begins_after_pin")

    def test_a_broken_chain(self):
        self.world = w.World(stock=30)
        self.world.log.append(w.won(1, "u", b"a" * 16, "", 11, 11, 99, b"p" * 20))
        self.found("broken_chain")

    def test_an_ended_generation_that_was_recovered_is_counted_and_no_violation(self):
        out = self.holds(w.World(recoveries=2))
        self.assertIn("generations 3", out)
        self.assertIn("generations_ended 2", out)

    def test_an_event_that_never_came(self):
        self.world = w.World(stock=30)
        self.world.log.append(w.won(1, "u", b"a" * 16, "", 12, 12, 99, b"p" * 20))
        self.found("event_missing")

    def test_a_generation_that_never_started(self):
        self.world.log.append(w.won(2, "u", b"a" * 16, "", 7, 7, 99, b"p" * 20))
        self.stopped("generation_never_started")

    def test_another_definition_in_the_log_than_in_the_index(self):
        self.world.index[1] = w.sale_created(w.definition(7))
        self.found("definition_differs")

    def test_records_of_the_sale_in_another_partition_are_not_applied(self):
        self.world.index[1] = w.sale_created(self.world.what, partition=2)
        code, kinds, out = self.world.judge()
        self.assertIn("told_winner_absent_from_log", kinds)
        self.assertRegex(out, r"records 0, .*unpinned [1-9]")
