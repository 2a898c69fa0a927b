//! Typed configuration: embedded defaults, then a TOML file, then the environment.
//!
//! A key of the environment is `DROPGATE_SECTION__KEY`: the prefix, then the path in capitals
//! with two underscores between its parts. Its value is read as TOML (`8080`, `true`,
//! `["https://a.example"]`) and, where that does not fit, as the bare text.
//!
//! Every problem is reported at once, with its path and with what was expected there. A problem
//! never repeats the value that was found: it may be a secret.

mod load;
#[cfg(test)]
mod tests;
mod tree;

pub use load::{ENV_PREFIX, load, load_from};

use std::fmt;

/// What is wrong with one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Where: `section.key`, `section.list[2].key`; empty for the whole.
    pub path: String,
    /// What was expected there, or what is wrong. Never the value itself.
    pub expected: String,
    /// The variable of the environment that the value came from, if it was one.
    pub variable: Option<String>,
}

impl Problem {
    /// A problem at `path`.
    pub fn new(path: impl Into<String>, expected: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            expected: expected.into(),
            variable: None,
        }
    }

    /// The same problem, seen from the section that holds it.
    #[must_use]
    pub fn under(mut self, section: &str) -> Self {
        self.path = match self.path.as_str() {
            "" => section.to_owned(),
            path if path.starts_with('[') => format!("{section}{path}"),
            path => format!("{section}.{path}"),
        };
        self
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path)?;
        }
        f.write_str(&self.expected)?;
        match &self.variable {
            Some(variable) => write!(f, " (from {variable})"),
            None => Ok(()),
        }
    }
}

/// Everything that is wrong with a configuration, in the order of the paths.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} problem(s) in the configuration", self.0.len())?;
        self.0.iter().try_for_each(|p| write!(f, "\n  {p}"))
    }
}

/// A configuration that knows what its values must be, beyond their types.
pub trait Validate {
    /// Every problem, with paths relative to this value; see [`Problem::under`].
    fn problems(&self) -> Vec<Problem>;
}

/// The problems of several sections in one list.
///
/// ```
/// use dropgate_runtime::config::{Problem, Validate, sections};
/// struct Http;
/// impl Validate for Http {
///     fn problems(&self) -> Vec<Problem> {
///         vec![Problem::new("bind", "an address")]
///     }
/// }
/// let all = sections([("http", &Http as &dyn Validate)]);
/// assert_eq!(all[0].path, "http.bind");
/// ```
pub fn sections<'a>(parts: impl IntoIterator<Item = (&'a str, &'a dyn Validate)>) -> Vec<Problem> {
    let under = |(name, part): (&str, &dyn Validate)| -> Vec<Problem> {
        let problems = part.problems();
        problems.into_iter().map(|p| p.under(name)).collect()
    };
    parts.into_iter().flat_map(under).collect()
}
