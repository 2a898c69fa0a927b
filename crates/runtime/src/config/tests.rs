use super::{Problem, Problems, Validate, load_from};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use std::net::SocketAddr;
use std::time::Duration;

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Http {
    bind: SocketAddr,
    workers: u16,
    #[serde(with = "humantime_serde")]
    patience: Duration,
    origins: Vec<String>,
}

impl Default for Http {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from(([127, 0, 0, 1], 8080)),
            workers: 2,
            patience: Duration::from_secs(5),
            origins: Vec::new(),
        }
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Key {
    kid: String,
    secret: SecretString,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Config {
    http: Http,
    keys: Vec<Key>,
    db: Db,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Db {
    url: Option<SecretString>,
}

impl Validate for Config {
    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.http.workers == 0 {
            problems.push(Problem::new("http.workers", "1 or more"));
        }
        if self.http.patience.is_zero() {
            problems.push(Problem::new("http.patience", "longer than zero"));
        }
        problems
    }
}

fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(k, v)| ((*k).into(), (*v).into()))
        .collect()
}

fn load(file: &str, vars: &[(&str, &str)]) -> Result<Config, Vec<(String, String)>> {
    load_from(file, env(vars)).map_err(|Problems(all)| {
        all.into_iter()
            .map(|p| (p.path.clone(), p.to_string()))
            .collect()
    })
}

#[test]
fn the_environment_wins_over_the_file_and_the_file_over_the_defaults() {
    let file = "[http]\nworkers = 3\npatience = '2s'\n";
    let config = load(file, &[("DROPGATE_HTTP__WORKERS", "4")]).unwrap();
    assert_eq!(config.http.workers, 4);
    assert_eq!(config.http.patience, Duration::from_secs(2));
    assert_eq!(config.http.bind.port(), 8080);
}

#[test]
fn variables_hold_lists_tables_and_bare_text() {
    let config = load(
        "",
        &[
            ("DROPGATE_HTTP__ORIGINS", r#"["https://a", "https://b"]"#),
            ("DROPGATE_HTTP__BIND", "0.0.0.0:9"),
            ("DROPGATE_DB__URL", "12345"),
            ("PATH", "/bin"),
        ],
    )
    .unwrap();
    assert_eq!(config.http.origins, ["https://a", "https://b"]);
    assert_eq!(config.http.bind.port(), 9);
    // A password of digits is text, though it could be read as a number.
    assert_eq!(config.db.url.unwrap().expose_secret(), "12345");
}

#[test]
fn every_problem_is_reported_at_once_with_its_path() {
    let file = r#"
        [http]
        bind = "nowhere"
        workers = "many"
        patience = "0s"
        colour = "red"
        [[keys]]
        kid = "a"
        secret = "s3cret-a"
        [[keys]]
        kid = "b"
        [[keys]]
        kid = 7
        secret = "s3cret-c"
        [mystery]
        x = 1
    "#;
    let vars = [
        ("DROPGATE_HTTP__ORIGINS", "5"),
        ("DROPGATE_DB__URLL", "postgres://u:hunter2@h/db"),
        ("DROPGATE_LOGLEVEL", "x"),
    ];
    let problems = load(file, &vars).unwrap_err();
    let paths: Vec<_> = problems.iter().map(|(path, _)| path.as_str()).collect();
    let expected = [
        "DROPGATE_LOGLEVEL",
        "db.urll",
        "http.bind",
        "http.colour",
        "http.origins",
        "http.patience",
        "http.workers",
        "keys[1]",
        "keys[2].kid",
        "mystery",
    ];
    assert_eq!(paths, expected, "{problems:#?}");
    let text = format!("{problems:?}");
    assert!(text.contains("DROPGATE_DB__URLL"), "{text}");
    for secret in ["hunter2", "s3cret", "nowhere", "many"] {
        assert!(!text.contains(secret), "{secret} in {text}");
    }
}

#[test]
fn a_secret_of_the_wrong_type_is_not_repeated() {
    let problems = load("[db]\nurl = 987654\n", &[]).unwrap_err();
    assert_eq!(problems[0].0, "db.url");
    assert!(!problems[0].1.contains("987654"), "{problems:?}");
}

#[test]
fn a_broken_file_is_named_by_line_and_not_by_content() {
    let problems = load("[db]\nurl = \"hunter2\n", &[("DROPGATE_X__Y", "1")]).unwrap_err();
    let text = format!("{problems:?}");
    assert!(text.contains("line 2"), "{text}");
    assert!(text.contains("DROPGATE_X__Y"), "{text}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn variables_that_kubernetes_sets_are_not_keys() {
    let vars = [
        ("DROPGATE_GATEWAY_PORT", "tcp://10.0.0.1:80"),
        ("DROPGATE_GATEWAY_PORT_80_TCP", "tcp://10.0.0.1:80"),
        ("DROPGATE_GATEWAY_SERVICE_HOST", "10.0.0.1"),
        ("DROPGATE_GATEWAY_SERVICE_PORT_HTTP", "80"),
        ("DROPGATE_CONFIG", "/etc/dropgate.toml"),
    ];
    assert!(load("", &vars).is_ok());
}

#[test]
fn the_debug_form_of_a_config_shows_no_secret() {
    let file = "[[keys]]\nkid = 'a'\nsecret = 'hunter2'\n";
    let config = load(file, &[]).unwrap();
    assert_eq!(config.keys[0].kid, "a");
    assert_eq!(config.keys[0].secret.expose_secret(), "hunter2");
    let text = format!("{config:?}");
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn a_key_that_leads_through_a_value_is_a_problem() {
    let problems = load("[db]\nurl = 'x'\n", &[("DROPGATE_DB__URL__HOST", "h")]).unwrap_err();
    assert_eq!(problems[0].0, "db.url.host");
}
