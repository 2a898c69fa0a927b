"""The protobuf wire format, read strictly: what is not understood is refused, never skipped."""

WIRE = {"uint32": 0, "uint64": 0, "enum": 0, "fixed64": 1, "string": 2, "bytes": 2, "message": 2}


class Refused(Exception):
    """Bytes that are not a record as the project writes them; `kind` names what is wrong."""

    def __init__(self, kind, detail):
        super().__init__(f"{kind}: {detail}")
        self.kind, self.detail = kind, detail


def varint(data, at):
    """The number at `at`, and the place after it. One number has one spelling."""
    value = shift = 0
    start = at
    while True:
        if at >= len(data):
            raise Refused("truncated_record", f"the bytes end within the number at byte {start}")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            break
        shift += 7
        if shift > 63:
            raise Refused("malformed_record", f"the number at byte {start} has more than 10 bytes")
    if value >= 1 << 64 or (byte == 0 and at - start > 1):
        raise Refused("malformed_record", f"the number at byte {start} is not in its one spelling")
    return value, at


def fields(data):
    """Every field of a message in the order of its bytes: (number, wire type, raw value)."""
    at = 0
    while at < len(data):
        tag, at = varint(data, at)
        number, wire = tag >> 3, tag & 7
        if number == 0:
            raise Refused("malformed_record", "a field has the number 0")
        if wire == 0:
            value, at = varint(data, at)
        elif wire in (1, 2, 5):
            size, at = varint(data, at) if wire == 2 else ({1: 8, 5: 4}[wire], at)
            value, at = data[at:at + size], at + size
            if at > len(data):
                raise Refused("truncated_record", f"the bytes end within field {number}")
        else:
            raise Refused("malformed_record", f"field {number} has the wire type {wire}")
        yield number, wire, value


def message(found, schema, what):
    """Reads a message's fields as {name: value}; what is absent is absent from the answer.

    `found` is what `fields` yields. `schema` is {number: (name, type)}: a nested message's type
    is its schema, a list of one schema is a repeated message. A default value (0, "") of anything
    but fixed64 is never written by protobuf's encoders and is refused, so that absent and default
    are one thing.
    """
    out = {}
    for number, wire, raw in found:
        if number not in schema:
            raise Refused("unknown_field", f"{what} has a field {number}")
        name, kind = schema[number]
        repeated, nested = isinstance(kind, list), isinstance(kind, (dict, list))
        if wire != WIRE["message" if nested else kind]:
            raise Refused("malformed_record", f"{what}.{name} has the wire type {wire}")
        if name in out and not repeated:
            raise Refused("repeated_field", f"{what}.{name} is there twice")
        if repeated:
            out.setdefault(name, []).append(message(fields(raw), kind[0], f"{what}.{name}"))
        elif nested:
            out[name] = message(fields(raw), kind, f"{what}.{name}")
        else:
            out[name] = scalar(raw, kind, f"{what}.{name}")
    return out


def scalar(raw, kind, what):
    """One value of a scalar type."""
    if kind == "fixed64":
        return int.from_bytes(raw, "little")
    if raw in (0, b""):
        raise Refused("malformed_record", f"{what} is written with its default value")
    if kind in ("uint32", "enum") and raw >= 1 << 32:
        raise Refused("malformed_record", f"{what} does not fit into 32 bits")
    if kind == "string":
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise Refused("malformed_record", f"{what} is not UTF-8") from None
    return raw
