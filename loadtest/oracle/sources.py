"""The four witnesses: the dump of the log, what clients were told, Redis, and the database."""

import base64
import hashlib
import json
import os
import socket
import sqlite3
import subprocess
from typing import Dict, NamedTuple, Optional, Tuple
from urllib.parse import quote, unquote, urlsplit

from fold import Fold, Stop
from messages import Event, Pin, decode_event, decode_sale_created, named_sale
from protobuf import Refused

INDEX, CLAIMS = "dropgate-sales", "dropgate-claims"
IO_SECONDS_MAX = 30


class CannotRead(Exception):
    """An input that is not there or not what it should be. Holds no password."""


# --- the log

def lines(path):
    """Every line of a JSON-lines file as (line number, object)."""
    try:
        with open(path, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                found = json.loads(line)
                if not isinstance(found, dict):
                    raise ValueError("not an object")
                yield number, found
    except (OSError, ValueError) as error:
        raise CannotRead(f"{path}: {error}") from None


def records(path):
    """Every record of the dump as (topic, partition, offset, bytes)."""
    for line, found in lines(path):
        try:
            offset, value = found["offset"], base64.b64decode(found["value"], validate=True)
            if type(offset) is not int:
                raise TypeError("the offset is not a number")
            yield found["topic"], found["partition"], offset, value
        except (KeyError, TypeError, ValueError) as error:
            raise CannotRead(f"{path}, line {line}: {error!r}") from None


def partition(path, topic, number):
    """The records of one partition as (offset, bytes). Raises Stop where an offset is missing."""
    last = None
    for named, found, offset, value in records(path):
        if (named, found) == (topic, number):
            if last is not None and offset != last + 1:
                raise Stop("offset_gap", f"{topic} {number}: offset {offset} follows {last}")
            last = offset
            yield offset, value


class Log(NamedTuple):
    """What the dump says about the sale."""
    pin: Optional[Pin]
    fold: Fold
    stop: Optional[Stop]        # why it could not be read to its end
    records: int                # of the sale, from its pin on
    unpinned: int               # records that name the sale where it is not pinned: never applied


def read_log(path, sale):
    """Finds the sale's pin in the index, then folds its partition from there."""
    pin, fold, stop, count, unpinned = None, Fold(), None, 0, 0
    try:
        pin = find_pin(path, sale)
        if pin is None:
            return Log(pin, fold, stop, count, sum(named_elsewhere(path, sale, None)))
        unpinned = sum(named_elsewhere(path, sale, pin.partition))
        first = None
        for offset, value in partition(path, CLAIMS, pin.partition):
            if first is None and offset > pin.from_offset:
                raise Stop("log_begins_after_pin", f"the dump begins at offset {offset}, the "
                           f"sale's pin is {pin.from_offset}")
            first = offset
            event = event_of(offset, value, sale) if offset >= pin.from_offset else None
            if event:
                count += 1
                fold.feed(offset, event, value)
            elif offset < pin.from_offset:
                unpinned += named_sale(value, 3) == sale
    except Stop as found:
        stop = found
    return Log(pin, fold, stop, count, unpinned)


def find_pin(path, sale):
    """The first record of the index that names the sale."""
    for offset, value in partition(path, INDEX, 0):
        try:
            named, pin = decode_sale_created(value)
        except Refused as refused:
            if named_sale(value, 2) in (None, sale):
                raise Stop(refused.kind, f"{INDEX} offset {offset}: {refused.detail}") from None
            continue
        if named == sale:
            return pin
    return None


def event_of(offset, value, sale) -> Optional[Event]:
    """The record as an event of the sale, or None when it is surely another sale's."""
    try:
        event = decode_event(value)
    except Refused as refused:
        if named_sale(value, 3) in (None, sale):
            raise Stop(refused.kind, f"{CLAIMS} offset {offset}: {refused.detail}") from None
        return None
    return event if event.sale == sale else None


def named_elsewhere(path, sale, home):
    """For each record of another partition than the sale's own: does it name the sale?"""
    return (named_sale(value, 3) == sale for topic, number, _, value in records(path)
            if topic == CLAIMS and number != home)


# --- what clients were told

class Told(NamedTuple):
    """One answer. `status` of a refusal is its code. `order` sorts one client's answers by time,
    then by place in the file."""
    user: str
    key: str
    status: str
    http: int
    claim: Optional[str]
    unit: Optional[int]
    order: Tuple[float, int]


def read_told(path, sale):
    """Every answer about the sale."""
    for number, found in lines(path):
        try:
            if found["sale"] != sale:
                continue
            done = found.get("done_ms")
            status = found["status"]
            if status == "refused":
                status = found.get("code") or status
            told = Told(found["user"], found.get("key") or "", status,
                        found.get("http") or 0, found.get("claim"), found.get("unit"),
                        (0 if done is None else done, number))
        except KeyError as error:
            raise CannotRead(f"{path}, line {number}: no {error}") from None
        if not all(isinstance(text, str) for text in (told.user, told.key, told.status)):
            raise CannotRead(f"{path}, line {number}: user, key and status are texts")
        yield told


# --- Redis

class Entry(NamedTuple):
    """One claim of the winners set."""
    seq: int
    unit: int
    attempt: str
    key: str


class RedisSale(NamedTuple):
    """What Redis holds of the sale. `claims` yields (user, bytes of the value)."""
    current: Optional[str]
    state: Dict[str, bytes]
    claims: object


def entries(value):
    """A claims value: entries of <8 seq><8 unit><16 attempt><1 key length><key>, little endian."""
    at, out = 0, []
    while at < len(value):
        size = 33 + (value[at + 32] if at + 32 < len(value) else 0)
        if at + size > len(value):
            raise ValueError("it ends within an entry")
        out.append(Entry(int.from_bytes(value[at:at + 8], "little"),
                         int.from_bytes(value[at + 8:at + 16], "little"),
                         value[at + 16:at + 32].hex(), value[at + 33:at + size].decode("ascii")))
        at += size
    if not out:
        raise ValueError("it is empty")
    return out


class Redis:
    """A client of one connection that only reads."""

    def __init__(self, url):
        parts = urlsplit(url)
        if parts.scheme != "redis":
            raise CannotRead("--redis: the URL must begin with redis://")
        self.where = f"Redis at {parts.hostname}:{parts.port or 6379}"
        user = unquote(parts.username or "")
        password = unquote(parts.password or "") or os.environ.get("ORACLE_REDIS_PASSWORD", "")
        try:
            with socket.create_connection(
                    (parts.hostname or "127.0.0.1", parts.port or 6379), IO_SECONDS_MAX) as opened:
                self.stream = opened.makefile("rwb")   # holds the connection open
        except OSError as error:
            raise CannotRead(f"{self.where}: {error}") from None
        if password:
            self.call(*(["AUTH"] + ([user] if user else []) + [password]))
        if parts.path.strip("/"):
            self.call("SELECT", parts.path.strip("/"))

    def call(self, *words):
        """One command and its reply: None, int, bytes or a list of these."""
        raw = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        request = b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in raw)
        try:
            self.stream.write(request)
            self.stream.flush()
            return self._reply(words[0])
        except (OSError, ValueError) as error:
            raise CannotRead(f"{self.where}: {words[0]}: {error}") from None

    def _reply(self, command):
        line = self.stream.readline()
        if not line.endswith(b"\r\n"):
            raise OSError("the connection ended")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b":":
            return int(rest)
        if kind == b"$":
            if int(rest) < 0:
                return None
            body = self.stream.read(int(rest) + 2)
            if len(body) != int(rest) + 2:
                raise OSError("the connection ended")
            return body[:-2]
        if kind == b"*":
            return [self._reply(command) for _ in range(int(rest))]
        raise CannotRead(f"{self.where}: {command}: {rest.decode('utf-8', 'replace')}")


def pairs(flat):
    return zip(flat[::2], flat[1::2])


def read_redis(url, sale):
    """The sale's current generation in Redis: its name, its state, and its winners as a stream."""
    redis = Redis(url)
    current = redis.call("GET", f"dropgate:{{{sale}}}:current")
    if current is None:
        return RedisSale(None, {}, iter(()))
    current = current.decode("utf-8", "replace")
    prefix = f"dropgate:{{{sale}}}:{current}"
    state = {name.decode("utf-8", "replace"): value
             for name, value in pairs(redis.call("HGETALL", prefix + ":state"))}

    def claims():
        cursor, seen = b"0", set()
        while True:
            cursor, page = redis.call("HSCAN", prefix + ":claims", cursor, "COUNT", 1000)
            for user, value in pairs(page):
                if user not in seen:       # a scan may return a field twice
                    seen.add(user)
                    yield user.decode("utf-8", "replace"), value
            if cursor == b"0":
                return
    return RedisSale(current, state, claims())


def read_redis_dump(path):
    """The same from a file: {"current": text, "state": {name: base64}, "claims": {user: base64}}."""
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
        state = {name: base64.b64decode(value) for name, value in found["state"].items()}
        claims = [(user, base64.b64decode(value)) for user, value in found["claims"].items()]
        return RedisSale(found["current"], state, iter(claims))
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise CannotRead(f"{path}: {error!r}") from None


def log_name(log_id):
    """The log's identity as it stands in Redis' keys."""
    return hashlib.sha256(log_id).hexdigest()[:12]


# --- the database

SALE_COLUMNS = ("log_id", "part", "from_offset", "generation", "seq", "chain", "state", "stock",
                "sold", "held", "closed_ms")
ORDER_COLUMNS = ("unit", "claim_id", "user_id", "attempt", "idem_key", "generation", "seq",
                 "status", "won_ms")
NUMBERS = {"part", "from_offset", "generation", "seq", "stock", "sold", "held", "closed_ms",
           "unit", "won_ms"}
BYTES = {"log_id", "chain", "attempt"}


class SqlSale(NamedTuple):
    """What the database holds of the sale: its row, or None, and its orders as a stream."""
    row: Optional[dict]
    orders: object


def row_of(columns, values):
    """A row with numbers as int, bytes as hexadecimal, texts as str, whatever the database."""
    row = {}
    for name, value in zip(columns, values):
        if name in NUMBERS:
            try:
                row[name] = None if value in (None, "") else int(value)
            except ValueError:
                raise CannotRead(f"the database: {name} is not a number") from None
        elif isinstance(value, bytes):
            row[name] = value.hex() if name in BYTES else value.decode("utf-8", "replace")
        else:
            text = value or ""
            row[name] = text[2:] if name in BYTES and text.startswith("\\x") else text
    return row


def read_sql(url, sale):
    """`sale` is a checked sale id, so it can stand in a query as it is."""
    if url.startswith("sqlite:"):
        return read_sqlite(url[len("sqlite:"):], sale)
    if url.startswith(("postgres://", "postgresql://")):
        return read_postgres(url, sale)
    raise CannotRead("--sql: sqlite:PATH or postgres://user@host:port/database")


def read_sqlite(path, sale):
    try:
        if not os.path.exists(path):
            raise OSError("no such file")
        db = sqlite3.connect(f"file:{quote(os.path.abspath(path))}?mode=ro", uri=True,
                             timeout=IO_SECONDS_MAX, isolation_level=None)
        db.execute("BEGIN")   # one snapshot for both tables
        found = db.execute(f"SELECT {', '.join(SALE_COLUMNS)} FROM sales WHERE sale_id = ?",
                           (sale,)).fetchone()
        orders = db.execute(f"SELECT {', '.join(ORDER_COLUMNS)} FROM orders WHERE sale_id = ?",
                            (sale,))
    except (OSError, sqlite3.Error) as error:
        raise CannotRead(f"{path}: {error}") from None
    row = row_of(SALE_COLUMNS, found) if found else None
    return SqlSale(row, sqlite_rows(path, db, orders))


def sqlite_rows(path, db, orders):
    try:
        for values in orders:
            yield row_of(ORDER_COLUMNS, values)
    except sqlite3.Error as error:
        raise CannotRead(f"{path}: {error}") from None
    finally:
        db.close()


def read_postgres(url, sale):
    """Through psql, with the password in its environment, in one read-only snapshot."""
    parts = urlsplit(url)
    if parts.query:
        raise CannotRead("--sql: give psql's settings by its variables (PGSSLMODE and others)")
    env = {key: value for key, value in os.environ.items() if key in ("PATH", "HOME") or key.startswith("PG")}
    env.update(PGHOST=parts.hostname or "127.0.0.1", PGPORT=str(parts.port or 5432),
               PGDATABASE=unquote(parts.path.strip("/")) or "postgres",
               PGCONNECT_TIMEOUT=str(IO_SECONDS_MAX), PGCLIENTENCODING="UTF8")
    if parts.username:
        env["PGUSER"] = unquote(parts.username)
    if parts.password:
        env["PGPASSWORD"] = unquote(parts.password)
    copy = "COPY (SELECT '{}', {} FROM {} WHERE sale_id = '{}') TO STDOUT"
    script = "; ".join((
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY", "SET LOCAL bytea_output = 'hex'",
        copy.format("sale", ", ".join(SALE_COLUMNS), "sales", sale),
        copy.format("order", ", ".join(ORDER_COLUMNS), "orders", sale), "COMMIT"))
    try:
        psql = subprocess.Popen(["psql", "-X", "-q", "-w", "-v", "ON_ERROR_STOP=1", "-f", "-"],
                                env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, encoding="utf-8")
        psql.stdin.write(script + ";\n")
        psql.stdin.close()
    except OSError as error:
        raise CannotRead(f"psql: {error}") from None
    found = rows(psql)
    first = next(found, None)
    if first is None:
        return SqlSale(None, iter(()))
    if first[0] == "sale":
        return SqlSale(row_of(SALE_COLUMNS, first[1:]),
                       (row_of(ORDER_COLUMNS, values[1:]) for values in found))
    orphans = [first] + list(found)   # orders of a sale without a row
    return SqlSale(None, iter([row_of(ORDER_COLUMNS, values[1:]) for values in orphans]))


def rows(psql):
    """The rows of COPY's text format. Ends with an error when psql did."""
    with psql:
        for line in psql.stdout:
            yield [unescape(field) for field in line.rstrip("\n").split("\t")]
        error = psql.stderr.read().strip()
    if psql.returncode != 0:
        raise CannotRead(f"psql: {error.splitlines()[0] if error else 'failed'}")


ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def unescape(field):
    if "\\" not in field:
        return field
    if field == "\\N":
        return None
    out, chars = [], iter(field)
    for char in chars:
        if char == "\\":
            after = next(chars, "")
            char = ESCAPES.get(after, after)
        out.append(char)
    return "".join(out)
