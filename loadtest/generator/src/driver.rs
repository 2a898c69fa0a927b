//! Drives clicks: one request at a time, from the intended start to the end,
//! and records what was seen. What differs between an open run, a spike and a
//! probe is only who calls this, and when.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, Uri};

use crate::client::{Link, Req};
use crate::outcome::{Answer, Ask, Broken, Clock, End, Fault, Journey, Step, Win};
use crate::plan::Plan;
use crate::progress::Progress;
use crate::record::{Outcome, Record, Times, micros};
use crate::schedule::{Click, mix, unit_interval};
use crate::target::followable;
use crate::transcript::{Line, Pen};
use crate::user::Users;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The run's clock: one start for all threads.
#[derive(Debug, Clone, Copy)]
pub struct Start {
    /// The start.
    pub at: Instant,
    /// The same moment in Unix milliseconds.
    pub unix_ms: u64,
}

impl Start {
    /// The time since the start; zero before it.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.at.elapsed()
    }

    fn unix_ms_at(&self, since: Duration) -> u64 {
        self.unix_ms
            .saturating_add(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
    }
}

/// A click under way.
#[derive(Debug)]
pub struct Walk {
    /// The click.
    pub click: Click,
    journey: Journey,
    asked: Duration,
}

impl Walk {
    /// A click that has not asked for anything yet.
    #[must_use]
    pub fn new(click: Click) -> Self {
        Self {
            click,
            journey: Journey::default(),
            asked: Duration::ZERO,
        }
    }
}

/// What became of a click by one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is done.
    Done(Outcome),
    /// It asks again after this time.
    After(Duration),
}

/// One thread's driver.
pub struct Driver {
    plan: Arc<Plan>,
    users: Arc<Users>,
    progress: Arc<Progress>,
    record: RefCell<Record>,
    pen: Option<RefCell<Pen>>,
    /// The run's clock.
    pub start: Start,
}

impl Driver {
    /// A driver with an empty record.
    ///
    /// # Errors
    /// When the record cannot be made.
    pub fn new(
        plan: Arc<Plan>,
        users: Arc<Users>,
        progress: Arc<Progress>,
        pen: Option<Pen>,
        start: Start,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            plan,
            users,
            progress,
            record: RefCell::new(Record::new()?),
            pen: pen.map(RefCell::new),
            start,
        })
    }

    /// The plan that is driven.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// A link of the plan's `nth` connection: targets and source addresses are
    /// dealt in turn.
    #[must_use]
    pub fn link(&self, nth: usize) -> Link {
        let source = self.plan.sources[nth / self.plan.targets.len() % self.plan.sources.len()];
        Link::new(self.target(nth), source)
    }

    /// Turns the plan's `nth` connection to where it is to go now.
    pub fn steer(&self, link: &mut Link, nth: usize) {
        let Some(balancer) = &self.plan.balancer else {
            return;
        };
        let to = self.target(balancer.target_of(nth));
        if !Arc::ptr_eq(link.target(), &to) {
            link.turn_to(to);
        }
    }

    /// The `nth` target, in turn.
    #[must_use]
    pub fn target(&self, nth: usize) -> Arc<crate::target::Target> {
        Arc::clone(&self.plan.targets[nth % self.plan.targets.len()])
    }

    /// Sends what the click asks for, once, and says what comes next.
    ///
    /// Not cancel safe: a dropped call leaves the click unrecorded.
    pub async fn advance(&self, link: &mut Link, walk: &mut Walk) -> Next {
        let now = self.start.elapsed();
        if walk.journey == Journey::default() {
            let late = now.saturating_sub(walk.click.at);
            self.record.borrow_mut().lag.saturating_record(micros(late));
            if late > self.plan.retry_budget {
                return self.end(link, walk, None, End::Error(Fault::NotSent)).await;
            }
        }
        let Some(request) = self.request(link, walk) else {
            return self.end(link, walk, None, End::Error(Fault::NotSent)).await;
        };
        walk.journey.sending();
        walk.asked = now;
        let opened = link.opened();
        let mut seen = link.exchange(request, self.plan.request_timeout).await;
        if let Ok(answer) = &mut seen {
            // A location of somebody else's machine counts as none.
            let location = answer.location.take();
            answer.location = location.filter(|to| followable(to, &self.plan.targets).is_some());
        }
        self.count(walk, &seen, link.opened() - opened);
        self.judge(link, walk, seen).await
    }

    async fn judge(&self, link: &Link, walk: &mut Walk, seen: Result<Answer, Broken>) -> Next {
        let clock = Clock {
            elapsed: self.start.elapsed().saturating_sub(walk.click.at),
            budget: self.plan.retry_budget,
        };
        let sent = u64::from(walk.journey.claims_sent() + walk.journey.polls_sent());
        let draw = mix(self.plan.repeats.seed ^ mix(walk.click.user ^ (sent << 48)));
        match walk.journey.step(&seen, clock, unit_interval(draw)) {
            Step::Done(end) => self.end(link, walk, seen.ok(), end).await,
            Step::Ask { after, void } => {
                if void {
                    self.record.borrow_mut().voids += 1;
                    let told = seen.ok();
                    self.tell(link, walk, told.as_ref(), "void", None).await;
                }
                Next::After(after)
            }
        }
    }

    fn count(&self, walk: &Walk, seen: &Result<Answer, Broken>, opened: u64) {
        let mut record = self.record.borrow_mut();
        record.connections += opened;
        match walk.journey.ask() {
            Ask::Claim if walk.journey.claims_sent() > 1 => record.retried_claims += 1,
            Ask::Claim => {}
            Ask::Poll(_) => record.polls += 1,
        }
        record.seen(seen);
    }

    /// The request that the click asks for; `None` when it cannot be made.
    fn request(&self, link: &Link, walk: &Walk) -> Option<Req> {
        let token = self.users.token(walk.click.user).ok()?;
        let mut bearer = HeaderValue::try_from(format!("Bearer {token}")).ok()?;
        bearer.set_sensitive(true);
        let (method, uri, body): (_, Uri, _) = match walk.journey.ask() {
            Ask::Claim => (
                Method::POST,
                link.target().claims(&self.plan.sale).ok()?,
                Bytes::from_static(b"{}"),
            ),
            Ask::Poll(location) => (
                Method::GET,
                followable(location, &self.plan.targets)?,
                Bytes::new(),
            ),
        };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        headers.insert(HOST, link.target().host.clone());
        headers.insert(AUTHORIZATION, bearer);
        if *walk.journey.ask() == Ask::Claim {
            headers.insert(CONTENT_TYPE, JSON);
            if let Some(key) = self.users.key(&walk.click) {
                headers.insert(IDEMPOTENCY_KEY, HeaderValue::try_from(key).ok()?);
            }
        }
        Some(request)
    }

    async fn end(&self, link: &Link, walk: &Walk, answer: Option<Answer>, end: End) -> Next {
        let times = Times {
            asked: walk.asked,
            done: self.start.elapsed(),
        };
        let outcome = self.record.borrow_mut().done(&walk.click, &end, times);
        self.progress.done(outcome);
        let status = match &end {
            End::Won(Win { again: false, .. }) => "won",
            End::Won(Win { again: true, .. }) => "again",
            End::SoldOut => "sold_out",
            End::Refused { .. } => "refused",
            End::Pending => "pending",
            End::Error(_) => "error",
        };
        let fault = match &end {
            End::Error(fault) => Some(fault.name()),
            _ => None,
        };
        self.tell(link, walk, answer.as_ref(), status, fault).await;
        Next::Done(outcome)
    }

    async fn tell(
        &self,
        link: &Link,
        walk: &Walk,
        answer: Option<&Answer>,
        status: &str,
        fault: Option<&str>,
    ) {
        let Some(pen) = &self.pen else { return };
        let body = answer.and_then(|answer| answer.body.as_ref());
        let key = self.users.key(&walk.click);
        let line = Line {
            sale: &self.plan.sale,
            user: &self.users.name(walk.click.user),
            key: key.as_deref(),
            click: walk.click.nth,
            attempt_no: walk.journey.claims_sent(),
            status,
            http: answer.map(|answer| answer.status),
            code: fault.or_else(|| body?.code.as_deref()),
            claim: body.and_then(|body| body.claim.as_deref()),
            unit: body.and_then(|body| body.unit),
            intended_ms: self.start.unix_ms_at(walk.click.at),
            done_ms: self.start.unix_ms_at(self.start.elapsed()),
            gateway: &link.target().base,
        };
        let chunk = pen.borrow_mut().add(&line);
        if let Some(chunk) = chunk {
            chunk.send().await;
        }
    }

    /// Forgets what was recorded so far.
    ///
    /// # Errors
    /// When a new record cannot be made.
    pub fn forget(&self) -> anyhow::Result<()> {
        self.record.replace(Record::new()?);
        Ok(())
    }

    /// Hands on the last lines and gives up what was recorded.
    pub async fn finish(self) -> Record {
        if let Some(pen) = &self.pen {
            let rest = pen.borrow_mut().rest();
            rest.send().await;
        }
        self.record.into_inner()
    }
}
