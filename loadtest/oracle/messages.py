"""The messages of proto/dropgate.proto: which fields there are, and which a record must have."""

import re
from typing import NamedTuple, Optional

from protobuf import Refused, fields, message

DEFINITION = {1: ("stock", "uint64"), 2: ("per_user_limit", "uint32"), 3: ("opens_ms", "uint64"),
              4: ("closes_ms", "uint64"), 5: ("hold_seconds", "uint32")}
SCRIPT = {1: ("name", "string"), 2: ("sha1", "bytes")}
STARTED = {1: ("identity", "bytes"), 2: ("nonce", "bytes"), 3: ("scripts", [SCRIPT]),
           4: ("rule", "uint32"), 5: ("calls", "uint32"), 6: ("def", DEFINITION),
           7: ("by", "string"), 8: ("reason", "string"), 9: ("window", "uint32"), 10: ("at_ms", "uint64")}
HALTED = {1: ("reason", "string"), 2: ("by", "string"), 3: ("at_ms", "uint64")}
EVENT = {1: ("version", "uint32"), 2: ("kind", "enum"), 3: ("sale", "string"),
         4: ("generation", "uint32"), 5: ("user", "string"), 6: ("attempt", "bytes"),
         7: ("key", "string"), 8: ("seq", "fixed64"), 9: ("unit", "fixed64"),
         10: ("time_ms", "fixed64"), 11: ("prev", "bytes"), 12: ("trace", "bytes"),
         13: ("started", STARTED), 14: ("halted", HALTED)}
SALE_CREATED = {1: ("version", "uint32"), 2: ("sale", "string"), 3: ("log_id", "bytes"),
                4: ("partition", "uint32"), 5: ("from_offset", "uint64"), 6: ("def", DEFINITION),
                7: ("created_ms", "uint64"), 8: ("attempt", "bytes")}

ALWAYS = {"version", "kind", "sale", "generation"}
LINK = {"seq", "time_ms", "prev"}
KINDS = {1: ("started", {"started"}), 2: ("halted", {"halted"}),
         3: ("won", {"user", "attempt", "unit"} | LINK), 4: ("closed", LINK)}
OPTIONAL = {"won": {"key", "trace"}, "closed": {"trace"}, "started": {"trace"}, "halted": {"trace"}}
SIZES = {"attempt": 16, "prev": 20, "identity": 16, "nonce": 16, "log_id": 16, "sha1": 20}
VERSION = RULE = CALLS = 1
STOCK_MAX, PER_USER_LIMIT_MAX = 10_000_000, 16

SALE_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


class Definition(NamedTuple):
    """What is sold. `opens_ms` and `closes_ms` are 0 when there is no such instant."""
    stock: int
    per_user_limit: int
    opens_ms: int
    closes_ms: int


class Pin(NamedTuple):
    """Where a sale's events are, by the first record of the index that names it."""
    log_id: bytes
    partition: int
    from_offset: int
    definition: Definition


class Event(NamedTuple):
    """One record of the claims topic; what its kind does not have is None."""
    kind: str
    sale: str
    generation: int
    user: Optional[str]
    attempt: Optional[str]
    key: str
    seq: Optional[int]
    unit: Optional[int]
    time_ms: Optional[int]
    prev: Optional[bytes]
    window: Optional[int]
    definition: Optional[Definition]


def named_sale(data, number):
    """The sale that bytes of any version name in field `number`, or None if it cannot be told."""
    try:
        names = [raw for n, wire, raw in fields(data) if n == number and wire == 2]
        return names[0].decode("utf-8") if len(names) == 1 else None
    except (Refused, UnicodeDecodeError):
        return None


def decode_event(data):
    """Reads a record of the claims topic."""
    found = versioned(data)
    kinds = [raw for number, wire, raw in found if number == 2 and wire == 0]
    if kinds and kinds[0] not in KINDS:
        raise Refused("unknown_kind", f"an event of kind {kinds[0]}")
    body = message(found, EVENT, "Event")
    require(body, ALWAYS, "Event")
    kind, needs = KINDS[body["kind"]]
    require(body, needs, f"a {kind} event")
    odd = set(body) - ALWAYS - needs - OPTIONAL[kind]
    if odd:
        raise Refused("malformed_record", f"a {kind} event has a {min(odd)}")
    texts(body)
    started, definition = body.get("started", {}), None
    if kind == "started":
        definition = opening(started, body["generation"])
    if kind not in ("started", "halted") and body["seq"] == 0:
        raise Refused("malformed_record", f"a {kind} event has the seq 0")
    attempt = body["attempt"].hex() if "attempt" in body else None
    return Event(kind, body["sale"], body["generation"], body.get("user"), attempt,
                 body.get("key", ""), body.get("seq"), body.get("unit"), body.get("time_ms"),
                 body.get("prev"), started.get("window"), definition)


def decode_sale_created(data):
    """Reads a record of the index: the sale's id and its pin."""
    body = message(versioned(data), SALE_CREATED, "SaleCreated")
    require(body, {"version", "sale", "log_id", "def", "created_ms", "attempt"}, "SaleCreated")
    texts(body)
    return body["sale"], Pin(body["log_id"], body.get("partition", 0), body.get("from_offset", 0),
                             definition_of(body["def"]))


def versioned(data):
    """The fields, after a look at the version: another version's fields mean other things."""
    found = list(fields(data))
    versions = [raw for number, wire, raw in found if number == 1 and wire == 0]
    if not versions:
        raise Refused("missing_field", "no version")
    if versions[0] != VERSION:
        raise Refused("unknown_version", f"version {versions[0]}")
    return found


def require(body, names, what):
    missing = names - set(body)
    if missing:
        raise Refused("missing_field", f"{what} has no {min(missing)}")


def texts(body):
    """Checks that ids are ids and that byte fields have their size."""
    for name, size in SIZES.items():
        if len(body.get(name, bytes(size))) != size:
            raise Refused("malformed_record", f"{name} is not of {size} bytes")
    if not SALE_ID.fullmatch(body.get("sale", "a")):
        raise Refused("malformed_record", "sale is not a sale id")
    user, key = body.get("user", "u"), body.get("key", "")
    control = any(ord(c) < 32 or 127 <= ord(c) < 160 for c in user)
    if len(user.encode("utf-8")) > 255 or control or user != user.strip():
        raise Refused("malformed_record", "user is not a user id")
    if len(key) > 64 or not all(" " <= c <= "~" for c in key):
        raise Refused("malformed_record", "key is not an idempotency key")


def opening(started, generation):
    """Checks a Started body; its definition, which generation 1 has and no other."""
    require(started, {"identity", "nonce", "rule", "calls", "window"}, "Started")
    for body in [started] + started.get("scripts", []):
        texts(body)
    for script in started.get("scripts", []):
        require(script, {"name", "sha1"}, "Started.scripts")
    for name, known in (("rule", RULE), ("calls", CALLS)):
        if started[name] != known:
            raise Refused("unknown_version", f"Started.{name} is {started[name]}")
    if ("def" in started) != (generation == 1):
        raise Refused("malformed_record", "the definition belongs to generation 1, and only there")
    return definition_of(started["def"]) if "def" in started else None


def definition_of(body):
    made = Definition(body.get("stock", 0), body.get("per_user_limit", 0),
                      body.get("opens_ms", 0), body.get("closes_ms", 0))
    ordered = not made.opens_ms or not made.closes_ms or made.opens_ms < made.closes_ms
    if made.stock > STOCK_MAX or not 1 <= made.per_user_limit <= PER_USER_LIMIT_MAX or not ordered:
        raise Refused("malformed_record", "the definition is out of its bounds")
    if "hold_seconds" in body:
        raise Refused("unknown_field", "hold_seconds: wins that wait are not known yet")
    return made
