"""What the database holds of a sale: SQLite by Python's own module, Postgres by psql."""

import os
import sqlite3
import subprocess
from typing import NamedTuple, Optional
from urllib.parse import quote, unquote, urlsplit

from sources import IO_SECONDS_MAX, CannotRead

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
    env = {key: value for key, value in os.environ.items()
           if key in ("PATH", "HOME") or key.startswith("PG")}
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
