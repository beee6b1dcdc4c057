//! The two files that the agent reads. The agent's Pod sees their directory read-only.

use nodegate_agent_api::DrainSummary;
use nodegate_agent_client::hints::delay_too_short;
use std::path::PathBuf;
use std::time::Duration;
use std::{fs, io};

/// The file that is there while the host is going down.
const SHUTDOWN: &str = "shutdown";
/// The file that is there while the lock is held. Its text is the longest delay in milliseconds.
const LOCK: &str = "lock";

/// Returns why a shutdown does not wait until every load balancer has acknowledged although the lock is held, or `None` if
/// it does.
pub(crate) fn problem(summary: &DrainSummary, delay: Duration) -> Option<String> {
    let why = match summary.host {
        Some(host) if host.lock => {
            return delay_too_short(delay, Duration::from_millis(summary.needs_ms.unwrap_or_default()));
        }
        Some(_) => {
            "the agent does not see the lock: its --host-signals is another directory, or its Pod has mounted one that \
             was deleted since; restart the Pod"
        }
        None => "the agent runs without --host-signals",
    };
    Some(format!("a shutdown does not wait for load balancers: {why}"))
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
        if let Err(error) = result
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::error!(path = %path.display(), %error, "the agent can't be told; going on");
        }
    }
}
