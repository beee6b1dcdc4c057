//! The settings of one check besides its timing.

use std::fmt;
use std::str::FromStr;

/// A setting of a check: its name, and its type.
#[derive(Clone, Copy)]
pub struct OptionKey {
    name: &'static str,
    check: fn(&str) -> Result<(), String>,
}

/// The settings of one check. Every value has been parsed once as the type of its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options(Vec<(&'static str, String)>);

// === impl OptionKey ===

impl OptionKey {
    /// Returns a setting with values of type `T`, whose parse error names the accepted values.
    pub const fn new<T>(name: &'static str) -> Self
    where
        T: FromStr,
        T::Err: fmt::Display,
    {
        Self { name, check: check::<T> }
    }

    /// Returns the name of the check.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

fn check<T>(text: &str) -> Result<(), String>
where
    T: FromStr,
    T::Err: fmt::Display,
{
    text.parse::<T>().map(drop).map_err(|takes| takes.to_string())
}

impl fmt::Debug for OptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

// === impl Options ===

impl Options {
    /// Returns an empty list of settings.
    pub(crate) const fn none() -> Self {
        Self(Vec::new())
    }

    /// Sets a value; returns true if there was one before, or as an error the accepted values.
    pub(crate) fn set(&mut self, key: OptionKey, value: &str) -> Result<bool, String> {
        (key.check)(value)?;
        let before = self.text(key.name).is_some();
        self.0.push((key.name, value.to_owned()));
        Ok(before)
    }

    /// Returns the value of a key as the type that its [`OptionKey`] was made for; `None` if it is not set.
    pub fn get<T: FromStr>(&self, key: &str) -> Option<T> {
        // It was parsed when it was set.
        self.text(key).and_then(|text| text.parse().ok())
    }

    /// Returns the value of a key as it was written.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, text)| text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::url::HttpUrl;

    #[test]
    fn a_value_comes_back_as_what_its_key_takes() {
        let mut options = Options::default();
        let (url, count) = (OptionKey::new::<HttpUrl>("url"), OptionKey::new::<u8>("count"));
        assert_eq!(options.set(url, "http://127.0.0.1:1/"), Ok(false));
        assert_eq!(options.set(count, "7"), Ok(false));
        assert_eq!(options.set(count, "8"), Ok(true));
        assert!(options.set(count, "many").unwrap_err().contains("digit"));
        assert_eq!(options.get::<HttpUrl>("url").unwrap().to_string(), "http://127.0.0.1:1/");
        assert_eq!(options.get::<u8>("count"), Some(7));
        assert_eq!(options.text("other"), None);
    }
}
