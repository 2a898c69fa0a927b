"""Synthetic sales for the tests: an encoder of their own, and all four witnesses on disk."""

import base64
import contextlib
import copy
import hashlib
import io
import json
import os
import random
import sqlite3
import tempfile

import oracle

SALE, LOG_ID, PARTITION, FROM = "drop", bytes(range(16)), 3, 5
L = hashlib.sha256(LOG_ID).hexdigest()[:12]
INDEX, CLAIMS = "dropgate-sales", "dropgate-claims"
WINDOW = 50
STARTED, HALTED, WON, CLOSED = 1, 2, 3, 4


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def number(field, n):
    return varint(field << 3) + varint(n) if n else b""


def fixed(field, n):
    return varint(field << 3 | 1) + n.to_bytes(8, "little")


def blob(field, data):
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data if data else b""


def head(kind, generation, sale=SALE, version=1):
    return number(1, version) + number(2, kind) + blob(3, sale) + number(4, generation)


def definition(stock, limit=1, opens=0, closes=0):
    return (number(1, stock) + number(2, limit) + number(3, opens) + number(4, closes))


def sale_created(what, sale=SALE, log_id=LOG_ID, partition=PARTITION, start=FROM):
    return (number(1, 1) + blob(2, sale) + blob(3, log_id) + number(4, partition)
            + number(5, start) + blob(6, what) + number(7, 1000) + blob(8, b"c" * 16))


def started(generation, what=b"", window=WINDOW, rule=1, sale=SALE, identity=b"i" * 16):
    script = blob(3, blob(1, "claim_unit") + blob(2, b"s" * 20))
    body = (blob(1, identity) + blob(2, b"n" * 16) + script + number(4, rule) + number(5, 1)
            + blob(6, what) + blob(7, "ops") + blob(8, "open") + number(9, window))
    return head(STARTED, generation, sale) + blob(13, body)


def halted(generation):
    return head(HALTED, generation) + blob(14, blob(1, "tip") + blob(2, "gateway"))


def won(generation, user, attempt, key, seq, unit, time_ms, prev, sale=SALE):
    return (head(WON, generation, sale) + blob(5, user) + blob(6, attempt) + blob(7, key)
            + fixed(8, seq) + fixed(9, unit) + fixed(10, time_ms) + blob(11, prev))


def closed(generation, seq, time_ms, prev):
    return (head(CLOSED, generation) + fixed(8, seq) + fixed(10, time_ms) + blob(11, prev))


def sha1(data):
    return hashlib.sha1(data).digest()


class World:
    """A correct sale. Tests change the witnesses (`log`, `told`, `redis`, `sale_row`, `orders`)
    and ask what the oracle finds."""

    def __init__(self, stock=6, limit=1, users=10, seed=0, recoveries=0, close=False):
        self.random = random.Random(seed)
        self.stock, self.limit = stock, limit
        self.what = definition(stock, limit)
        self.index = [sale_created(self.what, "other", start=0), sale_created(self.what),
                      sale_created(definition(1), start=0)]   # the first of a sale id counts
        # What comes before the pin, and other sales' records, are nobody's business.
        self.log = [won(1, "x", b"x" * 16, "", 1, 1, 1, b"p" * 20, "other")] * FROM
        self.told, self.wins = [], []
        self.generation = self.seq = self.time_ms = 0
        self.closed_ms = None
        self.start()
        names = [f"user-{n}" for n in range(users)]
        breaks = {(n + 1) * stock // (recoveries + 1) for n in range(recoveries)}
        for user in names * limit:
            if self.random.random() < 0.2:
                self.log.append(won(1, user, b"o" * 16, "", 1, 1, 1, b"p" * 20, "other"))
            if len(self.wins) == stock:
                self.say(user, f"key-{limit}", "sold_out", 409)
                continue
            if len(self.wins) in breaks:
                breaks.discard(len(self.wins))
                self.lose_and_recover()
            self.win(user)
        if close:
            self.time_ms += 1
            event = closed(self.generation, self.seq + 1, self.time_ms, self.chain)
            self.append(event)
            self.closed_ms, self.seq = self.time_ms, self.seq + 1
            self.say("late", "k", "closed", 403)
        if recoveries:
            self.say("nobody", "k", "sold_out", 409)
        self.mirror()

    def start(self):
        self.generation += 1
        self.log.append(started(self.generation, self.what if self.generation == 1 else b""))
        self.chain = sha1(self.log[-1])

    def append(self, event):
        self.log.append(event)
        self.chain = sha1(event)
        if self.random.random() < 0.2:
            self.log.append(event)   # published twice

    def win(self, user):
        number_of = sum(win["user_id"] == user for win in self.wins)
        key = f"key-{number_of}"
        self.seq, self.time_ms = self.seq + 1, self.time_ms + self.random.randrange(3)
        attempt, unit = self.random.randbytes(16), len(self.wins) + 1
        event = won(self.generation, user, attempt, key, self.seq, unit, self.time_ms, self.chain)
        self.append(event)
        claim = f"{self.generation}-{self.seq}-{attempt.hex()}"
        self.wins.append({"unit": unit, "claim_id": claim, "user_id": user, "attempt": attempt,
                          "idem_key": key, "generation": self.generation, "seq": self.seq,
                          "status": "won", "won_ms": self.time_ms})
        if self.random.random() < 0.2:
            self.say(user, key, "pending", 202, claim)
        self.say(user, key, "won", 201, claim, unit)
        if self.random.random() < 0.3:
            self.say(user, key, "again", 200, claim, unit)

    def lose_and_recover(self):
        """Redis loses the last win and gives its seq to another user; a new generation follows."""
        lost = won(self.generation, "nobody", b"v" * 16, "", self.seq, 1, self.time_ms, b"q" * 20)
        self.void_claim = f"{self.generation}-{self.seq}-{(b'v' * 16).hex()}"
        self.log.append(lost)
        self.say("nobody", "k", "void", 503, self.void_claim)
        self.log.append(halted(self.generation))
        self.start()

    def say(self, user, key, status, http, claim=None, unit=None):
        self.told.append({"sale": SALE, "user": user, "key": key, "attempt_no": 1,
                          "status": status, "http": http, "claim": claim, "unit": unit,
                          "intended_ms": len(self.told), "done_ms": len(self.told) + 5.5,
                          "gateway": 0})

    def mirror(self):
        """Redis and the database, as they must be by the wins."""
        self.redis = {"current": f"{L}:{self.generation}", "claims": {}, "state": {
            "stock": str(self.stock).encode(), "next": str(len(self.wins) + 1).encode(),
            "seq": str(self.seq).encode(), "head": self.chain, "window": str(WINDOW).encode(),
            "limit": str(self.limit).encode(), "opens": b"0", "closes": b"0",
            "st": b"open" if self.closed_ms is None else b"closed",
            "time": str(self.time_ms).encode()}}
        for win in self.wins:
            self.redis["claims"].setdefault(win["user_id"], []).append(
                [win["seq"], win["unit"], win["attempt"], win["idem_key"]])
        self.orders = copy.deepcopy(self.wins)
        self.sale_row = {
            "log_id": LOG_ID, "part": PARTITION, "from_offset": FROM,
            "generation": self.generation, "seq": self.seq, "chain": self.chain,
            "state": "open" if self.closed_ms is None else "closed", "stock": self.stock,
            "sold": len(self.wins), "held": 0, "opened_ms": 1, "closed_ms": self.closed_ms}

    # --- on disk

    def redis_bytes(self):
        """{user: value} of the claims hash; a value that a test set as bytes stays as it is."""
        def value(found):
            return found if isinstance(found, bytes) else b"".join(
                seq.to_bytes(8, "little") + unit.to_bytes(8, "little") + attempt
                + bytes([len(key)]) + key.encode() for seq, unit, attempt, key in found)
        return {user: value(found) for user, found in self.redis["claims"].items()}

    def dump_lines(self):
        offsets = getattr(self, "offsets", None) or range(len(self.log))
        for topic, place, numbered in ((CLAIMS, PARTITION, zip(offsets, self.log)),
                                       (INDEX, 0, enumerate(self.index))):
            for offset, value in numbered:
                yield {"topic": topic, "partition": place, "offset": offset,
                       "value": base64.b64encode(value).decode()}

    def write_sqlite(self, path):
        db = sqlite3.connect(path)
        sale = {"sale_id": SALE, **self.sale_row} if self.sale_row else {}
        for table, rows, columns in (
                ("sales", [sale] if sale else [], "sale_id log_id part from_offset generation seq "
                 "chain state stock sold held opened_ms closed_ms"),
                ("orders", [{"sale_id": SALE, **order} for order in self.orders],
                 "sale_id unit claim_id user_id attempt idem_key generation seq status won_ms")):
            names = columns.split()
            db.execute(f"CREATE TABLE {table} ({', '.join(names)})")
            db.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})",
                           [[row[name] for name in names] for row in rows])
        db.commit()
        db.close()

    def write(self, folder):
        """Writes all witnesses; returns the oracle's arguments."""
        paths = {name: os.path.join(folder, name) for name in
                 ("dump.jsonl", "told.jsonl", "redis.json", "sales.db", "out.json")}
        for name, found in (("dump.jsonl", self.dump_lines()), ("told.jsonl", self.told)):
            with open(paths[name], "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in found)
        text = {name: base64.b64encode(value).decode()
                for name, value in self.redis["state"].items()}
        claims = {user: base64.b64encode(value).decode()
                  for user, value in self.redis_bytes().items()}
        with open(paths["redis.json"], "w", encoding="utf-8") as file:
            json.dump({"current": self.redis["current"], "state": text, "claims": claims}, file)
        self.write_sqlite(paths["sales.db"])
        return ["--sale", SALE, "--log", paths["dump.jsonl"], "--told", paths["told.jsonl"],
                "--redis-dump", paths["redis.json"], "--sql", "sqlite:" + paths["sales.db"],
                "--json", paths["out.json"]]

    def judge(self, *more):
        """Runs the oracle as a user would. Returns (exit code, kinds of violations, output)."""
        with tempfile.TemporaryDirectory() as folder:
            return run(self.write(folder) + list(more), os.path.join(folder, "out.json"))


def run(args, json_path=None):
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = oracle.main(args)
    kinds = set()
    if json_path and os.path.exists(json_path):
        with open(json_path, encoding="utf-8") as file:
            found = json.load(file)
        kinds = {v["kind"] for check in found["checks"] for v in check["violations"]}
        assert found["holds"] == (not kinds) == (code == 0), found
    return code, kinds, out.getvalue() + err.getvalue()
