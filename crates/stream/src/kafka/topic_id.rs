//! What only librdkafka's own interface answers: a topic's id, and the length of a consumer's
//! queue. The one file with unsafe code.
#![expect(
    unsafe_code,
    reason = "rdkafka has no call for a topic's id, only its bindings have"
)]

use std::ffi::{CStr, CString};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

use dropgate_domain::LogId;
use rdkafka::bindings as native;
use rdkafka::client::{Client, ClientContext};
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};

/// What the cluster says of a topic, past every cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Described {
    /// Its id: another one when it was deleted and made anew.
    pub(super) id: LogId,
    pub(super) partitions: u32,
    /// The replicas of its least replicated partition.
    pub(super) replicas: u32,
    /// Every partition has a leader.
    pub(super) led: bool,
}

/// Why a topic could not be described.
#[derive(Debug, thiserror::Error)]
pub(super) enum DescribeError {
    /// The topic's own error: it does not exist, or may not be described.
    #[error("{0}")]
    Topic(RDKafkaErrorCode),
    /// No answer in time, or one that says nothing about the topic.
    #[error("{0}")]
    Call(String),
}

/// Describes one topic within the timeout. Blocks; never creates the topic.
pub(super) fn describe<C: ClientContext>(
    client: &Client<C>,
    topic: &str,
    timeout: Duration,
) -> Result<Described, DescribeError> {
    let name = CString::new(topic).map_err(|e| DescribeError::Call(e.to_string()))?;
    let queue = Queue::new(client)?;
    let options = Options::new(client, timeout)?;
    let topics = Topics::new(&name)?;
    // SAFETY: the client is borrowed, and the other three are live objects of the right types
    // for the whole call. librdkafka copies the topics and the options before it returns.
    unsafe {
        native::rd_kafka_DescribeTopics(
            client.native_ptr(),
            topics.0.as_ptr(),
            options.0.as_ptr(),
            queue.0.as_ptr(),
        );
    }
    let deadline = Instant::now() + timeout + ANSWER_SLACK;
    queue.answer(deadline)?.described()
}

/// The number of records that a consumer has fetched and not given out. Does not block.
pub(super) fn queue_length<C: ClientContext>(client: &Client<C>) -> u64 {
    // SAFETY: the client is borrowed; the call returns a new reference to its consumer queue,
    // or null when the client is not a consumer.
    let queue = unsafe { native::rd_kafka_queue_get_consumer(client.native_ptr()) };
    NonNull::new(queue).map(Queue).map_or(0, |queue| {
        // SAFETY: the queue is live until the end of this closure.
        unsafe { native::rd_kafka_queue_length(queue.0.as_ptr()) as u64 }
    })
}

/// librdkafka answers a request that timed out by itself, a little after its timeout.
const ANSWER_SLACK: Duration = Duration::from_millis(200);

fn milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

fn null(what: &str) -> DescribeError {
    DescribeError::Call(format!("librdkafka made no {what}"))
}

/// A reference to a queue.
struct Queue(NonNull<native::rd_kafka_queue_t>);

impl Queue {
    fn new<C: ClientContext>(client: &Client<C>) -> Result<Self, DescribeError> {
        // SAFETY: the client is borrowed for the call. librdkafka keeps it from being freed
        // while a queue of it exists, and no queue here outlives the borrow.
        let queue = unsafe { native::rd_kafka_queue_new(client.native_ptr()) };
        NonNull::new(queue).map(Self).ok_or_else(|| null("queue"))
    }

    /// Waits for the answer to a DescribeTopics request, dropping any other event.
    fn answer(&self, deadline: Instant) -> Result<Answer, DescribeError> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // SAFETY: the queue is live; the event that is returned is ours to destroy.
            let event = unsafe { native::rd_kafka_queue_poll(self.0.as_ptr(), milliseconds(left)) };
            let Some(event) = NonNull::new(event).map(Answer) else {
                return Err(DescribeError::Call("timed out".to_owned()));
            };
            // SAFETY: the event is live.
            let kind = unsafe { native::rd_kafka_event_type(event.0.as_ptr()) };
            if kind == native::RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT {
                return Ok(event);
            }
        }
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the reference is ours and is not used again.
        unsafe { native::rd_kafka_queue_destroy(self.0.as_ptr()) }
    }
}

/// The options of one request.
struct Options(NonNull<native::rd_kafka_AdminOptions_t>);

impl Options {
    fn new<C: ClientContext>(client: &Client<C>, timeout: Duration) -> Result<Self, DescribeError> {
        // SAFETY: the client is borrowed for the call.
        let options = unsafe {
            native::rd_kafka_AdminOptions_new(
                client.native_ptr(),
                native::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS,
            )
        };
        let options = NonNull::new(options)
            .map(Self)
            .ok_or_else(|| null("options"))?;
        // SAFETY: the options are live; a null buffer of size 0 takes no error text.
        let set = unsafe {
            native::rd_kafka_AdminOptions_set_request_timeout(
                options.0.as_ptr(),
                milliseconds(timeout).max(1),
                std::ptr::null_mut(),
                0,
            )
        };
        check(set)?;
        Ok(options)
    }
}

impl Drop for Options {
    fn drop(&mut self) {
        // SAFETY: the options are ours and are not used again.
        unsafe { native::rd_kafka_AdminOptions_destroy(self.0.as_ptr()) }
    }
}

/// The names of the topics asked for.
struct Topics(NonNull<native::rd_kafka_TopicCollection_t>);

impl Topics {
    fn new(name: &CStr) -> Result<Self, DescribeError> {
        let mut names = [name.as_ptr()];
        // SAFETY: the array has one pointer to a string that ends with a NUL, both live for
        // the call, which copies them.
        let topics = unsafe {
            native::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len())
        };
        NonNull::new(topics)
            .map(Self)
            .ok_or_else(|| null("collection"))
    }
}

impl Drop for Topics {
    fn drop(&mut self) {
        // SAFETY: the collection is ours and is not used again.
        unsafe { native::rd_kafka_TopicCollection_destroy(self.0.as_ptr()) }
    }
}

/// An event; what it says lives as long as it.
struct Answer(NonNull<native::rd_kafka_event_t>);

impl Answer {
    /// The one topic that was asked for.
    fn described(&self) -> Result<Described, DescribeError> {
        // SAFETY: the event is live.
        check(unsafe { native::rd_kafka_event_error(self.0.as_ptr()) })?;
        // SAFETY: the event is live; the result and all that is read from it belong to it.
        let result = unsafe { native::rd_kafka_event_DescribeTopics_result(self.0.as_ptr()) };
        if result.is_null() {
            return Err(null("result"));
        }
        let mut count = 0;
        // SAFETY: the result is not null and lives as long as the event.
        let topics =
            unsafe { native::rd_kafka_DescribeTopics_result_topics(result, &raw mut count) };
        // SAFETY: librdkafka returns an array of `count` pointers that lives with the event.
        let topic = unsafe { first(topics, count) }.ok_or_else(|| null("description"))?;
        // SAFETY: the description is not null and lives as long as the event.
        unsafe { described(topic) }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        // SAFETY: the event is ours, and nothing borrowed from it is used again.
        unsafe { native::rd_kafka_event_destroy(self.0.as_ptr()) }
    }
}

fn check(code: RDKafkaRespErr) -> Result<(), DescribeError> {
    if code == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Ok(());
    }
    let code = RDKafkaErrorCode::from(code);
    Err(DescribeError::Call(code.to_string()))
}

/// The first pointer of an array, unless it is empty or null.
///
/// # Safety
/// `array` is null or points to `count` pointers that may be read.
unsafe fn first<T>(array: *mut *const T, count: usize) -> Option<*const T> {
    if array.is_null() || count == 0 {
        return None;
    }
    // SAFETY: by the contract there is at least one pointer.
    let first = unsafe { *array };
    (!first.is_null()).then_some(first)
}

/// # Safety
/// `topic` is a live description.
unsafe fn described(
    topic: *const native::rd_kafka_TopicDescription_t,
) -> Result<Described, DescribeError> {
    // SAFETY: the description is live, by the contract; so is its error, which may be null.
    let error = unsafe { native::rd_kafka_TopicDescription_error(topic) };
    if !error.is_null() {
        // SAFETY: not null, and lives with the description.
        let code = unsafe { native::rd_kafka_error_code(error) };
        if code != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(DescribeError::Topic(code.into()));
        }
    }
    // SAFETY: the description is live.
    let id = unsafe { native::rd_kafka_TopicDescription_topic_id(topic) };
    if id.is_null() {
        return Err(null("topic id"));
    }
    // SAFETY: not null, and lives with the description.
    let (high, low) = unsafe {
        (
            native::rd_kafka_Uuid_most_significant_bits(id),
            native::rd_kafka_Uuid_least_significant_bits(id),
        )
    };
    if (high, low) == (0, 0) {
        // Brokers before 2.8, or with ZooKeeper metadata of that age.
        return Err(DescribeError::Call(
            "the brokers know no topic ids".to_owned(),
        ));
    }
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&high.to_be_bytes());
    bytes[8..].copy_from_slice(&low.to_be_bytes());
    // SAFETY: the description is live.
    let (partitions, replicas, led) = unsafe { partitions(topic) };
    Ok(Described {
        id: LogId(bytes),
        partitions,
        replicas,
        led,
    })
}

/// The number of partitions, the least number of replicas, and whether all have a leader.
///
/// # Safety
/// `topic` is a live description.
unsafe fn partitions(topic: *const native::rd_kafka_TopicDescription_t) -> (u32, u32, bool) {
    let mut count = 0;
    // SAFETY: the description is live, by the contract.
    let array = unsafe { native::rd_kafka_TopicDescription_partitions(topic, &raw mut count) };
    if array.is_null() || count == 0 {
        return (0, 0, false);
    }
    let (mut replicas_min, mut led) = (usize::MAX, true);
    for index in 0..count {
        // SAFETY: the array has `count` pointers to live partitions.
        let partition = unsafe { *array.add(index) };
        if partition.is_null() {
            return (0, 0, false);
        }
        let mut replicas = 0;
        // SAFETY: the partition is not null and lives with the description. The array of
        // replicas is not read, only counted.
        unsafe {
            native::rd_kafka_TopicPartitionInfo_replicas(partition, &raw mut replicas);
            led &= !native::rd_kafka_TopicPartitionInfo_leader(partition).is_null();
        }
        replicas_min = replicas_min.min(replicas);
    }
    let bounded = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    (bounded(count), bounded(replicas_min), led)
}
