//! The two files that the agent reads. The agent's Pod sees their directory read-only.

use nodegate_readiness::HostSignals;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The file that is there while the host is going down.
const SHUTDOWN: &str = "shutdown";
/// The file that is there while the lock is held. Its text is the longest delay in milliseconds.
const LOCK: &str = "lock";

/// Returns why the agent does not read the files, if it does not, while the lock is held.
pub(crate) fn not_read(host: Option<HostSignals>) -> Option<&'static str> {
    match host {
        None => Some("the agent runs without --host-signals"),
        Some(host) if !host.lock => Some(
            "the agent does not see the lock: its --host-signals is another directory, or its Pod has mounted one that \
             was deleted since; restart the Pod",
        ),
        Some(_) => None,
    }
}

/// The directory with the files. It stays the same directory: the agent's Pod has it mounted.
#[derive(Debug)]
pub(crate) struct SignalFiles(pub(crate) PathBuf);

impl SignalFiles {
    /// Says whether the host is going down.
    pub(crate) fn set_shutdown(&self, shutdown: bool) {
        self.set(SHUTDOWN, shutdown.then(String::new));
    }

    /// Says for how long the held lock delays a shutdown; `None` if no lock is held.
    pub(crate) fn set_lock(&self, delay: Option<Duration>) {
        self.set(LOCK, delay.map(|delay| format!("{}\n", delay.as_millis())));
    }

    /// Replaces a file as a whole, or removes it. An error must not end what holds the lock.
    fn set(&self, name: &str, text: Option<String>) {
        let path = self.0.join(name);
        let result = match text {
            Some(text) => {
                let unfinished = self.0.join(format!(".{name}"));
                fs::create_dir_all(&self.0)
                    .and_then(|()| fs::write(&unfinished, text))
                    .and_then(|()| fs::rename(&unfinished, &path))
            }
            None => fs::remove_file(&path),
        };
        match result {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::error!(path = %path.display(), %error, "the agent can't be acknowledged; going on");
            }
            _ => {}
        }
    }
}
