//! The settings of one check besides its timing: their names, their parsers and the values that are set.

use std::path::PathBuf;

/// The maximum number of paths of one check.
pub(crate) const MAX_PATHS: usize = 64;

/// A setting of a check: its name, and the parser of its values. The parser's error says what it takes.
pub(crate) struct Key<T> {
    pub(crate) name: &'static str,
    pub(crate) parse: fn(&str) -> Result<T, String>,
}

/// A `Key` with values of any type.
pub trait AnyKey: Sync {
    /// Returns the name of the setting.
    fn name(&self) -> &'static str;

    /// Returns the error of a value that the setting does not take.
    fn check(&self, value: &str) -> Result<(), String>;
}

impl<T> AnyKey for Key<T> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, value: &str) -> Result<(), String> {
        (self.parse)(value).map(drop)
    }
}

/// Parses paths of the host, separated by colons.
pub(crate) fn paths(text: &str) -> Result<Vec<PathBuf>, String> {
    let paths: Vec<PathBuf> = text.split(':').map(PathBuf::from).collect();
    let fits = paths.len() <= MAX_PATHS && paths.iter().all(|path| path.is_absolute());
    fits.then_some(paths).ok_or("takes up to 64 paths of the host, e.g. /:/var/lib/kubelet:/data".to_owned())
}

/// The settings of one check. Its keys have accepted every value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Options(Vec<(&'static str, String)>);

impl Options {
    /// Sets a value of a check that has these keys. The error says what is accepted.
    pub(crate) fn set(&mut self, keys: &[&dyn AnyKey], key: &str, value: &str) -> Result<(), String> {
        let Some(known) = keys.iter().find(|known| known.name() == key) else {
            let names: Vec<_> = keys.iter().map(|known| known.name()).collect();
            return Err(format!("{key}: no such setting; takes {}", names.join(", ")));
        };
        known.check(value).map_err(|takes| format!("{key}={value}: {takes}"))?;
        if self.text(key).is_some() {
            return Err(format!("{key} is set twice"));
        }
        self.0.push((known.name(), value.to_owned()));
        Ok(())
    }

    /// Returns the value of a key; `None` if it is not set.
    pub(crate) fn get<T>(&self, key: &Key<T>) -> Option<T> {
        (key.parse)(self.text(key.name)?).ok()
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| *name == key).map(|(_, text)| text.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_begin_at_the_hosts_root() {
        assert_eq!(paths("/:/var"), Ok(vec!["/".into(), "/var".into()]));
        for bad in ["", ":", "var", "/:", "/a::/b", "/a:".repeat(65).trim_end_matches(':')] {
            assert!(paths(bad).is_err(), "{bad}");
        }
    }
}
