"""The reader of records: it reads what is written, and refuses everything else."""

import unittest

from messages import Definition, Pin, decode_event, decode_sale_created, named_sale
from protobuf import Refused, varint
from tests import world as w

WIN = w.won(2, "사용자", b"a" * 16, "k 1", 300, 7, 1_700_000_000_000, b"p" * 20)
RECORDS = {"won": WIN, "started": w.started(1, w.definition(5)), "halted": w.halted(1),
           "closed": w.closed(1, 9, 5, b"p" * 20)}


class Reading(unittest.TestCase):
    def refused(self, kind, data, decode=decode_event):
        with self.assertRaises(Refused) as caught:
            decode(data)
        self.assertEqual(caught.exception.kind, kind, caught.exception)

    def test_every_field_of_a_win_is_read(self):
        event = decode_event(WIN)
        self.assertEqual(event[:10], ("won", "drop", 2, "사용자", "61" * 16, "k 1", 300, 7,
                                      1_700_000_000_000, b"p" * 20))

    def test_every_kind_is_read(self):
        for kind, record in RECORDS.items():
            self.assertEqual(decode_event(record).kind, kind)
        event = decode_event(RECORDS["started"])
        self.assertEqual((event.window, event.definition), (w.WINDOW, Definition(5, 1, 0, 0)))
        self.assertIsNone(decode_event(w.started(2)).definition)

    def test_the_bytes_that_the_product_writes_are_read(self):
        """Taken from the product's own test of its format; written so for ever."""
        tail = "510000000000000000 5a14" + "cd" * 20
        won = decode_event(bytes.fromhex(
            "08011003 1a0664726f702d31 2003 2a05616c696365 3210" + "ab" * 16 + "3a026b31"
            "410700000000000000 492a00000000000000 517b68e5cf8b010000 5a14" + "cd" * 20))
        self.assertEqual(won[:10], ("won", "drop-1", 3, "alice", "ab" * 16, "k1", 7, 42,
                                    1_700_000_000_123, b"\xcd" * 20))
        closed = decode_event(bytes.fromhex(
            "08011004 1a0664726f702d31 2003 410700000000000000" + tail))
        self.assertEqual((closed.kind, closed.seq, closed.time_ms), ("closed", 7, 0))
        halted = decode_event(bytes.fromhex(
            "08011002 1a0664726f702d31 2003 7215 0a084e4f534352495054 1209676174657761792d31"))
        self.assertEqual((halted.kind, halted.generation), ("halted", 3))
        started = decode_event(bytes.fromhex(
            "08011001 1a0664726f702d31 2001 6a6b 0a10" + "01" * 16 + "1210" + "02" * 16
            + "1a22 0a0a636c61696d5f756e6974 1214" + "03" * 20 + "2001 2801 3207 08e807 1001"
            "1805 3a086f70657261746f72 42076f70656e696e67 48904e"))
        self.assertEqual((started.window, started.definition),
                         (10_000, Definition(1000, 1, 5, 0)))
        self.assertEqual(decode_sale_created(bytes.fromhex(
            "08011206 64726f702d31 1a10" + "09" * 16 + "2002 284d 3204 080a 1001 3806 4210"
            + "04" * 16)), ("drop-1", Pin(b"\t" * 16, 2, 77, Definition(10, 1, 0, 0))))

    def test_a_trace_is_read_and_an_order_of_fields_is_not_asked_for(self):
        self.assertEqual(decode_event(w.blob(12, "t" * 55) + WIN).seq, 300)

    def test_the_index_is_read(self):
        self.assertEqual(decode_sale_created(w.sale_created(w.definition(5, 2, 3, 4))),
                         ("drop", Pin(w.LOG_ID, w.PARTITION, w.FROM, Definition(5, 2, 3, 4))))

    def test_a_record_cut_at_any_byte_is_refused(self):
        for record in RECORDS.values():
            for size in range(len(record)):
                with self.assertRaises(Refused, msg=f"{size} of {record}"):
                    decode_event(record[:size])
        record = w.sale_created(w.definition(5))
        for size in range(len(record)):
            with self.assertRaises(Refused):
                decode_sale_created(record[:size])

    def test_a_record_without_any_one_field_is_refused(self):
        parts = [w.number(1, 1), w.number(2, 3), w.blob(3, "drop"), w.number(4, 1),
                 w.blob(5, "u"), w.blob(6, b"a" * 16), w.fixed(8, 1), w.fixed(9, 1),
                 w.fixed(10, 1), w.blob(11, b"p" * 20)]
        decode_event(b"".join(parts))
        for n in range(len(parts)):
            with self.assertRaises(Refused, msg=n):
                decode_event(b"".join(parts[:n] + parts[n + 1:]))

    def test_a_field_that_is_there_twice_is_refused(self):
        self.refused("repeated_field", WIN + w.fixed(8, 300))
        self.refused("repeated_field", WIN + w.blob(5, "other"))
        self.refused("repeated_field", RECORDS["started"] + b"\x6a\x00")

    def test_an_unknown_field_is_refused_at_every_depth(self):
        for field in (0xF, 16, 17, 1000):
            self.refused("unknown_field", WIN + w.number(field, 1))
        self.refused("unknown_field", w.head(1, 1) + w.blob(13, w.number(11, 1)))
        self.refused("unknown_field", w.started(1, w.definition(5) + w.number(6, 1)))
        self.refused("unknown_field", w.started(1, w.definition(5) + w.number(5, 60)))

    def test_an_unknown_version_is_named_before_all_else(self):
        self.refused("unknown_version", w.number(1, 2) + w.number(99, 1))
        self.refused("unknown_version", w.started(1, w.definition(5), rule=2))
        self.refused("missing_field", w.number(2, 3))

    def test_an_unknown_kind_is_refused(self):
        self.refused("unknown_kind", w.head(5, 1))

    def test_a_field_of_another_kind_is_refused(self):
        self.refused("malformed_record", RECORDS["closed"] + w.fixed(9, 1))
        self.refused("malformed_record", RECORDS["halted"] + w.fixed(8, 1))
        self.refused("malformed_record", WIN + w.blob(14, w.blob(1, "x")))

    def test_the_definition_belongs_to_generation_one(self):
        self.refused("malformed_record", w.started(2, w.definition(5)))
        self.refused("malformed_record", w.started(1))

    def test_definitions_out_of_bounds_are_refused(self):
        for bad in (w.definition(10_000_001), w.definition(5, 0), w.definition(5, 17),
                    w.definition(5, 1, 9, 9)):
            self.refused("malformed_record", w.started(1, bad))

    def test_ids_of_the_wrong_size_or_letters_are_refused(self):
        for user in (" a", "a\n", "a" * 256, "\x85"):
            self.refused("malformed_record", w.won(1, user, b"a" * 16, "", 1, 1, 1, b"p" * 20))
        for bad in (w.won(1, "u", b"a" * 15, "", 1, 1, 1, b"p" * 20),
                    w.won(1, "u", b"a" * 16, "", 1, 1, 1, b"p" * 19),
                    w.won(1, "u", b"a" * 16, "é", 1, 1, 1, b"p" * 20),
                    w.won(1, "u", b"a" * 16, "k" * 65, 1, 1, 1, b"p" * 20),
                    w.won(1, "u", b"a" * 16, "", 0, 1, 1, b"p" * 20),
                    w.won(1, "u", b"a" * 16, "", 1, 1, 1, b"p" * 20, "Drop"),
                    w.won(1, b"\xff", b"a" * 16, "", 1, 1, 1, b"p" * 20)):
            self.refused("malformed_record", bad)

    def test_bytes_that_no_encoder_writes_are_refused(self):
        self.refused("malformed_record", WIN + b"\x3b")              # a group
        self.refused("malformed_record", WIN + b"\x00\x01")          # the field 0
        self.refused("malformed_record", b"\x08\x81\x00" + WIN[2:])  # 1 in two bytes
        self.refused("malformed_record", b"\x09" + WIN[1:])          # another wire type
        self.refused("malformed_record", w.halted(1) + b"\x3a\x00")  # a default value

    def test_numbers_are_64_bits_wide(self):
        for value in (0, 1, 127, 128, 2**32, 2**53 + 1, 2**64 - 1):
            self.assertEqual(varint(w.varint(value), 0), (value, len(w.varint(value))))
        for bad in (b"\xff" * 9 + b"\x02", b"\xff" * 10 + b"\x01"):
            with self.assertRaises(Refused):
                varint(bad, 0)
        self.refused("malformed_record", w.head(3, 2**32))

    def test_the_sale_of_an_unreadable_record_is_named_if_it_can_be(self):
        self.assertEqual(named_sale(WIN + w.number(99, 1), 3), "drop")
        self.assertIsNone(named_sale(WIN[:-1], 3))
        self.assertIsNone(named_sale(w.blob(3, "a") + w.blob(3, "b"), 3))
        self.assertIsNone(named_sale(b"", 3))
