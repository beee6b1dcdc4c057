//! The locations of the program's files.

use crate::lab::Lab;
use std::path::{Path, PathBuf};

impl Lab {
    /// Returns the options for the locations of files. All of the configuration is generated, unless a test
    /// says otherwise.
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

    /// Returns the path of a file in the state directory.
    pub(crate) fn state(&self, ending: &str) -> PathBuf {
        self.state_dir.join(format!("nodegate.{ending}"))
    }
}
