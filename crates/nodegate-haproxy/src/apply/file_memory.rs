//! The known state of the configuration file between two reads.

use crate::plan::names;

/// The known versions of the file's content, by their hashes.
#[derive(Debug, Default)]
pub(crate) struct FileMemory {
    /// The content at the last write or read. `None` if it is unknown.
    pub(crate) held: Option<String>,
    /// The content that was rendered last. `in_effect` is the content in effect.
    pub(crate) rendered: Option<String>,
    pub(crate) in_effect: Option<String>,
    /// The content that was last recorded for the next run as written by nodegate-haproxy.
    pub(crate) noted: Option<String>,
    /// True if another program has written the file and HAProxy may have loaded that.
    pub(crate) foreign: bool,
    pub(crate) foreign_changes: u64,
}

impl FileMemory {
    /// Compares the content of the file with the known one. Returns true if another program has changed it.
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
