//! Reading an object's fields one by one, noting everything that is wrong.

use crate::error::{FieldProblem, Problem};
use crate::time::parse_rfc3339;
use dropgate_domain::TimeMs;
use serde_json::{Map, Value};

/// The fields of a request that have not been read yet, and what was wrong with those that have.
#[derive(Debug)]
pub struct Fields {
    left: Map<String, Value>,
    problems: Vec<FieldProblem>,
}

impl Fields {
    /// The fields of an object.
    #[must_use]
    pub fn of(object: Map<String, Value>) -> Self {
        Self {
            left: object,
            problems: Vec::new(),
        }
    }

    /// Notes a problem.
    pub fn problem(&mut self, path: &str, expected: impl Into<String>) {
        self.problems.push(FieldProblem::new(path, expected));
    }

    /// A text that must be there.
    pub fn text(&mut self, name: &str) -> Option<String> {
        match self.take(name) {
            Some(Value::String(text)) => Some(text),
            _ => self.wrong(name, "a text"),
        }
    }

    /// A whole number that must be there.
    pub fn number(&mut self, name: &str) -> Option<u64> {
        let found = self.take(name).and_then(|value| value.as_u64());
        found.or_else(|| self.wrong(name, "a whole number, 0 or more"))
    }

    /// A whole number up to `u32::MAX` that may be left out.
    pub fn number_or(&mut self, name: &str, default: u32) -> Option<u32> {
        let Some(value) = self.take(name) else {
            return Some(default);
        };
        let found = value.as_u64().and_then(|n| u32::try_from(n).ok());
        found.or_else(|| self.wrong(name, "a whole number, 0 to 4294967295"))
    }

    /// Yes or no; no when left out.
    pub fn flag(&mut self, name: &str) -> bool {
        match self.take(name) {
            None => false,
            Some(Value::Bool(flag)) => flag,
            Some(_) => self.wrong(name, "true or false").unwrap_or(false),
        }
    }

    /// An instant that may be left out.
    pub fn instant(&mut self, name: &str) -> Option<TimeMs> {
        match self.take(name)? {
            Value::String(text) => parse_rfc3339(&text)
                .or_else(|| self.wrong(name, "an instant as in 2026-01-31T09:00:00Z")),
            _ => self.wrong(name, "an instant as in 2026-01-31T09:00:00Z, or null"),
        }
    }

    /// The value of a field; null counts as left out.
    fn take(&mut self, name: &str) -> Option<Value> {
        self.left.remove(name).filter(|value| !value.is_null())
    }

    fn wrong<T>(&mut self, name: &str, expected: &str) -> Option<T> {
        self.problem(name, expected);
        None
    }

    /// Ends the reading: what is left is unknown.
    ///
    /// # Errors
    /// Everything that was wrong, in the order of the paths.
    pub fn finish(mut self) -> Result<(), Problem> {
        for name in self.left.keys() {
            self.problems
                .push(FieldProblem::new(shown(name), "no such field"));
        }
        self.problems.sort_by(|a, b| a.path.cmp(&b.path));
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(Problem::fields(self.problems))
        }
    }
}

/// A name that a client made up, cut to what fits an answer.
fn shown(name: &str) -> String {
    name.chars().filter(|c| !c.is_control()).take(64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn everything_that_is_wrong_is_noted() {
        let object = json!({
            "id": 7, "stock": "many", "limit": -1, "opens_at": "soon", "colour": "red", "ok": null,
            "force": "yes", "dry_run": true,
        });
        let Value::Object(object) = object else {
            unreachable!()
        };
        let mut fields = Fields::of(object);
        assert_eq!(fields.text("id"), None);
        assert_eq!(fields.number("stock"), None);
        assert_eq!(fields.number("absent"), None);
        assert_eq!(fields.number_or("limit", 1), None);
        assert_eq!(fields.number_or("other", 1), Some(1));
        assert_eq!(fields.instant("opens_at"), None);
        assert_eq!(fields.instant("ok"), None);
        assert!(!fields.flag("force") && !fields.flag("off") && fields.flag("dry_run"));
        let problem = fields.finish().unwrap_err();
        let paths: Vec<_> = problem.fields.iter().map(|f| f.path.as_str()).collect();
        assert_eq!(
            paths,
            [
                "absent", "colour", "force", "id", "limit", "opens_at", "stock"
            ]
        );
    }
}
