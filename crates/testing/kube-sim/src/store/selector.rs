//! Label and field selectors: the grammar of `kubectl -l` and `--field-selector`.

use serde_json::Value;

use crate::store::object::Object;
use crate::store::resource::Resource;
use crate::store::status::ApiStatus;

/// The label and field selectors of a list or watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Selector {
    labels: Vec<Requirement>,
    fields: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Selector {
    /// Parses both selectors for a resource.
    pub(crate) fn parse(resource: &Resource, labels: &str, fields: &str) -> Result<Self, ApiStatus> {
        let labels = parse_labels(labels)
            .map_err(|why| ApiStatus::bad_request(format!("unable to parse requirement: {why}")))?;
        Ok(Selector { labels, fields: parse_fields(resource, fields)? })
    }

    /// Returns a selector for one name.
    #[must_use]
    pub(crate) fn named(mut self, name: &str) -> Self {
        let test = Test::In(vec![name.to_owned()]);
        self.fields.push(Requirement { key: "metadata.name".to_owned(), test });
        self
    }

    /// Returns the one name that can match, if the selector names it.
    pub(crate) fn name(&self) -> Option<&str> {
        self.fields.iter().find_map(|r| match (r.key.as_str(), &r.test) {
            ("metadata.name", Test::In(values)) => values.first().map(String::as_str),
            _ => None,
        })
    }

    /// Returns true if an object matches.
    pub(crate) fn matches(&self, object: &Object) -> bool {
        self.fields.iter().all(|r| r.holds(Some(&field(object, &r.key))))
            && (self.labels.is_empty() || {
                let labels = object.value.get("metadata").and_then(|m| m.get("labels"));
                self.labels
                    .iter()
                    .all(|r| r.holds(labels.and_then(|l| l.get(&r.key)).and_then(Value::as_str)))
            })
    }
}

impl Requirement {
    /// Parses one of a `LabelSelector`'s `matchExpressions`.
    fn of(expression: &Value) -> Option<Self> {
        let text = |field: &str| expression.get(field).and_then(Value::as_str);
        let values = expression.get("values").and_then(Value::as_array).into_iter().flatten();
        let values = values.filter_map(|v| v.as_str().map(str::to_owned)).collect();
        let test = match text("operator")? {
            "In" => Test::In(values),
            "NotIn" => Test::NotIn(values),
            "Exists" => Test::Exists,
            "DoesNotExist" => Test::Missing,
            _ => return None,
        };
        Some(Requirement { key: text("key")?.to_owned(), test })
    }

    fn holds(&self, actual: Option<&str>) -> bool {
        match (&self.test, actual) {
            (Test::Exists, _) => actual.is_some(),
            (Test::Missing, _) => actual.is_none(),
            (Test::In(values), Some(actual)) => values.iter().any(|v| v == actual),
            (Test::NotIn(values), Some(actual)) => values.iter().all(|v| v != actual),
            (Test::NotIn(_), None) => true,
            (_, None) => false,
        }
    }
}

/// Returns true if a `LabelSelector` of a disruption budget or Service matches. A missing selector matches
/// nothing, an empty one everything.
pub(crate) fn labels_match(selector: Option<&Value>, object: &Value) -> bool {
    let Some(selector) = selector.and_then(Value::as_object) else { return false };
    let labels = object.get("metadata").and_then(|m| m.get("labels"));
    let label = |key: &str| labels.and_then(|l| l.get(key)).and_then(Value::as_str);
    let mut exact = selector.get("matchLabels").and_then(Value::as_object).into_iter().flatten();
    let mut expressions = selector.get("matchExpressions").and_then(Value::as_array).into_iter().flatten();
    exact.all(|(key, value)| label(key) == value.as_str())
        && expressions.all(|e| Requirement::of(e).is_some_and(|r| r.holds(label(&r.key))))
}

/// Returns the value that a field selector compares. Missing fields are empty, as in the API server's
/// `SelectableFields`.
fn field(object: &Object, path: &str) -> String {
    match path {
        "metadata.name" => return object.key.name.clone(),
        "metadata.namespace" => return object.key.namespace.clone(),
        "spec.unschedulable" | "spec.hostNetwork" => {
            let value = text(&object.value, path);
            return if value.is_empty() { "false".to_owned() } else { value };
        }
        _ => {}
    }
    text(&object.value, path)
}

fn text(value: &Value, path: &str) -> String {
    match path.split('.').try_fold(value, |at, part| at.get(part)).unwrap_or(&Value::Null) {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn parse_fields(resource: &Resource, text: &str) -> Result<Vec<Requirement>, ApiStatus> {
    let mut all = Vec::new();
    for term in text.split(',') {
        if term.is_empty() {
            continue;
        }
        let (key, value, equal) = if let Some((key, value)) = term.split_once("!=") {
            (key, value, false)
        } else if let Some((key, value)) = term.split_once("==").or_else(|| term.split_once('=')) {
            (key, value, true)
        } else {
            return Err(ApiStatus::bad_request(format!(
                "invalid selector: '{term}'; can't understand '{term}'"
            )));
        };
        let supported = key == "metadata.name"
            || (key == "metadata.namespace" && resource.namespaced)
            || (key == "metadata.namespace" && resource.plural == "nodes")
            || resource.fields.contains(&key);
        // Cluster-scoped resources other than Node refuse metadata.namespace less consistently. No client
        // selects by it.
        if !supported {
            let message = match (resource.group, resource.plural) {
                ("", "pods" | "nodes" | "events" | "secrets" | "services" | "namespaces") => {
                    format!("field label not supported: {key}")
                }
                _ => format!(
                    "\"{key}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                ),
            };
            return Err(ApiStatus::bad_request(message));
        }
        let value = vec![value.to_owned()];
        let test = if equal { Test::In(value) } else { Test::NotIn(value) };
        all.push(Requirement { key: key.to_owned(), test });
    }
    Ok(all)
}

fn parse_labels(text: &str) -> Result<Vec<Requirement>, String> {
    let mut all = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = term_end(rest);
        let (term, after) = rest.split_at(end);
        all.push(parse_label_term(term.trim())?);
        rest = after.strip_prefix(',').unwrap_or(after).trim();
    }
    Ok(all)
}

/// Returns the first comma outside parentheses.
fn term_end(text: &str) -> usize {
    let mut depth = 0_u32;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => return at,
            _ => {}
        }
    }
    text.len()
}

fn parse_label_term(term: &str) -> Result<Requirement, String> {
    let make = |key: &str, test| {
        let key = key.trim();
        if crate::store::names::qualified_name(key).is_empty() {
            Ok(Requirement { key: key.to_owned(), test })
        } else {
            Err(format!(
                "<nil>: Invalid value: \"{key}\": {}",
                crate::store::names::qualified_name(key).join("; ")
            ))
        }
    };
    let value = |text: &str| -> Result<String, String> {
        let text = text.trim();
        let faults = crate::store::names::label_value(text);
        if faults.is_empty() {
            Ok(text.to_owned())
        } else {
            Err(format!("values[0][]: Invalid value: \"{text}\": {}", faults.join("; ")))
        }
    };
    if let Some(key) = term.strip_prefix('!') {
        return make(key, Test::Missing);
    }
    if let Some((head, tail)) = term.split_once('(') {
        let Some(list) = tail.strip_suffix(')') else {
            return Err(format!("found '{tail}', expected: ',', or ')'"));
        };
        let values = list.split(',').map(value).collect::<Result<Vec<_>, _>>()?;
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => make(key, Test::In(values)),
            (Some(key), Some("notin"), None) => make(key, Test::NotIn(values)),
            _ => Err(format!("found '{head}', expected: 'in', 'notin'")),
        };
    }
    if let Some((key, text)) = term.split_once("!=") {
        return make(key, Test::NotIn(vec![value(text)?]));
    }
    if let Some((key, text)) = term.split_once("==").or_else(|| term.split_once('=')) {
        return make(key, Test::In(vec![value(text)?]));
    }
    if let Some(word) = term.split_whitespace().nth(1) {
        return Err(format!("found '{word}', expected: in, notin, =, ==, !=, gt, lt"));
    }
    make(term, Test::Exists)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::object::Key;
    use crate::store::resource::by_plural;
    use serde_json::json;

    fn node(labels: &Value) -> crate::store::object::Obj {
        let value = json!({"metadata": {"name": "a", "labels": labels}});
        Object::new(by_plural("nodes"), Key::new("", "a"), 1, value)
    }

    #[test]
    fn label_selectors_follow_kubectl() {
        let object = node(&json!({"x": "y", "n": "5", "a.b/c": ""}));
        let table = [
            ("x=y", true),
            ("x==y", true),
            ("x!=y", false),
            ("x", true),
            ("!x", false),
            ("z!=1", true),
            ("x in (a, y)", true),
            ("x notin (a,y)", false),
            ("q notin (a)", true),
            ("x=y,n=5", true),
            ("x in (y),!z", true),
            ("a.b/c=", true),
            ("", true),
        ];
        for (text, expected) in table {
            let selector = Selector::parse(by_plural("nodes"), text, "").expect(text);
            assert_eq!(selector.matches(&object), expected, "{text}");
        }
        assert!(Selector::parse(by_plural("nodes"), "x in (a", "").is_err());
        assert!(Selector::parse(by_plural("nodes"), "a b", "").is_err());
    }

    #[test]
    fn label_selectors_of_objects_match_labels_and_expressions() {
        let object = node(&json!({"x": "y"}));
        let matches = |selector: Value| labels_match(Some(&selector), &object.value);
        let one = |operator: &str, key: &str, values: Value| {
            matches(
                json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}], "matchLabels": {"x": "y"}}),
            )
        };
        assert!(one("In", "x", json!(["a", "y"])) && !one("In", "x", json!(["a"])));
        assert!(one("NotIn", "z", json!(["y"])) && !one("NotIn", "x", json!(["y"])));
        assert!(one("Exists", "x", Value::Null) && !one("Exists", "z", Value::Null));
        assert!(one("DoesNotExist", "z", json!([])) && !one("DoesNotExist", "x", json!([])));
        assert!(!one("Odd", "x", json!([])));
        assert!(matches(json!({})) && !matches(json!({"matchLabels": {"x": "z"}})));
        assert!(!labels_match(None, &object.value));
    }

    #[test]
    fn an_unsupported_field_is_refused_as_the_api_server_refuses_it() {
        let status = Selector::parse(by_plural("nodes"), "", "spec.foo=bar").unwrap_err();
        assert_eq!(status.message, "field label not supported: spec.foo");
    }

    #[test]
    fn field_selectors_compare_missing_fields_as_empty() {
        let value = json!({"metadata": {"name": "p", "namespace": "n"}, "status": {"phase": "Running"}});
        let pod = Object::new(by_plural("pods"), Key::new("n", "p"), 1, value);
        for (text, expected) in [
            ("spec.nodeName=", true),
            ("status.phase!=Succeeded,status.phase!=Failed", true),
            ("metadata.namespace=n,metadata.name=p", true),
            ("status.phase=Failed", false),
        ] {
            let selector = Selector::parse(by_plural("pods"), "", text).expect(text);
            assert_eq!(selector.matches(&pod), expected, "{text}");
        }
    }
}
