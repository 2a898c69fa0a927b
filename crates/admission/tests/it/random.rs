//! Random calls, against Redis and against the model at once.

use crate::fixture::{
    CLAIM_KEYS, CLOSE_KEYS, LOG, NEVER, NONCE, attempt, claim_args, close_args, config, evalsha,
    head_of_start, key, key_of, keys, raw, redis, redis_ms, sale_id, user,
};
use crate::model::{Model, Said, expected_keys};
use dropgate_admission::{Claim, Operator, Scope, Scripts, State};
use dropgate_domain::{Definition, Generation, SaleId, Seq, TimeMs, Unit};
use dropgate_testkit::{Redis, RespConnection, Value};
use proptest::prelude::*;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::num::NonZeroU32;

/// Which generation a caller takes for current.
#[derive(Debug, Clone, Copy)]
enum Which {
    Current,
    Older,
    Newer,
}

/// What a caller says it has applied.
#[derive(Debug, Clone, Copy)]
enum Applied {
    /// So many below Redis' own seq.
    Below(u64),
    /// Above it: Redis lost writes.
    Above,
}

#[derive(Debug, Clone)]
enum Step {
    Claim {
        who: u8,
        key: u8,
        which: Which,
        applied: Applied,
        late: bool,
    },
    Close {
        which: Which,
        applied: Applied,
        late: bool,
    },
    Tip {
        which: Which,
        applied: Applied,
        max: usize,
    },
    /// Builds the generation after the current one from what is there.
    Build { closed: bool },
    /// Switches to a generation of this number, by its own marker or by a wrong one.
    Switch {
        number: u32,
        right: bool,
        other_log: bool,
    },
    /// The key that names the current generation is lost.
    Forget,
}

#[derive(Debug, Clone, Copy)]
struct Setup {
    stock: u64,
    limit: u32,
    window: u32,
    /// ms from the sale's opening; the calls of a case take some ms.
    opens_in: Option<i64>,
    closes_in: Option<i64>,
    /// The last event's time, ms from now: above 0 when another master's clock was ahead.
    time_in: i64,
    /// Where seq begins: numbers are the same on both sides of 2^32, and up to 2^53.
    seq: u64,
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![
        20 => Just(Which::Current),
        1 => Just(Which::Older),
        1 => Just(Which::Newer),
    ]
}

fn applied() -> impl Strategy<Value = Applied> {
    prop_oneof![30 => (0u64..8).prop_map(Applied::Below), 1 => Just(Applied::Above)]
}

fn step() -> impl Strategy<Value = Step> {
    let late = || prop::bool::weighted(0.05);
    prop_oneof![
        120 => (0u8..6, 0u8..4, which(), applied(), late()).prop_map(
            |(who, key, which, applied, late)| Step::Claim { who, key, which, applied, late }
        ),
        2 => (which(), applied(), late())
            .prop_map(|(which, applied, late)| Step::Close { which, applied, late }),
        20 => (which(), applied(), 0usize..5)
            .prop_map(|(which, applied, max)| Step::Tip { which, applied, max }),
        8 => prop::bool::weighted(0.1).prop_map(|closed| Step::Build { closed }),
        10 => (1u32..5, prop::bool::weighted(0.9), prop::bool::weighted(0.1))
            .prop_map(|(number, right, other_log)| Step::Switch { number, right, other_log }),
        1 => Just(Step::Forget),
    ]
}

fn setup() -> impl Strategy<Value = Setup> {
    let instant = || prop_oneof![5 => Just(None), 1 => (-5i64..40).prop_map(Some)];
    (
        0u64..20,
        prop_oneof![Just(1u32), 2u32..4],
        prop_oneof![1u32..6, Just(10_000)],
        instant(),
        instant(),
        prop_oneof![3 => Just(-1000i64), 1 => Just(3_600_000)],
        prop_oneof![Just(0u64), Just((1 << 32) - 3), Just((1 << 53) - 100)],
    )
        .prop_map(
            |(stock, limit, window, opens_in, closes_in, time_in, seq)| Setup {
                stock,
                limit,
                window,
                opens_in,
                closes_in,
                time_in,
                seq,
            },
        )
}

struct World<'a> {
    redis: &'a Redis,
    runtime: &'a tokio::runtime::Runtime,
    operator: &'a Operator,
    scripts: Scripts,
    gateway: RespConnection,
    model: Model,
    sale: SaleId,
    /// Generations 1 to 5, then generation 4 of another log.
    scopes: Vec<Scope>,
    attempts: u64,
    seen: &'a RefCell<BTreeMap<String, u64>>,
}

impl World<'_> {
    fn begin(&mut self, setup: Setup) {
        let now = i64::try_from(redis_ms(self.redis)).unwrap();
        let at = |ms: i64| TimeMs(u64::try_from(now + ms).unwrap());
        let state = State {
            definition: Definition {
                stock: setup.stock,
                per_user_limit: setup.limit,
                opens_at: setup.opens_in.map(at),
                closes_at: setup.closes_in.map(at),
                hold_seconds: 0,
            },
            next: Unit(1),
            seq: Seq(setup.seq),
            head: head_of_start(&self.sale, Generation(1)),
            time: at(setup.time_in),
            window: NonZeroU32::new(setup.window).unwrap(),
            closed: false,
        };
        self.build(0, &state);
        self.switch("", 0, state.seq, state.head);
    }

    fn build(&mut self, index: usize, state: &State) {
        let scope = self.scopes[index].clone();
        let claims = match &self.model.current {
            Some(tag) => self.model.generations[tag].claims.clone(),
            None => Default::default(),
        };
        if self.model.generations.contains_key(scope.tag()) {
            return;
        }
        self.runtime
            .block_on(self.operator.build(&scope, state, claims.clone()))
            .unwrap();
        self.model.build(&scope, state, &claims);
    }

    fn switch(&mut self, from: &str, index: usize, seq: Seq, head: dropgate_domain::Digest) {
        let scope = self.scopes[index].clone();
        let reply = evalsha(
            &mut self.operator_connection(),
            self.scripts.switch_generation,
            &keys(&scope, &["current", "state", "claims"]),
            &[
                from.as_bytes().to_vec(),
                scope.tag().as_bytes().to_vec(),
                seq.to_string().into_bytes(),
                head.0.to_vec(),
            ],
        );
        let expected = self.model.switch(from, &scope, seq, head);
        self.compare("switch", &reply, |_, _| expected);
    }

    fn operator_connection(&self) -> RespConnection {
        let password = dropgate_testkit::redis::OPERATOR_PASSWORD;
        self.redis.connect_as("operator", password).unwrap()
    }

    fn current_index(&self) -> usize {
        let is_current = |scope: &Scope| Some(scope.tag()) == self.model.current.as_deref();
        self.scopes.iter().position(is_current).unwrap_or(0)
    }

    fn scope(&self, which: Which) -> Scope {
        let current = self.current_index();
        let index = match which {
            Which::Current => current,
            Which::Older => current.saturating_sub(1),
            Which::Newer => (current + 1).min(self.scopes.len() - 1),
        };
        self.scopes[index].clone()
    }

    fn applied(&self, scope: &Scope, applied: Applied) -> Seq {
        let built = self.model.generations.get(scope.tag());
        let (seq, first) = built.map_or((0, 0), |b| (b.state.seq.0, b.marker.0.0));
        Seq(match applied {
            Applied::Below(n) => seq.saturating_sub(n).max(first),
            Applied::Above => seq + 1,
        })
    }

    fn step(&mut self, step: &Step) {
        let deadline = |late: bool| TimeMs(if late { 1 } else { NEVER });
        match *step {
            Step::Claim {
                who,
                key: k,
                which,
                applied,
                late,
            } => self.claim(who, k, which, applied, deadline(late)),
            Step::Close {
                which,
                applied,
                late,
            } => {
                let (scope, deadline) = (self.scope(which), deadline(late));
                let applied = self.applied(&scope, applied);
                let reply = evalsha(
                    &mut self.gateway,
                    self.scripts.close_sale,
                    &keys(&scope, &CLOSE_KEYS),
                    &close_args(&scope, applied.0, deadline.0),
                );
                self.compare("close", &reply, |model, now| {
                    model.close(&scope, applied, deadline, now)
                });
            }
            Step::Tip {
                which,
                applied,
                max,
            } => {
                let scope = self.scope(which);
                let applied = self.applied(&scope, applied);
                let reply = evalsha(
                    &mut self.gateway,
                    self.scripts.read_tip,
                    &keys(&scope, &CLOSE_KEYS),
                    &[
                        scope.tag().as_bytes().to_vec(),
                        applied.to_string().into_bytes(),
                        max.to_string().into_bytes(),
                    ],
                );
                self.compare("tip", &reply, |model, now| {
                    model.tip(&scope, applied, max, now)
                });
            }
            Step::Build { closed } => self.build_next(closed),
            Step::Switch {
                number,
                right,
                other_log,
            } => self.switch_to(number, right, other_log),
            Step::Forget => {
                let current = key_of(&self.scopes[0], "current");
                self.redis.cli(&["DEL", &current]).unwrap();
                self.model.current = None;
            }
        }
    }

    fn claim(&mut self, who: u8, k: u8, which: Which, applied: Applied, deadline: TimeMs) {
        self.attempts += 1;
        let claim = Claim {
            user: user(&format!("user-{who}")),
            key: key(["", "k", "K", "key 3"][usize::from(k)]),
            attempt: attempt(self.attempts),
        };
        let scope = self.scope(which);
        let applied = self.applied(&scope, applied);
        let reply = evalsha(
            &mut self.gateway,
            self.scripts.claim_unit,
            &keys(&scope, &CLAIM_KEYS),
            &claim_args(&scope, applied.0, deadline.0, &claim),
        );
        self.compare("claim", &reply, |model, now| {
            model.claim(&scope, applied, deadline, &claim, now)
        });
    }

    fn build_next(&mut self, closed: bool) {
        let Some(current) = self.model.current.clone() else {
            return;
        };
        let index = self.current_index() + 1;
        if index >= self.scopes.len() {
            return;
        }
        let mut state = self.model.generations[&current].state.clone();
        state.head = head_of_start(&self.sale, self.scopes[index].generation());
        state.closed |= closed;
        self.build(index, &state);
    }

    fn switch_to(&mut self, number: u32, right: bool, other_log: bool) {
        let index = if other_log {
            self.scopes.len() - 1
        } else {
            number as usize - 1
        };
        let from = self.model.current.clone().unwrap_or_default();
        let from = if right { from } else { String::new() };
        let built = self.model.generations.get(self.scopes[index].tag());
        let (seq, head) = match built {
            Some(built) if right => built.marker,
            _ => (Seq(7), dropgate_domain::Digest([7; 20])),
        };
        self.switch(&from, index, seq, head);
    }

    /// Compares a reply and all keys with the model's.
    fn compare(&mut self, what: &str, reply: &Value, ask: impl FnOnce(&mut Model, TimeMs) -> Said) {
        let Value::Array(fields) = reply else {
            panic!("{what}: {reply:?}");
        };
        let now = TimeMs(u64::try_from(fields[1].int().unwrap()).unwrap());
        let expected = ask(&mut self.model, now);
        let status = format!("{what} {}", fields[0].text().unwrap());
        *self.seen.borrow_mut().entry(status).or_default() += 1;
        let mut found = fields.clone();
        found.remove(1);
        assert_eq!(found, expected, "{what} at {now}");
        self.compare_keys(what);
    }

    fn compare_keys(&mut self, what: &str) {
        let mut admin = self.redis.connect().unwrap();
        let pattern = format!("dropgate:{{{}}}:*", self.sale);
        let found = admin.command(&["KEYS", &pattern]).unwrap();
        let items = found.items().unwrap().iter();
        let mut found: Vec<String> = items.map(|key| key.text().unwrap()).collect();
        found.sort();
        let scopes = &self.scopes;
        assert_eq!(found, expected_keys(&self.model, scopes), "after {what}");
        let current = admin
            .command(&["GET", &key_of(&scopes[0], "current")])
            .unwrap();
        assert_eq!(current.text(), self.model.current, "after {what}");
        for scope in scopes {
            let Some(built) = self.model.generations.get(scope.tag()) else {
                continue;
            };
            let state = hash(&mut admin, &key_of(scope, "state"));
            assert_eq!(state, built.fields(), "state of {scope:?} after {what}");
            let claims = hash(&mut admin, &key_of(scope, "claims"));
            assert_eq!(claims, built.claims(), "claims of {scope:?} after {what}");
            let mut outbox = stream(&mut admin, &key_of(scope, "outbox"));
            outbox
                .retain(|seq, event| *seq > built.applied || built.events.get(seq) != Some(event));
            assert_eq!(outbox, built.outbox, "outbox of {scope:?} after {what}");
        }
    }
}

fn hash(admin: &mut RespConnection, key: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let all = admin.command(&["HGETALL", key]).unwrap();
    let bytes = |value: &Value| value.bytes().unwrap().to_vec();
    let pairs = all.items().unwrap().chunks(2);
    pairs
        .map(|pair| (bytes(&pair[0]), bytes(&pair[1])))
        .collect()
}

fn stream(admin: &mut RespConnection, key: &str) -> BTreeMap<Seq, Vec<u8>> {
    let all = admin.command(&["XRANGE", key, "-", "+"]).unwrap();
    let entry = |entry: &Value| {
        let parts = entry.items().unwrap();
        let id = parts[0].text().unwrap();
        let fields = parts[1].items().unwrap();
        assert_eq!(fields[0].text().as_deref(), Some("e"));
        let seq = id.strip_suffix("-0").unwrap().parse().unwrap();
        (Seq(seq), fields[1].bytes().unwrap().to_vec())
    };
    all.items().unwrap().iter().map(entry).collect()
}

#[test]
fn scripts_do_what_the_model_does() {
    let redis = redis();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let operator = Operator::new(config(&redis.operator_url()));
    let hashes = runtime
        .block_on(operator.load_scripts(&sale_id("drop-1"), NONCE))
        .unwrap();
    let scripts = Scripts::from_started(&hashes).unwrap();
    let (case, seen) = (Cell::new(0), RefCell::new(BTreeMap::new()));
    let cases = ProptestConfig::with_cases(96);
    proptest!(cases, |(setup in setup(), steps in prop::collection::vec(step(), 1..100))| {
        case.set(case.get() + 1);
        let sale = sale_id(&format!("case-{}", case.get()));
        let scope = |g| Scope::new(sale.clone(), LOG, Generation(g));
        let mut scopes: Vec<Scope> = (1..=5).map(scope).collect();
        let other = dropgate_domain::LogId([8; 16]);
        scopes.push(Scope::new(sale.clone(), other, Generation(4)));
        let mut world = World {
            redis: &redis,
            runtime: &runtime,
            operator: &operator,
            scripts,
            gateway: raw(&redis),
            model: Model::default(),
            sale,
            scopes,
            attempts: 0,
            seen: &seen,
        };
        world.begin(setup);
        for step in &steps {
            world.step(step);
        }
    });
    println!("replies seen: {:?}", seen.borrow());
}
