//! HAProxy's master process: reloads, and whether they worked.

use crate::haproxy::blame::Words;
use crate::haproxy::socket::{AskError, ask, ask_patiently};
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// How often the master is asked whether the reload is over.
const POLL: Duration = Duration::from_millis(20);

/// What `show proc` says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    /// Reloads since the master started, failed ones included.
    pub reloads: u64,
    /// Those that failed; unknown before 2.5.
    pub failed: Option<u64>,
    /// The current workers.
    pub workers: Vec<u32>,
}

/// How a reload ended, if not well.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The master can't be asked.
    #[error(transparent)]
    Ask(#[from] AskError),
    /// The new worker did not start; the old one goes on.
    #[error("HAProxy refused the reload and goes on with the old configuration: {0}")]
    Refused(Words),
    /// Nothing was heard of a new worker.
    #[error("no new worker {} s after the reload", .0.as_secs())]
    Timeout(Duration),
    /// The operator's command failed.
    #[error("the reload command failed: {0}: {1}")]
    Command(String, Words),
}

impl Processes {
    /// Reads `show proc`.
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        let mut old = false;
        for line in text.lines() {
            if line.starts_with('#') {
                old = line.starts_with("# old");
                continue;
            }
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [_, "master", reloads, rest @ ..] => {
                    found.reloads = reloads.parse().unwrap_or_default();
                    if let ["[failed:", failed, ..] = rest {
                        found.failed = failed.trim_end_matches(']').parse().ok();
                    }
                }
                [pid, "worker", ..] if !old => found.workers.extend(pid.parse::<u32>().ok()),
                _ => {}
            }
        }
        found
    }
}

/// The master socket.
#[derive(Clone, Debug)]
pub struct Master {
    /// Its path.
    pub socket: PathBuf,
    /// How long a reload may take.
    pub patience: Duration,
}

impl Master {
    /// The processes now.
    pub async fn processes(&self) -> Result<Processes, AskError> {
        Ok(Processes::parse(&ask(&self.socket, "show proc").await?))
    }

    /// Reloads and waits until the new worker serves, or is known not to.
    pub async fn reload(&self) -> Result<(), ReloadError> {
        let before = self.processes().await?;
        // From 2.7 on the master answers when all is over; before, it closes the connection at once.
        let answer = ask_patiently(&self.socket, "reload", self.patience).await?;
        if answer.contains("Success=0") {
            return Err(ReloadError::Refused(Words::new(answer.as_bytes())));
        }
        let deadline = Instant::now() + self.patience;
        loop {
            tokio::time::sleep(POLL).await;
            // The master starts anew for a reload, so for a moment nobody may listen.
            if let Ok(now) = self.processes().await {
                if now.failed > before.failed {
                    return Err(ReloadError::Refused(Words::default()));
                }
                let fresh = now.workers.iter().any(|pid| !before.workers.contains(pid));
                if now.reloads > before.reloads && fresh {
                    return Ok(());
                }
            }
            if Instant::now() >= deadline {
                return Err(ReloadError::Timeout(self.patience));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn show_proc_is_read() {
        let text = "#<PID>          <type>          <reloads>       <uptime>        <version>\n\
            1162            master          5 [failed: 2]   0d00h02m07s     2.6.12\n# workers\n\
            1271            worker          1               0d00h00m00s     2.6.12\n# old workers\n\
            1233            worker          3               0d00h00m43s     2.6.12\n# programs\n\n";
        let expected = Processes { reloads: 5, failed: Some(2), workers: vec![1271] };
        assert_eq!(Processes::parse(text), expected);
        assert_eq!(Processes::parse("nonsense\n1 master x"), Processes::default());
    }
}
