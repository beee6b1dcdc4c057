//! `--pause-file`: while the file exists, nothing is changed.

use crate::run::metrics::HaproxyMetrics;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

/// The interval between looks for the file.
const LOOK: Duration = Duration::from_secs(1);

/// The file that pauses everything.
#[derive(Clone, Debug)]
pub struct Pause {
    file: PathBuf,
}

impl Pause {
    /// Creates a handle for the file.
    pub fn new(file: PathBuf) -> Self {
        Self { file }
    }

    /// Returns true if the file exists, or if that can't be determined: the operator who made it wanted to be
    /// safe.
    pub fn is_on(&self) -> bool {
        std::fs::symlink_metadata(&self.file)
            .map_or_else(|error| error.kind() != ErrorKind::NotFound, |_| true)
    }

    /// Waits until the file is gone. Meanwhile calls `beat`, which reports that the loop is not stuck.
    pub(crate) async fn is_over(&self, beat: impl Fn()) {
        while self.is_on() {
            beat();
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Logs the start and the end of a pause.
#[derive(Default)]
pub(crate) struct PauseLog {
    on: bool,
}

impl PauseLog {
    pub(crate) fn look(&mut self, pause: &Pause, metrics: &HaproxyMetrics) {
        let on = pause.is_on();
        let was = std::mem::replace(&mut self.on, on);
        let file = pause.file.display();
        match (was, on) {
            (false, true) => {
                tracing::warn!(%file, "paused (--pause-file); leaving HAProxy and its files as they are");
            }
            (true, false) => tracing::info!(%file, "no longer paused; applying the changes"),
            _ => {}
        }
        metrics.paused(on);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_that_is_surely_not_there_pauses_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pause");
        let pause = Pause::new(path.clone());
        assert!(!pause.is_on());
        std::fs::write(&path, "").unwrap();
        assert!(pause.is_on());
        // The parent of this path is a file, so the existence of the pause file can't be determined.
        assert!(Pause::new(path.join("pause")).is_on());
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/nowhere", &path).unwrap();
        assert!(pause.is_on(), "a link that leads nowhere is there");
    }
}
