//! Label and field selectors: the grammar of `kubectl -l` and `--field-selector`, without sets of values.

use crate::store::object::Object;
use crate::store::resource::Resource;
use crate::store::status::ApiStatus;
use serde_json::Value;
use std::borrow::Cow;

#[derive(Clone, Debug, Default)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Exists,
    Missing,
    Is(String),
    IsNot(String),
}

impl Selector {
    pub(crate) fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self, ApiStatus> {
        Ok(Selector { labels: parse_labels(labels)?, fields: parse_fields(resource, fields)? })
    }

    /// Returns the same selector for one value of a field. An empty value stands for all of them.
    #[must_use]
    pub(crate) fn with(mut self, field: &str, value: &str) -> Self {
        if !value.is_empty() {
            self.fields.push(Requirement { key: field.to_owned(), test: Test::Is(value.to_owned()) });
        }
        self
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        let label = |key: &str| object.value.get("metadata")?.get("labels")?.get(key)?.as_str();
        self.fields.iter().all(|r| r.holds(Some(&field(&object.value, &r.key))))
            && self.labels.iter().all(|r| r.holds(label(&r.key)))
    }
}

impl Requirement {
    fn holds(&self, actual: Option<&str>) -> bool {
        match (&self.test, actual) {
            (Test::Exists, _) => actual.is_some(),
            (Test::Missing, _) => actual.is_none(),
            (Test::Is(value), _) => actual == Some(value),
            (Test::IsNot(value), _) => actual != Some(value),
        }
    }
}

/// Returns the value that a field selector compares. Missing fields are empty.
fn field<'a>(object: &'a Value, path: &str) -> Cow<'a, str> {
    match path.split('.').try_fold(object, |at, part| at.get(part)).unwrap_or(&Value::Null) {
        Value::String(text) => text.into(),
        Value::Null if matches!(path, "spec.unschedulable" | "spec.hostNetwork") => "false".into(),
        Value::Null => "".into(),
        other => other.to_string().into(),
    }
}

fn parse_fields(resource: &Resource, text: &str) -> Result<Vec<Requirement>, ApiStatus> {
    let parse = |term: &str| {
        let (key, test) =
            compared(term).ok_or_else(|| ApiStatus::bad_request(format!("invalid selector: '{term}'")))?;
        let known = matches!(key, "metadata.name" | "metadata.namespace") || resource.fields.contains(&key);
        if !known {
            return Err(ApiStatus::bad_request(format!("field label not supported: {key}")));
        }
        Ok(Requirement { key: key.to_owned(), test })
    };
    text.split(',').filter(|term| !term.is_empty()).map(parse).collect()
}

/// Parses `key=value`, `key==value` or `key!=value`.
fn compared(term: &str) -> Option<(&str, Test)> {
    if let Some((key, value)) = term.split_once("!=") {
        return Some((key.trim(), Test::IsNot(value.trim().to_owned())));
    }
    let (key, value) = term.split_once("==").or_else(|| term.split_once('='))?;
    Some((key.trim(), Test::Is(value.trim().to_owned())))
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, ApiStatus> {
    let parse = |term: &str| {
        let missing = || Some((term.strip_prefix('!')?, Test::Missing));
        let (key, test) = compared(term).or_else(missing).unwrap_or((term, Test::Exists));
        if key.contains(' ') {
            return Err(ApiStatus::bad_request(format!("unable to parse requirement: found '{term}'")));
        }
        Ok(Requirement { key: key.to_owned(), test })
    };
    text.split(',').map(str::trim).filter(|term| !term.is_empty()).map(parse).collect()
}
