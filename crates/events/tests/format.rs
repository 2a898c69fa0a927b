//! The format of the log: old bytes decode for ever, and nothing else does.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use dropgate_domain::*;
use dropgate_events::*;
use proptest::prelude::*;
use std::num::NonZeroU32;

fn sale() -> SaleId {
    SaleId::new("drop-1").unwrap()
}

fn event(body: Body) -> Event {
    Event {
        sale: sale(),
        generation: Generation(3),
        body,
    }
}

fn link() -> Link {
    Link {
        seq: Seq(7),
        time: TimeMs(1_700_000_000_123),
        prev: Digest([0xcd; 20]),
    }
}

fn won() -> Event {
    event(Body::Won(Won {
        link: link(),
        user: UserId::new("alice").unwrap(),
        attempt: AttemptId([0xab; 16]),
        key: IdempotencyKey::new("k1").unwrap(),
        unit: Unit(42),
    }))
}

fn started() -> Event {
    event(Body::Started(Box::new(Started {
        identity: Identity([1; 16]),
        nonce: Nonce([2; 16]),
        scripts: vec![ScriptHash {
            name: "claim_unit".into(),
            sha1: Digest([3; 20]),
        }],
        rule: 1,
        calls: 1,
        window: NonZeroU32::new(10_000).unwrap(),
        definition: Some(Definition {
            stock: 1000,
            per_user_limit: 1,
            opens_at: Some(TimeMs(5)),
            closes_at: None,
            hold_seconds: 0,
        }),
        by: "operator".into(),
        reason: "opening".into(),
        at: Some(TimeMs(8)),
    })))
}

fn halted() -> Event {
    event(Body::Halted(Halted {
        reason: "NOSCRIPT".into(),
        at: Some(TimeMs(9)),
        by: "gateway-1".into(),
    }))
}

fn undated(mut event: Event) -> Event {
    match &mut event.body {
        Body::Started(started) => started.at = None,
        Body::Halted(halted) => halted.at = None,
        Body::Won(_) | Body::Closed(_) => {}
    }
    event
}

fn created() -> SaleCreated {
    SaleCreated {
        sale: sale(),
        log_id: LogId([9; 16]),
        partition: PartitionId(2),
        from_offset: Offset(77),
        definition: Definition::of(10),
        created_at: TimeMs(6),
        attempt: AttemptId([4; 16]),
    }
}

/// Bytes as the first release wrote them. They are never changed: a log that holds them may be
/// read by any later release.
#[test]
fn bytes_of_version_1_still_decode() {
    let golden = [
        (
            "08011003 1a0664726f702d31 2003 2a05616c696365 3210abababababababababababababababab \
             3a026b31 410700000000000000 492a00000000000000 517b68e5cf8b010000 \
             5a14cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
            won(),
        ),
        (
            "08011004 1a0664726f702d31 2003 410700000000000000 517b68e5cf8b010000 \
             5a14cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd",
            event(Body::Closed(link())),
        ),
        (
            "08011002 1a0664726f702d31 2003 7217 0a084e4f534352495054 1209676174657761792d31 1809",
            halted(),
        ),
        (
            "08011001 1a0664726f702d31 2003 6a6d 0a1001010101010101010101010101010101 \
             121002020202020202020202020202020202 1a22 0a0a636c61696d5f756e6974 \
             12140303030303030303030303030303030303030303 2001 2801 \
             3207 08e807 1001 1805 3a086f70657261746f72 42076f70656e696e67 48904e 5008",
            started(),
        ),
        // Of before halts and starts said when they were written.
        (
            "08011002 1a0664726f702d31 2003 7215 0a084e4f534352495054 1209676174657761792d31",
            undated(halted()),
        ),
        (
            "08011001 1a0664726f702d31 2003 6a6b 0a1001010101010101010101010101010101 \
             121002020202020202020202020202020202 1a22 0a0a636c61696d5f756e6974 \
             12140303030303030303030303030303030303030303 2001 2801 \
             3207 08e807 1001 1805 3a086f70657261746f72 42076f70656e696e67 48904e",
            undated(started()),
        ),
    ];
    for (text, event) in golden {
        let bytes = hex::decode(text.replace([' ', '\n'], "")).unwrap();
        let read = decode_event(&bytes).unwrap();
        assert_eq!(read.event, event);
        assert_eq!(read.digest, digest(&bytes));
        assert_eq!(encode_event(&event), bytes, "this release writes the same");
    }
    let bytes = hex::decode(
        "08011206 64726f702d31 1a1009090909090909090909090909090909 2002 284d 3204 080a 1001 \
         3806 421004040404040404040404040404040404"
            .replace(' ', ""),
    )
    .unwrap();
    assert_eq!(decode_sale_created(&bytes).unwrap(), created());
    assert_eq!(encode_sale_created(&created()), bytes);
}

#[test]
fn a_record_that_was_cut_anywhere_is_refused() {
    for event in [won(), event(Body::Closed(link())), halted(), started()] {
        let bytes = encode_event(&event);
        for end in 0..bytes.len() {
            assert!(
                decode_event(&bytes[..end]).is_err(),
                "{event:?} cut at {end}"
            );
        }
    }
    let bytes = encode_sale_created(&created());
    for end in 0..bytes.len() {
        assert!(decode_sale_created(&bytes[..end]).is_err(), "cut at {end}");
    }
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let bytes = encode_event(&won());
    let with = |tail: &[u8]| decode_event(&[&bytes[..], tail].concat()).unwrap_err();
    // A new field 16, a second seq, a field of another kind, a hold.
    assert_eq!(with(&[0x82, 0x01, 0x01, 0x00]), Unknown::Field { tag: 16 });
    assert_eq!(
        with(&[0x41, 9, 0, 0, 0, 0, 0, 0, 0]),
        Unknown::Repeated { tag: 8 }
    );
    assert_eq!(with(&[0x72, 0x00]), Unknown::Misplaced { field: "halted" });
    assert_eq!(
        with(&[0x78, 0x05]),
        Unknown::Misplaced {
            field: "hold_until_ms"
        }
    );
    let changed = |at: usize, to: u8| {
        let mut bytes = bytes.to_vec();
        bytes[at] = to;
        decode_event(&bytes).unwrap_err()
    };
    assert_eq!(changed(1, 2), Unknown::Version { version: 2 });
    assert_eq!(changed(3, 9), Unknown::Kind { kind: 9 });
    assert_eq!(changed(3, 0), Unknown::Kind { kind: 0 });
    assert_eq!(decode_event(&[]), Err(Unknown::Version { version: 0 }));
    let long = vec![0; RECORD_BYTES_MAX + 1];
    assert!(matches!(decode_event(&long), Err(Unknown::TooLong { .. })));
}

#[test]
fn the_sale_of_a_record_is_told_whatever_else_it_holds() {
    for event in [won(), event(Body::Closed(link())), halted(), started()] {
        let mut bytes = encode_event(&event).to_vec();
        assert_eq!(peek_sale(&bytes), Some(sale()));
        bytes[1] = 77;
        bytes.extend([0xff; 3]);
        assert_eq!(
            peek_sale(&bytes),
            Some(sale()),
            "another version, with a torn end"
        );
    }
    for none in [
        &[][..],
        &[0xff; 9],
        &[0x1a, 0x7f, b'a'],
        &[0x1a, 0x01, b'A'],
    ] {
        assert_eq!(peek_sale(none), None, "{none:?}");
    }
}

#[test]
fn an_unknown_field_deep_inside_is_refused() {
    let mut event = started();
    let Body::Started(start) = &mut event.body else {
        unreachable!()
    };
    start.reason = String::new();
    start.by = String::new();
    let bytes = encode_event(&event).to_vec();
    // A field 11 at the end of the Started message: its length byte is the one after 0x6a.
    let at = bytes.iter().position(|b| *b == 0x6a).unwrap() + 1;
    let mut longer = bytes.clone();
    longer[at] += 2;
    longer.extend([0x58, 0x01]);
    assert_eq!(decode_event(&longer), Err(Unknown::Field { tag: 11 }));
}

proptest! {
    #[test]
    fn what_is_written_is_read_and_the_prefix_is_its_beginning(
        generation in 1u32..,
        seq in 1u64.., unit in 1u64.., time in 1u64..,
        prev in any::<[u8; 20]>(), attempt in any::<[u8; 16]>(),
        user in "[a-zA-Z0-9@._\u{e9}\u{c0ac}-]{1,60}", key in "[ -~]{0,64}",
    ) {
        let won = Won {
            link: Link { seq: Seq(seq), time: TimeMs(time), prev: Digest(prev) },
            user: UserId::new(&user).unwrap(),
            attempt: AttemptId(attempt),
            key: IdempotencyKey::new(&key).unwrap(),
            unit: Unit(unit),
        };
        let event = Event { sale: sale(), generation: Generation(generation), body: Body::Won(won.clone()) };
        let bytes = encode_event(&event);
        let mut by_script = won_prefix(&sale(), Generation(generation), &won.user, won.attempt, &won.key);
        by_script.push(0x41);
        by_script.extend(seq.to_le_bytes());
        by_script.push(0x49);
        by_script.extend(unit.to_le_bytes());
        by_script.push(0x51);
        by_script.extend(time.to_le_bytes());
        by_script.extend([0x5a, 0x14]);
        by_script.extend(prev);
        prop_assert_eq!(&bytes[..], &by_script[..]);
        prop_assert_eq!(decode_event(&bytes).unwrap().event, event);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(record) = decode_event(&bytes) {
            prop_assert_eq!(record.digest, digest(&bytes));
        }
        let _ = decode_sale_created(&bytes);
    }

    #[test]
    fn a_changed_byte_never_reads_as_the_same_event(at in any::<prop::sample::Index>(), to in any::<u8>()) {
        let bytes = encode_event(&won());
        let mut other = bytes.to_vec();
        let at = at.index(other.len());
        prop_assume!(other[at] != to);
        other[at] = to;
        if let Ok(record) = decode_event(&other) {
            prop_assert_ne!(record.event, won());
        }
    }
}
