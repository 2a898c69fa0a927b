//! A configuration before it has types: a JSON tree, and where its leaves came from.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// One step of a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A key of a table.
    Key(String),
    /// A place in a list.
    Index(usize),
}

/// A path from the root.
pub(super) type Path = Vec<Step>;

/// What the environment said about a key.
#[derive(Debug, Clone)]
pub(super) struct Variable {
    /// The variable's name.
    pub name: String,
    /// Its text, as long as it may still be tried as text in place of as TOML.
    pub text: Option<String>,
}

/// The tree, and what is needed to say where a problem came from.
#[derive(Debug)]
pub(super) struct Tree {
    /// What is deserialized.
    pub root: Value,
    variables: BTreeMap<Path, Variable>,
    /// Elements that were taken out of a list, by the list's path: later ones have moved up.
    removed: BTreeMap<Path, BTreeSet<usize>>,
}

impl Tree {
    pub(super) fn new(root: Map<String, Value>) -> Self {
        Self {
            root: Value::Object(root),
            variables: BTreeMap::new(),
            removed: BTreeMap::new(),
        }
    }

    /// Lays `value` over what is at `keys`. Says no when the path leads through a value that
    /// is not a table.
    pub(super) fn set(&mut self, keys: &[&str], value: Value, from: Variable) -> Result<(), ()> {
        let Some((last, parents)) = keys.split_last() else {
            return Err(());
        };
        let mut table = self.root.as_object_mut().ok_or(())?;
        for key in parents {
            let next = table
                .entry(*key)
                .or_insert_with(|| Value::Object(Map::new()));
            table = next.as_object_mut().ok_or(())?;
        }
        table.insert((*last).to_owned(), value);
        let path = keys.iter().map(|k| Step::Key((*k).to_owned())).collect();
        self.variables.insert(path, from);
        Ok(())
    }

    /// The variable that the value at `path`, or what holds it, or something in it, came from.
    pub(super) fn variable(&self, path: &[Step]) -> Option<&Variable> {
        let around = (0..=path.len())
            .rev()
            .find_map(|n| self.variables.get(&path[..n]));
        let within = || self.variables.iter().find(|(at, _)| at.starts_with(path));
        around.or_else(|| within().map(|(_, variable)| variable))
    }

    /// If the value at `path` came from the environment and was read as TOML: puts its bare
    /// text there instead. True when there was something to try.
    pub(super) fn retry_as_text(&mut self, path: &[Step]) -> bool {
        let Some(text) = self.variables.get_mut(path).and_then(|v| v.text.take()) else {
            return false;
        };
        match at(&mut self.root, path) {
            Some(Value::String(_)) | None => false,
            Some(value) => {
                *value = Value::String(text);
                true
            }
        }
    }

    /// The value at `path`.
    pub(super) fn get(&mut self, path: &[Step]) -> Option<&Value> {
        at(&mut self.root, path).map(|value| &*value)
    }

    /// Takes out the value at `path`, or the nearest thing that holds it and is there.
    /// False when nothing is left to take out.
    pub(super) fn remove(&mut self, path: &[Step]) -> bool {
        let mut path = path;
        while let Some((last, parent)) = path.split_last() {
            let taken = match (at(&mut self.root, parent), last) {
                (Some(Value::Object(table)), Step::Key(key)) => table.remove(key).is_some(),
                (Some(Value::Array(list)), Step::Index(i)) if *i < list.len() => {
                    list.remove(*i);
                    let original = self.original(parent, *i);
                    self.removed
                        .entry(parent.to_vec())
                        .or_default()
                        .insert(original);
                    true
                }
                _ => false,
            };
            if taken {
                return true;
            }
            path = parent;
        }
        false
    }

    /// The path as its author knows it: with the indices that the file has.
    pub(super) fn display(&self, path: &[Step]) -> String {
        let mut text = String::new();
        for (n, step) in path.iter().enumerate() {
            match step {
                Step::Key(key) if text.is_empty() => text.push_str(key),
                Step::Key(key) => {
                    text.push('.');
                    text.push_str(key);
                }
                Step::Index(i) => {
                    text.push_str(&format!("[{}]", self.original(&path[..n], *i)));
                }
            }
        }
        text
    }

    /// How many values there are: more rounds than that cannot be needed.
    pub(super) fn size(&self) -> usize {
        fn count(value: &Value) -> usize {
            1 + match value {
                Value::Object(table) => table.values().map(count).sum(),
                Value::Array(list) => list.iter().map(count).sum(),
                _ => 0,
            }
        }
        count(&self.root)
    }

    fn original(&self, list: &[Step], index: usize) -> usize {
        let gone = self.removed.get(list);
        gone.into_iter()
            .flatten()
            .fold(index, |at, gone| if *gone <= at { at + 1 } else { at })
    }
}

fn at<'a>(root: &'a mut Value, path: &[Step]) -> Option<&'a mut Value> {
    path.iter()
        .try_fold(root, |value, step| match (value, step) {
            (Value::Object(table), Step::Key(key)) => table.get_mut(key),
            (Value::Array(list), Step::Index(i)) => list.get_mut(*i),
            _ => None,
        })
}
