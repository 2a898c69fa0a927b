"""Two of the four witnesses: the dump of the log, and what clients were told."""

import base64
import json
from typing import NamedTuple, Optional, Tuple

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
