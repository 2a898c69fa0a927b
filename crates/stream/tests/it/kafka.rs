//! The log in Kafka when its broker or its topics are not what they were.

use std::time::Duration;

use bytes::Bytes;
use dropgate_domain::Offset;
use dropgate_stream::{AppendError, KafkaConfig, Lane, Log, LogError, OpenError, Refused};
use dropgate_testkit::{Kafka, KafkaOptions};
use futures::future::join_all;
use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};

use crate::support::{
    BOUND, Fixture, P0, P1, START, blocking, by_lane, offsets, read, until, value,
};

type Admin = AdminClient<DefaultClientContext>;

fn admin(config: &KafkaConfig) -> Admin {
    ClientConfig::new()
        .set("bootstrap.servers", &config.brokers)
        .create()
        .unwrap()
}

async fn delete_topic(config: &KafkaConfig, topic: &str) {
    let options = AdminOptions::new().operation_timeout(Some(BOUND));
    let deleted = admin(config).delete_topics(&[topic], &options).await;
    deleted.unwrap()[0].as_ref().unwrap();
}

/// Creates a topic with these settings, as soon as the broker has forgotten an older one.
async fn create_topic(config: &KafkaConfig, topic: &str, partitions: i32, set: &[(&str, &str)]) {
    let admin = admin(config);
    let options = AdminOptions::new().operation_timeout(Some(BOUND));
    let ask = || async {
        let replicas = TopicReplication::Fixed(1);
        let mut new = NewTopic::new(topic, partitions, replicas);
        for (key, value) in set {
            new = new.set(key, value);
        }
        admin
            .create_topics([&new], &options)
            .await
            .unwrap()
            .remove(0)
    };
    until("the topic to be created", ask, Result::is_ok)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_end_within_their_deadline_and_work_again_when_the_broker_is_back() {
    let options = KafkaOptions::default();
    let mut kafka = blocking(move || Kafka::start(&options)).await.unwrap();
    let mut fixture = Fixture::kafka_at(&kafka.brokers());
    fixture.config.kafka.append_timeout = Duration::from_secs(1);
    fixture.config.kafka.probe_timeout = Duration::from_secs(2);
    let log = fixture.open().await;
    let ask = || log.tail(&START);
    let mut tail = until("a tail", ask, Result::is_ok).await.unwrap();
    // The first append waits for metadata, on cores that others use too.
    let mut told = Vec::new();
    for n in 0..20 {
        let ask = || log.append(P0, value(n));
        told.push((until("an append", ask, Result::is_ok).await.unwrap(), n));
    }

    let mut kafka = blocking(move || {
        kafka.kill9().unwrap();
        kafka
    })
    .await;
    let appends = (20..60).map(|n| log.append(P0, value(n)));
    let answers = tokio::time::timeout(BOUND, join_all(appends))
        .await
        .unwrap();
    for answer in &answers {
        assert!(
            matches!(
                answer,
                Err(AppendError::Unknown(_) | AppendError::Refused(_))
            ),
            "{answer:?}"
        );
    }
    let error = log.probe(P0).await.unwrap_err();
    assert!(matches!(error, LogError::Unavailable(_)), "{error:?}");
    // A tail of a broker that is away waits; it does not end.
    let came = tail.next(1000, Duration::from_millis(300)).await.unwrap();
    let mut items = came;

    let kafka = blocking(move || {
        kafka.restart().unwrap();
        kafka
    })
    .await;
    for n in 60..80 {
        let ask = || log.append(P0, value(n));
        told.push((until("an append", ask, Result::is_ok).await.unwrap(), n));
    }
    let end = until("a probe", || log.probe(P0), Result::is_ok)
        .await
        .unwrap()
        .end;
    items.extend(read(&mut tail, end.0 as usize - items.len()).await);
    assert_eq!(items[0].offset, Offset(0));
    let items = by_lane(items).remove(&P0).unwrap();
    for (offset, n) in told {
        assert_eq!(items[offset.0 as usize].value, value(n), "told at {offset}");
    }
    drop(kafka);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_paused_broker_fails_probes_and_openings_within_their_deadline() {
    let extra = vec!["auto.create.topics.enable=true".to_owned()];
    let options = KafkaOptions {
        extra,
        ..KafkaOptions::default()
    };
    let mut kafka = blocking(move || Kafka::start(&options)).await.unwrap();
    let mut fixture = Fixture::kafka_at(&kafka.brokers());

    // Looking for a topic does not make it, also where the broker would.
    fixture.config.kafka.create = false;
    for _ in 0..3 {
        let error = Log::open(&fixture.config).await.unwrap_err();
        assert!(matches!(error, OpenError::Missing { .. }), "{error:?}");
    }
    fixture.config.kafka.create = true;
    fixture.config.kafka.probe_timeout = Duration::from_millis(700);
    fixture.config.kafka.append_timeout = Duration::from_millis(700);
    let log = fixture.open().await;
    until("a probe", || log.probe(P0), Result::is_ok)
        .await
        .unwrap();
    kafka.pause().unwrap();
    // More questions than may be under way at a time: none waits without bound.
    let probes = (0..40).map(|_| log.probe(P0));
    let answers = tokio::time::timeout(BOUND, join_all(probes)).await.unwrap();
    for answer in answers {
        assert!(
            matches!(answer, Err(LogError::Unavailable(_))),
            "{answer:?}"
        );
    }
    let told = tokio::time::timeout(BOUND, log.append(P0, value(0)))
        .await
        .unwrap();
    assert!(matches!(told, Err(AppendError::Unknown(_))), "{told:?}");
    let error = log.tail(&START).await.unwrap_err();
    assert!(error.is_transient(), "{error:?}");
    fixture.config.kafka.open_timeout = Duration::from_secs(1);
    let error = Log::open(&fixture.config).await.unwrap_err();
    assert!(matches!(error, OpenError::Unreachable { .. }), "{error:?}");
    kafka.resume().unwrap();
    until("a probe", || log.probe(P0), Result::is_ok)
        .await
        .unwrap();
    until("an append", || log.append(P0, value(1)), Result::is_ok)
        .await
        .unwrap();

    // A topic that was deleted is not made anew by those who still use it.
    delete_topic(&fixture.config.kafka, &fixture.config.kafka.topic_claims).await;
    let ask = || log.probe(P0);
    let missing = |answer: &Result<_, _>| matches!(answer, Err(LogError::Missing { .. }));
    until("the topic to be gone", ask, missing)
        .await
        .unwrap_err();
    let log_2 = log.clone();
    let append = tokio::spawn(async move { log_2.append(P0, value(0)).await });
    for _ in 0..20 {
        let answer = log.probe(P0).await;
        assert!(missing(&answer), "{answer:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    append.abort();
}

#[tokio::test]
async fn an_unreachable_broker_is_an_error_that_says_what_to_check() {
    let mut fixture = Fixture::kafka_at("127.0.0.1:1");
    fixture.config.kafka.open_timeout = Duration::from_secs(1);
    let open = tokio::time::timeout(BOUND, Log::open(&fixture.config));
    let error = open.await.unwrap().unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, OpenError::Unreachable { .. }), "{text}");
    assert!(text.contains("127.0.0.1:1 within 1s"), "{text}");
    assert!(text.contains("refused"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_made_anew_is_the_wrong_log_for_every_reader() {
    let fixture = Fixture::kafka().await;
    let config = &fixture.config.kafka;
    let log = fixture.open().await;
    for n in 0..10 {
        log.append(P0, value(n)).await.unwrap();
    }
    let before = log.probe(P0).await.unwrap().log_id;
    let mut running = log.tail(&START).await.unwrap();
    read(&mut running, 10).await;
    // This one has read up to 5 and is not called while the topic is made anew and refilled.
    let mut stopped = log.tail(&[(P0, Offset(0))]).await.unwrap();
    read(&mut stopped, 5).await;

    delete_topic(config, &config.topic_claims).await;
    create_topic(config, &config.topic_claims, 3, &[]).await;
    let other = Log::open(&fixture.config).await.unwrap();
    for n in 100..120 {
        other.append(P0, value(n)).await.unwrap();
    }
    let wrong = |answer: &Result<_, _>| matches!(answer, Err(LogError::WrongLog { .. }));
    let error = until("the probe to see it", || log.probe(P0), wrong)
        .await
        .unwrap_err();
    let after = other.probe(P0).await.unwrap().log_id;
    let expected = LogError::WrongLog {
        what: format!("the topic {}", config.topic_claims),
        expected: before,
        found: Some(after),
    };
    assert_eq!(error, expected);
    assert_eq!(running.next(10, BOUND).await, Err(expected.clone()));
    assert_eq!(stopped.next(10, BOUND).await, Err(expected.clone()));
    assert_eq!(stopped.add(P1, Offset(0)).await, Err(expected.clone()));
    assert_eq!(log.tail(&START).await.unwrap_err(), expected);
    let told = log.append(P0, value(0)).await.unwrap_err();
    assert!(
        matches!(told, AppendError::Refused(Refused::Broken(_))),
        "{told:?}"
    );
    assert_eq!(other.probe(P0).await.unwrap().end, Offset(20));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_deleted_under_a_slow_tail_are_named() {
    const COUNT: u64 = 60;
    let mut fixture = Fixture::kafka().await;
    fixture.config.kafka.queued_kib_max = 1024;
    let config = &fixture.config.kafka;
    let log = fixture.open().await;
    let mut tail = log.tail(&START).await.unwrap();
    log.append(P0, value(0)).await.unwrap();
    read(&mut tail, 1).await;
    // Far more than it fetches ahead.
    for _ in 1..COUNT {
        log.append(P0, Bytes::from(vec![0; 500_000])).await.unwrap();
    }
    let mut cut = rdkafka::TopicPartitionList::new();
    let at = rdkafka::Offset::Offset(COUNT as i64 - 1);
    cut.add_partition_offset(&config.topic_claims, 0, at)
        .unwrap();
    let options = AdminOptions::new().operation_timeout(Some(BOUND));
    admin(config).delete_records(&cut, &options).await.unwrap();
    let mut next = 1;
    let error = loop {
        match tail.next(100, BOUND / 10).await {
            Ok(items) => {
                for offset in offsets(&items) {
                    assert_eq!(offset, next, "in order up to the hole");
                    next += 1;
                }
            }
            Err(error) => break error,
        }
    };
    assert!(next < COUNT - 1, "{next}");
    let expected = LogError::OutOfRange {
        lane: P0,
        offset: Offset(next),
        low: Offset(COUNT - 1),
        end: Offset(COUNT),
    };
    assert_eq!(error, expected);
    assert_eq!(tail.next(1, BOUND).await, Err(expected), "for good");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offset_without_a_record_is_a_gap() {
    let fixture = Fixture::kafka().await;
    let config = &fixture.config.kafka;
    let log = fixture.open().await;
    let mut tail = log.tail(&START).await.unwrap();
    log.append(P0, value(0)).await.unwrap();
    // A transaction leaves a marker, which takes an offset and is no record.
    let (brokers, topic) = (config.brokers.clone(), config.topic_claims.clone());
    blocking(move || {
        let producer: BaseProducer = ClientConfig::new()
            .set("bootstrap.servers", &brokers)
            .set("transactional.id", &topic)
            .create()
            .unwrap();
        producer.init_transactions(BOUND).unwrap();
        producer.begin_transaction().unwrap();
        let record: BaseRecord<'_, (), str> = BaseRecord::to(&topic).partition(0).payload("x");
        producer.send(record).unwrap();
        producer.commit_transaction(BOUND).unwrap();
    })
    .await;
    assert_eq!(offsets(&read(&mut tail, 2).await), [0, 1]);
    let offset = log.append(P0, value(2)).await.unwrap();
    assert_eq!(offset, Offset(3));
    let gap = LogError::Gap {
        lane: P0,
        expected: Offset(2),
        found: Offset(3),
    };
    let ask = async || tail.next(10, BOUND / 10).await;
    let mut ask = ask;
    let error = loop {
        match ask().await {
            Ok(items) => assert_eq!(items, []),
            Err(error) => break error,
        }
    };
    assert_eq!(error, gap);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn topics_are_created_with_settings_that_keep_records() {
    let fixture = Fixture::kafka().await;
    let log = fixture.open().await;
    let settings = log.settings().await.unwrap();
    let [index, claims] = &settings.topics[..] else {
        panic!("{settings:?}");
    };
    assert_eq!((index.partitions, claims.partitions), (1, 3));
    assert_eq!(index.log_id, log.probe(Lane::Index).await.unwrap().log_id);
    assert_eq!(index.retention, None);
    assert_eq!(claims.retention, Some(fixture.config.kafka.retention));
    for topic in &settings.topics {
        assert_eq!(topic.cleanup_policy, "delete");
        assert_eq!(topic.timestamp_type, "LogAppendTime");
        assert!(!topic.unclean_leader_election);
        assert_eq!(topic.retention_bytes, None);
    }
    // All that is wrong with them is that there is one broker.
    let warnings = settings.warnings();
    assert_eq!(warnings.len(), 4, "{warnings:#?}");
    assert!(
        warnings
            .iter()
            .all(|w| w.contains("replicas: an acknowledged") || w.contains("min.insync.replicas")),
        "{warnings:#?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unsafe_settings_are_refused_in_production_and_compaction_always() {
    let mut fixture = Fixture::kafka().await;
    let (index, claims) = (
        fixture.config.kafka.topic_index.clone(),
        fixture.config.kafka.topic_claims.clone(),
    );
    create_topic(&fixture.config.kafka, &index, 1, &[]).await;
    let unsafe_settings = [
        ("retention.ms", "1000000"),
        ("unclean.leader.election.enable", "true"),
    ];
    create_topic(&fixture.config.kafka, &claims, 2, &unsafe_settings).await;
    let log = fixture.open().await;
    assert_eq!(log.partitions(), 2, "the topic says how many there are");
    fixture.config.kafka.production = true;
    let error = Log::open(&fixture.config).await.unwrap_err();
    let OpenError::Unsafe(problems) = &error else {
        panic!("{error:?}");
    };
    for what in [
        "replicas",
        "min.insync.replicas",
        "unclean.leader",
        "retention.ms is 1000000",
        "the index of sales is to be kept",
        "message.timestamp.type",
    ] {
        assert!(
            problems.iter().any(|p| p.contains(what)),
            "{what}: {problems:#?}"
        );
    }

    fixture.config.kafka.production = false;
    fixture.config.kafka.topic_claims = format!("{claims}-compacted");
    let compact = [("cleanup.policy", "compact")];
    let name = fixture.config.kafka.topic_claims.clone();
    create_topic(&fixture.config.kafka, &name, 2, &compact).await;
    let error = Log::open(&fixture.config).await.unwrap_err();
    assert!(error.to_string().contains("compaction"), "{error}");
}

#[tokio::test]
async fn a_configuration_that_cannot_be_used_is_refused_with_every_key() {
    let mut fixture = Fixture::kafka_at("nowhere");
    fixture.config.kafka.partitions = 0;
    let error = Log::open(&fixture.config).await.unwrap_err().to_string();
    assert!(error.contains("kafka.brokers"), "{error}");
    assert!(error.contains("kafka.partitions"), "{error}");
}
