//! `dropgate sale`: what operators do with a sale, by the admin API.

use crate::args::{Admin, Sale, SaleCommand};
use crate::config;
use crate::http::{Answer, Api};
use crate::keys;
use crate::output;
use hyper::Method;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

/// How long a call may take, if nothing else is said.
const TIMEOUT: Duration = Duration::from_secs(30);

pub async fn run(sale: &Sale, file: Option<&Path>) -> anyhow::Result<ExitCode> {
    let api = api(&sale.admin, file, TIMEOUT)?;
    let (method, path, body) = request(&sale.command);
    let answer = api.call(method, &path, body.as_ref()).await?;
    if !(200..300).contains(&answer.status) {
        return refused(&sale.admin, &answer);
    }
    let text = if sale.admin.json {
        pretty(&answer.body)
    } else {
        told(&sale.command, &answer)
    };
    output::line(&text)?;
    Ok(ExitCode::SUCCESS)
}

/// Tells why a call was not carried out.
pub fn refused(admin: &Admin, answer: &Answer) -> anyhow::Result<ExitCode> {
    if admin.json {
        output::line(&pretty(&answer.body))?;
    }
    output::complain(&problem(answer))?;
    // A fault of theirs may be gone later; a refusal is an answer.
    Ok(ExitCode::from(if answer.status >= 500 { 2 } else { 1 }))
}

/// The configuration is only read for what was not given otherwise.
pub fn api(admin: &Admin, file: Option<&Path>, timeout: Duration) -> anyhow::Result<Api> {
    let key = keys::given(admin.admin_key_file.as_deref())?;
    let (url, key) = match (&admin.admin_url, key) {
        (Some(url), Some(key)) => (url.clone(), key),
        (url, key) => {
            let config = config::load(file)?;
            let local = || format!("http://{}", config.http.admin_bind);
            let key = key.map_or_else(|| keys::admin_key(&config), Ok)?;
            (url.clone().unwrap_or_else(local), key)
        }
    };
    Api::new(&url, Some(&key), admin.timeout.unwrap_or(timeout))
}

fn request(command: &SaleCommand) -> (Method, String, Option<Value>) {
    let path = |sale, verb| format!("/admin/v1/sales/{sale}{verb}");
    match command {
        SaleCommand::Create {
            sale,
            stock,
            per_user_limit,
            opens_at,
            closes_at,
        } => {
            let body = json!({
                "id": sale.as_str(),
                "stock": stock,
                "per_user_limit": per_user_limit,
                "opens_at": opens_at,
                "closes_at": closes_at,
            });
            (Method::POST, "/admin/v1/sales".to_owned(), Some(body))
        }
        SaleCommand::Open { sale } => (Method::POST, path(sale, "/open"), Some(json!({}))),
        SaleCommand::Close { sale } => (Method::POST, path(sale, "/close"), Some(json!({}))),
        SaleCommand::Show { sale } => (Method::GET, path(sale, ""), None),
    }
}

/// What was done, for people.
fn told(command: &SaleCommand, answer: &Answer) -> String {
    let outcome = |sale, done: &str| match answer.body["outcome"].as_str() {
        Some("already") => format!("sale {sale} was {done} already"),
        _ => format!("sale {sale} is {done}"),
    };
    match command {
        SaleCommand::Create { sale, stock, .. } => {
            let how = if answer.status == 201 {
                "is created"
            } else {
                "was there already"
            };
            format!("sale {sale} {how}: {stock} units; `dropgate sale open {sale}` opens it")
        }
        SaleCommand::Open { sale } => outcome(sale, "open"),
        SaleCommand::Close { sale } => outcome(sale, "closed"),
        SaleCommand::Show { .. } => shown(&answer.body),
    }
}

/// The fields that are shown first.
const FIRST: [&str; 6] = ["id", "state", "stock", "sold", "held", "free"];

/// A sale's fields, one a line.
fn shown(body: &Value) -> String {
    let Some(fields) = body.as_object() else {
        return pretty(body);
    };
    let width = fields.keys().map(String::len).max().unwrap_or(0);
    let mut text = String::new();
    // What is asked for most first; the rest by name.
    let first = FIRST.iter().filter_map(|name| fields.get_key_value(*name));
    let rest = fields
        .iter()
        .filter(|(name, _)| !FIRST.contains(&name.as_str()));
    for (name, value) in first.chain(rest) {
        let value = match value {
            Value::Null => "-".to_owned(),
            Value::String(value) => value.clone(),
            other => other.to_string(),
        };
        let _ = writeln!(text, "{name:width$}  {value}");
    }
    text.trim_end().to_owned()
}

/// A problem (RFC 9457), for people.
fn problem(answer: &Answer) -> String {
    let body = &answer.body;
    let text = |name: &str| body[name].as_str();
    let title = text("title").unwrap_or("the call was refused");
    let mut out = format!("{title} (");
    if let Some(code) = text("code") {
        let _ = write!(out, "{code}, ");
    }
    let _ = write!(out, "status {})", answer.status);
    if let Some(detail) = text("detail") {
        let _ = write!(out, ": {detail}");
    }
    for field in body["fields"].as_array().into_iter().flatten() {
        let (path, expected) = (field["path"].as_str(), field["expected"].as_str());
        let _ = write!(
            out,
            "\n  {}: {}",
            path.unwrap_or("?"),
            expected.unwrap_or("?")
        );
    }
    if body["retry"]["may"] == true {
        out.push_str("\n  the same command may be given again");
        if let Some(seconds) = body["retry"]["after_seconds"].as_u64() {
            let _ = write!(out, ", after {seconds} s");
        }
    }
    if let Some(id) = text("request_id") {
        let _ = write!(out, "\n  request {id}");
    }
    out
}

pub fn pretty(body: &Value) -> String {
    format!("{body:#}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use dropgate_domain::SaleId;

    fn sale() -> SaleId {
        SaleId::new("drop-1").unwrap()
    }

    #[test]
    fn a_problem_is_told_with_all_that_it_says() {
        let body = json!({
            "title": "Fields not valid", "code": "invalid_fields", "detail": "two fields",
            "fields": [{"path": "stock", "expected": "0 to 10000000"}],
            "retry": {"may": true, "same_key": true, "after_seconds": 2},
            "request_id": "abc",
        });
        let answer = Answer { status: 422, body };
        assert_eq!(
            problem(&answer),
            "Fields not valid (invalid_fields, status 422): two fields\n  \
             stock: 0 to 10000000\n  the same command may be given again, after 2 s\n  request abc"
        );
        let bare = Answer {
            status: 500,
            body: json!([]),
        };
        assert_eq!(problem(&bare), "the call was refused (status 500)");
    }

    #[test]
    fn commands_are_the_calls_of_the_api() {
        let create = SaleCommand::Create {
            sale: sale(),
            stock: 5,
            per_user_limit: 2,
            opens_at: None,
            closes_at: Some("2026-01-01T00:00:00Z".into()),
        };
        let (method, path, body) = request(&create);
        assert_eq!((method, path.as_str()), (Method::POST, "/admin/v1/sales"));
        let expected = json!({
            "id": "drop-1", "stock": 5, "per_user_limit": 2, "opens_at": null,
            "closes_at": "2026-01-01T00:00:00Z",
        });
        assert_eq!(body, Some(expected));
        let (method, path, _) = request(&SaleCommand::Close { sale: sale() });
        assert_eq!(
            (method, path.as_str()),
            (Method::POST, "/admin/v1/sales/drop-1/close")
        );
    }

    #[test]
    fn a_sale_is_shown_by_its_fields_and_what_is_not_known_as_a_dash() {
        let body = json!({"closes_at": null, "free": 7, "id": "drop-1", "state": "open"});
        let expected = "id         drop-1\nstate      open\nfree       7\ncloses_at  -";
        assert_eq!(shown(&body), expected);
    }

    #[test]
    fn a_repeat_is_told_as_one() {
        let open = SaleCommand::Open { sale: sale() };
        let answer = |outcome| Answer {
            status: 200,
            body: json!({"outcome": outcome}),
        };
        assert_eq!(told(&open, &answer("opened")), "sale drop-1 is open");
        assert_eq!(
            told(&open, &answer("already")),
            "sale drop-1 was open already"
        );
    }
}
