//! What is seen from outside while faults are injected: what each gateway says of the sale and of
//! itself, and processes that end by themselves.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use dropgate_testkit::http;
use dropgate_testkit::stack::Venue as _;
use serde_json::Value;

use crate::cell::{Cell, lock};
use crate::timeline::Timeline;

/// How often it looks.
const TICK: Duration = Duration::from_millis(40);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(1);

/// What is known of the sale by now.
#[derive(Debug, Default)]
pub struct Sight {
    /// Units sold, as the furthest gateway says.
    sold: AtomicU64,
    /// The generation, as the furthest gateway says.
    generation: AtomicU64,
    over: AtomicBool,
}

impl Sight {
    /// Units sold.
    #[must_use]
    pub fn sold(&self) -> u64 {
        self.sold.load(Ordering::SeqCst)
    }

    /// The generation.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// Ends the looking.
    pub fn finish(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }

    /// Looks at one gateway until the end.
    pub fn look_at(&self, cell: &Cell, gateway: usize, sale: &str, timeline: &Timeline) {
        let Some(ports) = cell.ports(gateway) else {
            return;
        };
        let name = format!("gateway {}", gateway + 1);
        let key = format!("Bearer {}", cell.settings().admin_key);
        let mut states = Changes::new(format!("{name}: the sale is"));
        let mut readiness = Changes::new(format!("{name}: /readyz is"));
        while !self.is_over() {
            let path = format!("/admin/v1/sales/{sale}");
            let headers = [("Authorization", key.as_str())];
            let shown = http::request(ports.admin, "GET", &path, &headers, "", ANSWER);
            let body = shown
                .ok()
                .and_then(|shown| serde_json::from_str(&shown.body).ok());
            if let Some(seen) = self.learn(body) {
                states.note(&seen, timeline);
            }
            let ready = http::request(ports.admin, "GET", "/readyz", &[], "", ANSWER);
            readiness.note_words(&readiness_text(ready.ok()), timeline);
            std::thread::sleep(TICK);
        }
    }

    /// What one answer says; `None` when it says nothing of the sale.
    fn learn(&self, body: Option<Value>) -> Option<String> {
        let body = body?;
        let state = body["state"].as_str()?;
        let version = body["version"].as_str().unwrap_or("0.0");
        let (generation, _) = version.split_once('.')?;
        if let Ok(number) = generation.parse() {
            self.generation.fetch_max(number, Ordering::SeqCst);
        }
        if let Some(sold) = body["sold"].as_u64() {
            self.sold.fetch_max(sold, Ordering::SeqCst);
        }
        Some(format!("{state}, generation {generation}"))
    }

    /// Starts services again that ended by themselves, until the end.
    pub fn supervise(&self, cell: &Cell, timeline: &Timeline) {
        while !self.is_over() {
            for service in cell.services() {
                let mut service = lock(service);
                match service.supervise() {
                    Ok(None) => {}
                    Ok(Some(said)) => {
                        let name = service.name();
                        timeline.seen(format!(
                            "{name} ended by itself and is started again:\n{said}"
                        ));
                    }
                    Err(error) => timeline.seen(format!("{}: {error:#}", service.name())),
                }
            }
            std::thread::sleep(TICK);
        }
    }
}

fn readiness_text(answer: Option<http::Response>) -> String {
    match answer {
        None => "not answered".to_owned(),
        Some(answer) if answer.status == 200 => "200".to_owned(),
        Some(answer) => format!("{} {}", answer.status, reasons(&answer.body)),
    }
}

/// The part of a readiness answer that says why not.
fn reasons(body: &str) -> String {
    const SHOWN_MAX: usize = 300;
    body.chars().take(SHOWN_MAX).collect()
}

/// Notes what differs from what was seen last.
struct Changes {
    what: String,
    last: Option<String>,
}

impl Changes {
    fn new(what: String) -> Self {
        Self { what, last: None }
    }

    fn note(&mut self, seen: &str, timeline: &Timeline) {
        self.note_if_new(seen, seen.to_owned(), timeline);
    }

    /// The same, but numbers that run are no news.
    fn note_words(&mut self, seen: &str, timeline: &Timeline) {
        let words = seen.replace(|c: char| c.is_ascii_digit(), "");
        self.note_if_new(seen, words, timeline);
    }

    fn note_if_new(&mut self, seen: &str, key: String, timeline: &Timeline) {
        if self.last.as_ref() != Some(&key) {
            timeline.seen(format!("{} {seen}", self.what));
            self.last = Some(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_furthest_gateway_counts() {
        let sight = Sight::default();
        let told = |version: &str, sold: u64| json!({"state": "open", "version": version, "stock": 500, "sold": sold});
        assert_eq!(
            sight.learn(Some(told("2.40", 40))).as_deref(),
            Some("open, generation 2")
        );
        sight.learn(Some(told("1.30", 30)));
        assert_eq!((sight.generation(), sight.sold()), (2, 40));
        assert_eq!(sight.learn(Some(json!({"code": "unavailable"}))), None);
        assert_eq!(sight.learn(None), None);
    }

    #[test]
    fn only_changes_are_noted() {
        let timeline = Timeline::begin();
        let mut changes = Changes::new("it is".to_owned());
        for seen in ["a 1", "a 2", "b", "a 3"] {
            changes.note(seen, &timeline);
        }
        assert_eq!(timeline.text(&[]).lines().count(), 4);
        for seen in ["log 1.2 s old", "log 1.9 s old", "503"] {
            changes.note_words(seen, &timeline);
        }
        assert_eq!(timeline.text(&[]).lines().count(), 6);
    }
}
