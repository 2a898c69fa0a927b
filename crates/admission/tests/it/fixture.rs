//! A Redis with one sale on it, and the ways to look at it.

use dropgate_admission::{Admission, Claim, Entry, Operator, RedisConfig, Scope, Scripts, State};
use dropgate_domain::{
    AttemptId, Body, CALLS_VERSION, Definition, Digest, Event, Generation, IdempotencyKey,
    Identity, LogId, Nonce, RULE_VERSION, SaleId, ScriptHash, Seq, Started, TimeMs, Unit, UserId,
};
use dropgate_testkit::redis::GATEWAY_PASSWORD;
use dropgate_testkit::{Redis, RedisOptions, RespConnection, Value};
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

pub const LOG: LogId = LogId([7; 16]);
pub const NONCE: Nonce = Nonce([9; 16]);
/// A deadline that no test reaches.
pub const NEVER: u64 = 1 << 52;
/// How long a test waits for what must come; a bound on "hangs", never on "is slow".
pub const PATIENCE: Duration = Duration::from_secs(30);

pub fn redis() -> Redis {
    Redis::start(&RedisOptions::default()).unwrap()
}

pub fn config(url: &str) -> RedisConfig {
    RedisConfig {
        // Tests share two cores: a second is short there.
        command_timeout: Duration::from_secs(10),
        call_deadline: Duration::from_secs(60),
        connect_timeout: Duration::from_secs(10),
        ..RedisConfig::at(url)
    }
}

pub fn sale_id(name: &str) -> SaleId {
    SaleId::new(name).unwrap()
}

pub fn user(name: &str) -> UserId {
    UserId::new(name).unwrap()
}

pub fn key(name: &str) -> IdempotencyKey {
    IdempotencyKey::new(name).unwrap()
}

pub fn attempt(n: u64) -> AttemptId {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&n.to_le_bytes());
    // Not UTF-8, so that binary replies of both kinds are seen.
    bytes[15] = 0xff;
    AttemptId(bytes)
}

pub fn claim(name: &str, n: u64) -> Claim {
    Claim {
        user: user(name),
        key: IdempotencyKey::none(),
        attempt: attempt(n),
    }
}

/// The record that begins a generation, as the log holds it.
pub fn started(sale: &SaleId, generation: Generation, scripts: Vec<ScriptHash>) -> Event {
    Event {
        sale: sale.clone(),
        generation,
        body: Body::Started(Box::new(Started {
            identity: Identity([1; 16]),
            nonce: NONCE,
            scripts,
            rule: RULE_VERSION,
            calls: CALLS_VERSION,
            window: NonZeroU32::new(100).unwrap(),
            definition: (generation == Generation(1)).then(|| Definition::of(1)),
            by: "test".into(),
            reason: "test".into(),
            at: None,
        })),
    }
}

/// What the first event of a generation holds as its `prev`.
pub fn head_of_start(sale: &SaleId, generation: Generation) -> Digest {
    let event = started(sale, generation, dropgate_admission::hashes_for(NONCE));
    dropgate_events::digest(&dropgate_events::encode_event(&event))
}

/// The state with which a sale opens.
pub fn fresh(sale: &SaleId, definition: Definition) -> State {
    State {
        definition,
        next: Unit(1),
        seq: Seq(0),
        head: head_of_start(sale, Generation(1)),
        time: TimeMs(1),
        window: NonZeroU32::new(10_000).unwrap(),
        closed: false,
    }
}

/// A live sale with both clients.
pub struct Sale {
    pub operator: Operator,
    pub gateway: Admission,
    pub scope: Scope,
    pub scripts: Scripts,
    pub redis: Redis,
}

impl Sale {
    pub async fn open(definition: Definition) -> Self {
        Self::open_with(definition, |_| {}, config).await
    }

    /// A sale whose state and configuration are not the usual ones.
    pub async fn open_with(
        definition: Definition,
        change: impl FnOnce(&mut State),
        config: impl Fn(&str) -> RedisConfig,
    ) -> Self {
        let redis = redis();
        let operator = Operator::new(config(&redis.operator_url()));
        let gateway = Admission::connect(&config(&redis.gateway_url()))
            .await
            .unwrap();
        let hashes = operator
            .load_scripts(&sale_id("drop-1"), NONCE)
            .await
            .unwrap();
        let scripts = Scripts::from_started(&hashes).unwrap();
        let scope = Scope::new(sale_id("drop-1"), LOG, Generation(1));
        let mut state = fresh(scope.sale(), definition);
        change(&mut state);
        make_current(&operator, &scripts, &scope, &state, []).await;
        Self {
            operator,
            gateway,
            scope,
            scripts,
            redis,
        }
    }

    pub fn key(&self, name: &str) -> String {
        key_of(&self.scope, name)
    }

    /// Every key of this Redis with its contents.
    pub fn dump(&self) -> BTreeMap<Vec<u8>, Vec<u8>> {
        dump(&self.redis)
    }

    pub fn cli(&self, args: &[&str]) -> String {
        self.redis.cli(args).unwrap()
    }

    /// How often a command was run, by Redis' own count.
    pub fn calls(&self, command: &str) -> u64 {
        let stats = self.cli(&["INFO", "commandstats"]);
        let line = format!("cmdstat_{command}:calls=");
        let count = |l: &str| l.strip_prefix(&line)?.split(',').next()?.parse().ok();
        stats.lines().find_map(count).unwrap_or(0)
    }
}

pub async fn make_current(
    operator: &Operator,
    scripts: &Scripts,
    scope: &Scope,
    state: &State,
    claims: impl IntoIterator<Item = (UserId, Vec<Entry>)>,
) {
    operator.build(scope, state, claims).await.unwrap();
    let switched = operator
        .switch(scripts, None, scope, state.seq, state.head)
        .await
        .unwrap();
    assert_eq!(switched.value, dropgate_admission::Switched::Switched);
}

/// The name of a key, written down once more.
pub fn key_of(scope: &Scope, name: &str) -> String {
    match name {
        "current" => format!("dropgate:{{{}}}:current", scope.sale()),
        _ => format!("dropgate:{{{}}}:{}:{name}", scope.sale(), scope.tag()),
    }
}

pub fn dump(redis: &Redis) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut connection = redis.connect().unwrap();
    let keys = connection.command(&["KEYS", "*"]).unwrap();
    let mut all = BTreeMap::new();
    for key in keys.items().unwrap() {
        let key = key.bytes().unwrap().to_vec();
        let value = connection.command(&[&b"DUMP"[..], &key]).unwrap();
        all.insert(key, value.bytes().unwrap().to_vec());
    }
    all
}

/// A connection as the gateway's user, for calls with arguments that the client never makes.
pub fn raw(redis: &Redis) -> RespConnection {
    redis.connect_as("gateway", GATEWAY_PASSWORD).unwrap()
}

pub fn evalsha(
    connection: &mut RespConnection,
    sha1: Digest,
    keys: &[String],
    args: &[Vec<u8>],
) -> Value {
    let mut all = vec![b"EVALSHA".to_vec(), sha1.to_string().into_bytes()];
    all.push(keys.len().to_string().into_bytes());
    all.extend(keys.iter().map(|key| key.clone().into_bytes()));
    all.extend_from_slice(args);
    connection.command(&all).unwrap()
}

/// The arguments of `claim_unit`.
pub fn claim_args(scope: &Scope, applied: u64, deadline: u64, claim: &Claim) -> Vec<Vec<u8>> {
    let prefix = dropgate_events::won_prefix(
        scope.sale(),
        scope.generation(),
        &claim.user,
        claim.attempt,
        &claim.key,
    );
    vec![
        scope.tag().as_bytes().to_vec(),
        applied.to_string().into_bytes(),
        deadline.to_string().into_bytes(),
        claim.user.as_str().as_bytes().to_vec(),
        claim.key.as_str().as_bytes().to_vec(),
        claim.attempt.0.to_vec(),
        prefix,
    ]
}

/// The arguments of `close_sale`.
pub fn close_args(scope: &Scope, applied: u64, deadline: u64) -> Vec<Vec<u8>> {
    vec![
        scope.tag().as_bytes().to_vec(),
        applied.to_string().into_bytes(),
        deadline.to_string().into_bytes(),
        dropgate_events::closed_prefix(scope.sale(), scope.generation()),
    ]
}

pub fn keys(scope: &Scope, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| key_of(scope, name)).collect()
}

pub const CLAIM_KEYS: [&str; 4] = ["current", "state", "claims", "outbox"];
pub const CLOSE_KEYS: [&str; 3] = ["current", "state", "outbox"];

/// Redis' own time in ms.
pub fn redis_ms(redis: &Redis) -> u64 {
    let time = redis.command(&["TIME"]).unwrap();
    let parts: Vec<u64> = time
        .items()
        .unwrap()
        .iter()
        .map(|part| u64::try_from(part.int().unwrap()).unwrap())
        .collect();
    parts[0] * 1000 + parts[1] / 1000
}

/// Asks until the answer is the one that must come.
pub async fn eventually<T: std::fmt::Debug, F: Future<Output = T>>(
    what: &str,
    mut ask: impl FnMut() -> F,
    is_it: impl Fn(&T) -> bool,
) -> T {
    let begun = std::time::Instant::now();
    loop {
        let seen = ask().await;
        if is_it(&seen) {
            return seen;
        }
        assert!(
            begun.elapsed() < PATIENCE,
            "waited {PATIENCE:?} for {what}; last seen: {seen:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
