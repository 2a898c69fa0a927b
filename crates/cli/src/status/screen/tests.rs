use super::super::seen::{Gateway, GatewaySale, LogSeen, Next, Recoveries, RedisReader, Watch};
use super::*;
use dropgate_gateway::routes::recover::{RedisSeen, StandingSeen};

const NOW: u64 = 1_767_225_600_000;

fn at(before_ms: u64) -> Rfc3339 {
    Rfc3339(TimeMs(NOW - before_ms))
}

fn lag(events: u64, ms: u64) -> Option<Lag> {
    Some(Lag {
        events,
        generations: 0,
        ms: Some(ms),
    })
}

fn reader(position: &str, lag: Option<Lag>) -> Reader {
    Reader {
        position: Some(position.to_owned()),
        lag,
    }
}

fn ready(reasons: &[&str]) -> Asked<Ready> {
    Asked::Known(Ready {
        ready: reasons.is_empty(),
        reasons: reasons.iter().map(|&reason| reason.to_owned()).collect(),
    })
}

fn gateway(port: u16, ready: Asked<Ready>, reader: Reader) -> Gateway {
    Gateway {
        url: format!("http://127.0.0.1:{port}"),
        ready,
        sale: Asked::Known(GatewaySale {
            state: "halted".to_owned(),
            trouble: None,
            reader,
            staleness_ms_max: Some(120),
        }),
    }
}

/// Redis has nothing of the generation but two events.
fn forgotten() -> RedisReader {
    RedisReader {
        current: None,
        seen: Some(RedisSeen {
            expected: Some("abc:2".to_owned()),
            current: None,
            state: "missing",
            seq: None,
            scripts_loaded: Some(false),
            outbox_events: 2,
            outbox_more: false,
            outbox_age_ms: Some(2_500),
            loss: Some("redis names no generation of the sale as current".to_owned()),
            unfit: Vec::new(),
        }),
    }
}

fn halted() -> Status {
    Status {
        sale: "drop-1".to_owned(),
        at: at(0),
        standing: Asked::Known(Standing {
            seen: StandingSeen {
                condition: "halted",
                why: Some("redis has lost the sale".to_owned()),
                halted_by: Some("gateway a".to_owned()),
                halted_at: Some(at(1_250)),
                begun_at: Some(at(200_000)),
            },
            generation: 2,
            wins: 40,
            stock: 1000,
            recoveries: Recoveries {
                lately: 1,
                max: 3,
                within: "10m".to_owned(),
            },
            opens_at: None,
            closes_at: None,
            closed_at: None,
        }),
        next: Asked::Known(Next {
            next: "wait".to_owned(),
            says: "recovered in 0.8 s: redis has lost the sale".to_owned(),
            by: "by the watch at http://127.0.0.1:8083".to_owned(),
        }),
        log: Asked::Known(LogSeen {
            position: Some("2.40".to_owned()),
            partition: 3,
            end: 47,
        }),
        redis: Asked::Known(forgotten()),
        database: Asked::Known(reader("2.37", lag(3, 61_000))),
        gateways: vec![
            gateway(8081, ready(&[]), reader("2.40", lag(0, 0))),
            gateway(
                8181,
                ready(&["engine: the log is silent"]),
                reader(
                    "1.12",
                    Some(Lag {
                        events: 28,
                        generations: 1,
                        ms: None,
                    }),
                ),
            ),
        ],
        watch: Some(Watch {
            url: "http://127.0.0.1:8083".to_owned(),
            ready: ready(&[]),
        }),
        trouble: vec!["it is halted: redis has lost the sale".to_owned()],
        anybody_answered: true,
    }
}

#[test]
fn a_halted_sale_fits_one_screen() {
    let expected = "\
Sale         drop-1
At           2026-01-01T00:00:00.000Z
State        halted
  why        redis has lost the sale
  halted by  gateway a
  halted at  2025-12-31T23:59:58.750Z (1.2 s ago)
Generation   2, begun 2025-12-31T23:56:40.000Z (3 m 20 s ago)
Recoveries   1 within 10m, of 3 that the watch makes
Won          40 of 1000
Next         recovered in 0.8 s: redis has lost the sale (by the watch at http://127.0.0.1:8083)

Where                          At       Behind                                                Says
log                            2.40     -                                                     partition 3, read to offset 47
redis                          nothing  -                                                     redis names no generation of the sale as current; 2 events wait in its outbox, the oldest 2.5 s ago
database                       2.37     3 events, 1 m 1 s                                     -
gateway http://127.0.0.1:8081  2.40     0 events                                              ready, halted
gateway http://127.0.0.1:8181  1.12     1 generation, 28 events, for how long is not known    not ready, halted
watch http://127.0.0.1:8083    -        -                                                     ready

Not ready
  http://127.0.0.1:8181  engine: the log is silent

Trouble
  it is halted: redis has lost the sale";
    let shown = of(&halted());
    let squeezed = |text: &str| -> Vec<String> {
        let lines = text.lines();
        lines
            .map(|line| {
                line.split("  ")
                    .filter(|part| !part.is_empty())
                    .collect::<Vec<_>>()
                    .join("|")
            })
            .collect()
    };
    assert_eq!(squeezed(&shown), squeezed(expected), "{shown}");
    // Every column begins where its head does.
    let table: Vec<_> = shown
        .lines()
        .filter(|line| line.contains("127.0.0.1:8"))
        .collect();
    let says = shown.lines().find_map(|line| line.find("Says")).unwrap();
    let rows = table.iter().filter(|line| line.starts_with("gateway"));
    for row in rows {
        assert!(
            row[..says].ends_with("  ") && !row[says..].starts_with(' '),
            "{shown}"
        );
    }
}

#[test]
fn what_is_not_known_is_unknown_with_its_reason_and_never_a_zero() {
    let nobody = || "no answer within 5s".to_owned();
    let status = Status {
        standing: Asked::Unknown(nobody()),
        next: Asked::Unknown("no watch was asked".to_owned()),
        log: Asked::Unknown(nobody()),
        redis: Asked::Unknown(nobody()),
        database: Asked::Unknown(nobody()),
        gateways: vec![Gateway {
            url: "http://h:1".to_owned(),
            ready: Asked::Unknown("connection refused".to_owned()),
            sale: Asked::Unknown("connection refused".to_owned()),
        }],
        watch: None,
        ..halted()
    };
    let shown = of(&status);
    for name in ["log", "redis", "database", "gateway"] {
        let row = shown.lines().find(|line| line.starts_with(name)).unwrap();
        assert_eq!(row.matches("unknown").count(), 2, "{row}");
    }
    assert!(
        shown.contains("State  unknown: no answer within 5s"),
        "{shown}"
    );
    assert!(
        !shown.contains('0') || !shown.contains("0 events"),
        "{shown}"
    );
    let json = serde_json::to_value(&status).unwrap();
    assert_eq!(json["log"]["unknown"], nobody());
}

#[test]
fn times_are_told_in_what_a_person_needs() {
    let told = [0, 999, 59_999, 60_000, 3_599_000, 3_600_000, 90_000_000].map(duration);
    let expected = [
        "0.0 s",
        "0.9 s",
        "59.9 s",
        "1 m 0 s",
        "59 m 59 s",
        "1 h 0 m",
        "1 d 1 h",
    ];
    assert_eq!(told, expected);
    assert_eq!(
        since(Rfc3339(TimeMs(NOW + 5_000)), at(0))
            .split_once(' ')
            .unwrap()
            .1,
        "(in 5.0 s)"
    );
}
