//! Admission in Redis: keys, scripts as typed calls, the fence, the outbox.
