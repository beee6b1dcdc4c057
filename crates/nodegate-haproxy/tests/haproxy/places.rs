//! Where the program has its files.

use crate::lab::Lab;
use std::path::{Path, PathBuf};

impl Lab {
    /// Where the program's files are. All of the configuration is the program's, unless a story says otherwise.
    pub(crate) fn places(&self) -> Vec<String> {
        let path = |path: &Path| path.to_string_lossy().into_owned();
        let mut places = vec!["--config".to_owned(), path(&self.config)];
        for (flag, value) in [
            ("--state-dir", path(&self.state_dir)),
            ("--before", "none".to_owned()),
            ("--pause-file", path(&self.pause_file())),
        ] {
            if !self.arguments.iter().any(|word| word == flag) {
                places.extend([flag.to_owned(), value]);
            }
        }
        places
    }

    pub(crate) fn pause_file(&self) -> PathBuf {
        self.dir.path().join("pause")
    }

    /// A file of the program's state.
    pub(crate) fn state(&self, ending: &str) -> PathBuf {
        self.state_dir.join(format!("nodegate.{ending}"))
    }
}
