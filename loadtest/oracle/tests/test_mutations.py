"""Any single change of any witness of a correct sale is reported; or it says the same thing."""

import os
import random
import unittest

from messages import decode_event
from protobuf import Refused
from tests import world as w

ROUNDS = int(os.environ.get("ORACLE_MUTATIONS", "600"))


def applied_records(world):
    """The places in the log of the records whose bytes decide: starts and applied events.

    Other records are judged by nobody: copies of an applied event (see below), events of a
    generation that ended, halts, what other sales say.
    """
    applied = {win["claim_id"] for win in world.wins}
    seen, places = set(), []
    for place, record in enumerate(world.log):
        event = decode_event(record)
        claim = f"{event.generation}-{event.seq}-{event.attempt}"
        if place < w.FROM or event.sale != w.SALE or record in seen:
            continue
        if event.kind in ("started", "closed") or claim in applied:
            seen.add(record)
            places.append(place)
    return places


def replace(world, place, record):
    """With its copies: an intact copy of what became another sale's record stands in for it."""
    old = world.log[place]
    world.log = world.log[:place] + [record] + [r for r in world.log[place + 1:] if r != old]


def flip_a_bit_of_the_log(world, rng):
    place = rng.choice(applied_records(world))
    replace(world, place, changed(world.log[place], rng))


def cut_a_record(world, rng):
    place = rng.choice(applied_records(world))
    replace(world, place, world.log[place][:rng.randrange(len(world.log[place]))])


def lose_a_record(world, rng):
    """With its copies: what is left is a log in which it never was."""
    lost = world.log[rng.choice(applied_records(world))]
    world.log = [record for record in world.log if record != lost]


def lose_an_offset(world, rng):
    place = rng.randrange(w.FROM, len(world.log) - 1)
    world.offsets = [n for n in range(len(world.log)) if n != place]
    del world.log[place]


def forge_an_event(world, rng):
    """In the living generation, in any place after its start, with any seq."""
    last = max(place for place, record in enumerate(world.log)
               if decode_event(record).kind == "started" and decode_event(record).sale == w.SALE)
    forged = w.won(world.generation, rng.choice(["user-1", "ghost"]), rng.randbytes(16), "",
                   rng.randrange(1, world.seq + 3), rng.randrange(1, world.stock + 3),
                   world.time_ms, rng.choice([world.chain, rng.randbytes(20)]))
    world.log.insert(rng.randrange(last + 1, len(world.log) + 1), forged)


def change_the_pin(world, rng):
    """The two fields for people (created_ms, attempt) decide nothing."""
    rest = {"what": world.what, "log_id": w.LOG_ID, "partition": w.PARTITION, "start": w.FROM}
    rest.update(rng.choice([
        {"what": w.definition(world.stock + 1, world.limit)}, {"log_id": rng.randbytes(16)},
        {"what": w.definition(world.stock, world.limit + 1)}, {"partition": 1},
        {"start": w.FROM - 1}, {"what": w.definition(world.stock, world.limit, 1)}]))
    world.index[1] = w.sale_created(**rest)


def lose_the_pin(world, rng):
    del world.index[1]


def change_a_column(world, rng):
    order = rng.choice(world.orders)
    name = rng.choice([name for name in order])
    order[name] = changed(order[name], rng)


def change_the_sale_row(world, rng):
    name = rng.choice([name for name in world.sale_row if name != "opened_ms"])
    world.sale_row[name] = changed(world.sale_row[name], rng)


def changed(value, rng):
    if isinstance(value, bytes):
        place = rng.randrange(len(value))
        return value[:place] + bytes([value[place] ^ 1 << rng.randrange(8)]) + value[place + 1:]
    if isinstance(value, int):
        return value + rng.choice([-1, 1, 2**32, 2**53])
    return 1 if value is None else value + rng.choice(" x")


def lose_a_row(world, rng):
    world.orders.remove(rng.choice(world.orders))


def swap_two_users_rows(world, rng):
    first, second = rng.sample(world.orders, 2)
    name = rng.choice(["unit", "claim_id", "attempt", "seq"])
    first[name], second[name] = second[name], first[name]


def double_a_row(world, rng):
    row = dict(rng.choice(world.orders))
    row.update(rng.choice([{}, {"unit": world.stock}, {"unit": world.stock + 1},
                           {"user_id": "ghost"}]))
    world.orders.append(row)


def flip_a_bit_of_a_claim(world, rng):
    values = world.redis_bytes()
    user = rng.choice(sorted(values))
    world.redis["claims"][user] = changed(values[user], rng)


def lose_a_claim(world, rng):
    del world.redis["claims"][rng.choice(sorted(world.redis["claims"]))]


def add_a_claim(world, rng):
    world.redis["claims"].setdefault(rng.choice(["user-1", "ghost"]), []).append(
        [world.seq + rng.randrange(2), rng.randrange(1, world.stock + 2), b"z" * 16, ""])


def swap_the_users_of_two_claims(world, rng):
    claims = world.redis["claims"]
    first, second = rng.sample(sorted(claims), 2)
    claims[first], claims[second] = claims[second], claims[first]


def change_the_state(world, rng):
    state = world.redis["state"]
    name = rng.choice(sorted(state))
    # A clock that is ahead of the last event is right: time goes on.
    state[name] = rng.choice([b"", b"x" if name == "time" else changed(state[name], rng)])


def change_the_current_generation(world, rng):
    world.redis["current"] = rng.choice([None, changed(world.redis["current"], rng)])


def win_told(world, rng):
    return rng.choice([line for line in world.told if line["status"] in ("won", "again")])


def change_a_told_win(world, rng):
    line = win_told(world, rng)
    name = rng.choice(["unit", "claim", "user"])
    line[name] = rng.choice([None, changed(line[name], rng)]) if name != "user" else "ghost"


def deny_a_told_win(world, rng):
    win_told(world, rng)["status"] = rng.choice(["sold_out", "closed"])


def forget_a_winner(world, rng):
    """All that they were told: one answer of several is missed by nobody."""
    user = win_told(world, rng)["user"]
    world.told = [line for line in world.told if line["user"] != user]


def tell_a_loser_that_they_won(world, rng):
    line = rng.choice([line for line in world.told if line["status"] == "sold_out"])
    won = win_told(world, rng)
    line.update(status="won", unit=rng.choice([won["unit"], world.stock + 1]),
                claim=rng.choice([won["claim"], f"1-{world.seq}-" + "00" * 16, None]))


MUTATIONS = [flip_a_bit_of_the_log, cut_a_record, lose_a_record, lose_an_offset, forge_an_event,
             change_the_pin, lose_the_pin, change_a_column, change_the_sale_row, lose_a_row,
             swap_two_users_rows, double_a_row, flip_a_bit_of_a_claim, lose_a_claim, add_a_claim,
             swap_the_users_of_two_claims, change_the_state, change_the_current_generation,
             change_a_told_win, deny_a_told_win, forget_a_winner, tell_a_loser_that_they_won]


def shape(rng):
    return rng.choice([{}, {"recoveries": 1}, {"recoveries": 2, "close": True}, {"close": True},
                       {"stock": 3}])


class Mutations(unittest.TestCase):
    def test_every_single_change_is_reported(self):
        for n in range(ROUNDS):
            rng, mutate = random.Random(n), MUTATIONS[n % len(MUTATIONS)]
            world = w.World(seed=n, **shape(rng))
            mutate(world, rng)
            code, kinds, out = world.judge("--complete")
            self.assertEqual((code, bool(kinds)), (1, True), f"{n} {mutate.__name__}\n{out}")

    def test_the_changes_that_say_the_same_thing_are_not_reported(self):
        def copy_of_an_event(world, rng):      # published again, at any later time
            place = rng.choice(applied_records(world))
            world.log.insert(rng.randrange(place + 1, len(world.log) + 1), world.log[place])

        def last_copies(world, rng):           # a record again, as the log's last
            world.log.append(world.log[rng.randrange(w.FROM, len(world.log))])

        def words_for_people(world, rng):      # of the index: who made it, and when
            world.index[1] = world.index[1].replace(b"c" * 16, rng.randbytes(16))

        def another_halt(world, rng):          # stops claims, voids nothing
            world.log.append(w.halted(world.generation))

        def a_void_event(world, rng):          # of a generation that is over
            world.log.append(w.won(world.generation - 1, "ghost", b"g" * 16, "", 99, 1, 1,
                                   b"p" * 20))

        def won_said_as_again(world, rng):     # 201 or 200: the same claim
            win_told(world, rng)["status"] = rng.choice(["won", "again"])

        def another_key_of_a_winner(world, rng):   # with a limit of 1 any repeat is the win's
            win_told(world, rng)["key"] = "another"

        def one_of_several_answers(world, rng):    # another one says the same
            line = dict(win_told(world, rng))
            world.told.append({**line, "status": "again"})
            world.told.remove(line)

        def a_loser_who_is_not_told_of(world, rng):
            world.told.remove(rng.choice([line for line in world.told
                                          if line["status"] == "sold_out"
                                          and line["user"] != "nobody"]))

        same = [copy_of_an_event, last_copies, words_for_people, another_halt, a_void_event,
                won_said_as_again, another_key_of_a_winner, one_of_several_answers,
                a_loser_who_is_not_told_of]
        for n in range(ROUNDS // 4):
            rng, change = random.Random(n), same[n % len(same)]
            world = w.World(seed=n, recoveries=1, close=n % 2 == 0)
            change(world, rng)
            code, kinds, out = world.judge("--complete")
            self.assertEqual((code, kinds), (0, set()), f"{n} {change.__name__}\n{out}")

    def test_no_bytes_make_the_reader_fail_otherwise_than_by_name(self):
        rng = random.Random(1)
        records = w.World(recoveries=1, close=True).log
        for _ in range(20 * ROUNDS):
            record = bytearray(rng.choice(records))
            for _ in range(rng.randrange(1, 4)):
                record[rng.randrange(len(record))] = rng.randrange(256)
            try:
                decode_event(bytes(record))
            except Refused:
                pass
