//! Reading, laying over, and finding everything that is wrong.

use super::tree::{Path, Step, Tree, Variable};
use super::{Problem, Problems, Validate};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use serde_path_to_error::Segment;

/// What a variable of the environment begins with when it is ours.
pub const ENV_PREFIX: &str = "DROPGATE_";

/// Variables with our prefix that are not keys: the path of the file itself, and what the
/// commands read besides. An operator's shell may well hold them when a service is started.
const NOT_KEYS: [&str; 5] = [
    "DROPGATE_CONFIG",
    "DROPGATE_ADMIN_KEY",
    "DROPGATE_ADMIN_KEY_FILE",
    "DROPGATE_ADMIN_URL",
    "DROPGATE_LOADTEST_TOKEN_SECRET",
];

/// Reads the file (if one is given) and the environment of this process.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn load<T>(file: Option<&std::path::Path>) -> Result<T, Problems>
where
    T: DeserializeOwned + Validate,
{
    let text = match file {
        None => String::new(),
        Some(path) => std::fs::read_to_string(path).map_err(|e| {
            let what = format!("cannot read {}: {e}", path.display());
            Problems(vec![Problem::new("", what)])
        })?,
    };
    let mut unreadable = Vec::new();
    let env: Vec<_> = std::env::vars_os()
        .filter_map(|(name, value)| {
            let name = name.into_string().ok()?;
            if !name.starts_with(ENV_PREFIX) {
                return None;
            }
            let value = value.into_string();
            if value.is_err() {
                unreadable.push(Problem::new(&*name, "text in UTF-8"));
            }
            Some((name, value.ok()?))
        })
        .collect();
    match load_from(&text, env) {
        Ok(config) if unreadable.is_empty() => Ok(config),
        Ok(_) => Err(Problems(unreadable)),
        Err(Problems(found)) => Err(Problems(unreadable.into_iter().chain(found).collect())),
    }
}

/// The same from a file's text and an environment that are given, for tests.
///
/// The defaults are those of `T`: every struct in it says `#[serde(default, deny_unknown_fields)]`.
///
/// # Errors
/// Everything that is wrong, at once.
pub fn load_from<T>(
    file: &str,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<T, Problems>
where
    T: DeserializeOwned + Validate,
{
    let mut problems = Vec::new();
    let mut whole = true;
    let root = parse(file).unwrap_or_else(|problem| {
        problems.push(problem);
        whole = false;
        Map::new()
    });
    let mut tree = Tree::new(root);
    for (name, text) in env {
        problems.extend(overlay(&mut tree, name, text));
    }
    let config: Option<T> = deserialize(&mut tree, &mut problems);
    if let (Some(config), true) = (&config, whole) {
        // What was replaced by its default has been reported; its brothers have not.
        let known: Vec<String> = problems.iter().map(|p| p.path.clone()).collect();
        let news = config
            .problems()
            .into_iter()
            .filter(|p| !overlaps(&known, &p.path));
        problems.extend(news);
    }
    problems.sort_by(|a, b| a.path.cmp(&b.path));
    match config {
        Some(config) if problems.is_empty() => Ok(config),
        _ => Err(Problems(problems)),
    }
}

/// The file as a tree. A problem names the line and not its text, which may be a secret.
fn parse(file: &str) -> Result<Map<String, Value>, Problem> {
    toml::from_str(file).map_err(|e| {
        let upto = e.span().map_or(0, |span| span.start);
        let line = 1 + file.bytes().take(upto).filter(|b| *b == b'\n').count();
        Problem::new("", format!("line {line} of the file: {}", e.message()))
    })
}

fn overlay(tree: &mut Tree, name: String, text: String) -> Option<Problem> {
    let rest = name.strip_prefix(ENV_PREFIX)?;
    if NOT_KEYS.contains(&name.as_str()) || is_service_link(rest) {
        return None;
    }
    let path = rest.to_lowercase();
    let keys: Vec<&str> = path.split("__").collect();
    if keys.len() < 2 || keys.iter().any(|k| k.is_empty()) {
        let expected = format!("a variable {ENV_PREFIX}SECTION__KEY (two underscores)");
        return Some(Problem::new(name, expected));
    }
    let value = toml_value(&text).unwrap_or_else(|| Value::String(text.clone()));
    let variable = Variable {
        name: name.clone(),
        text: Some(text),
    };
    tree.set(&keys, value, variable).err().map(|()| Problem {
        path: keys.join("."),
        expected: "no such key: what it should be in is not a table".into(),
        variable: Some(name),
    })
}

/// Kubernetes tells every pod about every service of its namespace by variables: for a service
/// `dropgate-gateway` they have our prefix. They are not keys.
fn is_service_link(rest: &str) -> bool {
    let port = |tail: &str| {
        tail.split_once("_PORT_").is_some_and(|(_, tail)| {
            tail.split_once('_')
                .is_some_and(|(number, _)| number.parse::<u16>().is_ok())
        })
    };
    !rest.contains("__")
        && (rest.ends_with("_SERVICE_HOST")
            || rest.contains("_SERVICE_PORT")
            || rest.ends_with("_PORT")
            || port(rest))
}

fn toml_value(text: &str) -> Option<Value> {
    // A whole document of one key, so that a value of several lines works too.
    let mut table: Map<String, Value> = toml::from_str(&format!("v = {text}")).ok()?;
    (table.len() == 1).then(|| table.remove("v")).flatten()
}

/// Deserializes; what does not fit is noted, taken out (so that its default stands in) and the
/// rest is tried again. `None` when even that did not help.
fn deserialize<T: DeserializeOwned>(tree: &mut Tree, problems: &mut Vec<Problem>) -> Option<T> {
    // Each round takes a value out or turns one into text, so this many are enough.
    for _ in 0..=2 * tree.size() {
        let error = match serde_path_to_error::deserialize(&tree.root) {
            Ok(config) => return Some(config),
            Err(error) => error,
        };
        let path = steps(error.path());
        if tree.retry_as_text(&path) {
            continue;
        }
        let message = error.inner().to_string();
        let place = tree.display(&path);
        if !taken_out_before(problems, &place, &message) {
            problems.push(Problem {
                expected: expectation(tree, &path, &message),
                path: place,
                variable: tree.variable(&path).map(|v| v.name.clone()),
            });
        }
        if !tree.remove(&path) {
            return None;
        }
    }
    None
}

/// Whether a field is missing only because its value, which has been reported, was taken out.
fn taken_out_before(problems: &[Problem], place: &str, message: &str) -> bool {
    message.strip_prefix("missing field ").is_some_and(|field| {
        let path = format!("{place}.{}", field.trim_matches('`'));
        problems.iter().any(|p| p.path == path)
    })
}

fn steps(path: &serde_path_to_error::Path) -> Path {
    path.iter()
        .filter_map(|segment| match segment {
            Segment::Seq { index } => Some(Step::Index(*index)),
            Segment::Map { key } => Some(Step::Key(key.clone())),
            Segment::Enum { .. } | Segment::Unknown => None,
        })
        .collect()
}

/// What serde says, without the value that it found.
fn expectation(tree: &mut Tree, path: &[Step], message: &str) -> String {
    if let Some(rest) = message.strip_prefix("unknown field ") {
        let (_, known) = rest.split_once(", ").unwrap_or((rest, "there are none"));
        return format!("unknown key: {known}");
    }
    if message.starts_with("invalid ")
        && let Some((_, expected)) = message.rsplit_once(", expected ")
    {
        return format!("expected {expected}");
    }
    let found = match tree.get(path) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => return message.to_owned(),
    };
    if found.is_empty() {
        message.to_owned()
    } else {
        message.replace(&found, "...")
    }
}

/// Whether `path` is, holds, or is in one of the `known` ones.
fn overlaps(known: &[String], path: &str) -> bool {
    let within = |outer: &str, inner: &str| {
        inner
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    };
    known.iter().any(|k| within(k, path) || within(path, k))
}
