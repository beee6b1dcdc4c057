//! What is known of the configuration file between two looks at it.

use crate::plan::names;

/// What we know of the file's content, by its hash.
#[derive(Debug, Default)]
pub(crate) struct FileMemory {
    /// What it holds, if nobody else has written it.
    pub(crate) held: Option<String>,
    /// What was rendered last, and what is in effect.
    pub(crate) rendered: Option<String>,
    pub(crate) in_effect: Option<String>,
    /// What the next run of the program will know that we wrote.
    pub(crate) noted: Option<String>,
    /// Somebody else has written it, and that may have been loaded.
    pub(crate) foreign: bool,
    pub(crate) foreign_changes: u64,
}

impl FileMemory {
    /// Looks at what it holds now; true if that is not what we wrote.
    pub(crate) fn look(&mut self, bytes: Option<&[u8]>) -> bool {
        let now = names::hash(bytes.unwrap_or_default());
        let changed = self.held.replace(now.clone()).is_some_and(|held| held != now);
        if changed {
            self.foreign = true;
            self.foreign_changes += 1;
        }
        changed
    }
}
