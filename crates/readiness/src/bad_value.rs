//! Words of settings and of the API: their parsing, and the error of a bad one.

use serde::de::DeserializeOwned;
use serde::de::value::StrDeserializer;

/// The error for a text that is no value of a setting: what the setting takes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("takes {0}")]
pub struct BadValue(pub(crate) &'static str);

/// Returns the variant that serde gives this word.
pub(crate) fn of_word<T: DeserializeOwned>(word: &str) -> Option<T> {
    T::deserialize(StrDeserializer::<serde::de::value::Error>::new(word)).ok()
}
