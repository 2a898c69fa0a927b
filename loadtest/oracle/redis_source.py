"""What Redis holds of a sale, by a client of its own."""

import base64
import hashlib
import json
import os
import socket
from typing import Dict, NamedTuple, Optional
from urllib.parse import unquote, urlsplit

from sources import IO_SECONDS_MAX, CannotRead


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
    """The same from a file: {"current": text, "state": {name: base64}, "claims": {user: base64}}.
    """
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
