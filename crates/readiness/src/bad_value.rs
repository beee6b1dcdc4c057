//! Words of settings and of the API: their parsing, and the error of a bad one.

use serde::de::DeserializeOwned;
use serde::de::value::StrDeserializer;

/// The error for a text that is no value of a setting: what the setting takes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("takes {0}")]
pub struct BadValue(pub(crate) &'static str);

/// The longest value of a label or a taint.
const MAX_VALUE: usize = 63;

/// Returns true if this is a valid value of a label or a taint.
pub(crate) fn is_value(value: &str) -> bool {
    value.is_empty() || (value.len() <= MAX_VALUE && !value.contains('/') && is_qualified_name(value))
}

/// Returns true if this is a valid key, or type of a condition. A typing mistake in the setting would silently never
/// drain.
pub(crate) fn is_qualified_name(key: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
    let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    key.chars().all(allowed)
        && key.matches('/').count() <= 1
        && ends_well(key.chars().next())
        && ends_well(key.chars().last())
}

/// Returns the variant that serde gives this word.
pub(crate) fn of_word<T: DeserializeOwned>(word: &str) -> Option<T> {
    T::deserialize(StrDeserializer::<serde::de::value::Error>::new(word)).ok()
}
