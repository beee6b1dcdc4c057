//! The settings of one check, as text that its keys have accepted.

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

impl OptionKey {
    /// Returns a setting with values of type `T`, whose parse error names the accepted values.
    pub const fn new<T: FromStr<Err: fmt::Display>>(name: &'static str) -> Self {
        Self { name, check: |text| text.parse::<T>().map(drop).map_err(|takes| takes.to_string()) }
    }

    /// Returns the name of the setting.
    pub fn name(&self) -> &'static str {
        self.name
    }
}

impl fmt::Debug for OptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl Options {
    /// Sets a value of a check that has these keys. The error says what is accepted.
    pub(crate) fn set(&mut self, keys: &[OptionKey], key: &str, value: &str) -> Result<(), String> {
        let Some(known) = keys.iter().find(|known| known.name == key) else {
            let names: Vec<_> = keys.iter().map(OptionKey::name).collect();
            return Err(format!("{key}: no such setting; takes {}", names.join(", ")));
        };
        (known.check)(value).map_err(|takes| format!("{key}={value}: {takes}"))?;
        if self.text(key).is_some() {
            return Err(format!("{key} is set twice"));
        }
        self.0.push((known.name, value.to_owned()));
        Ok(())
    }

    /// Returns the value of a key as the type that its [`OptionKey`] was made for; `None` if it is not set.
    pub fn get<T: FromStr>(&self, key: OptionKey) -> Option<T> {
        // It was parsed when it was set.
        self.text(key.name).and_then(|text| text.parse().ok())
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, text)| text.as_str())
    }
}
