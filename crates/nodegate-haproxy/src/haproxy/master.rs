//! HAProxy's master process: reloads and their results.

use crate::haproxy::blame::Words;
use crate::haproxy::socket::{SocketError, ask, ask_patiently};
use crate::haproxy::version::Version;
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::Instant;

/// The interval between looks at the progress of a reload.
const POLL: Duration = Duration::from_millis(20);
/// The answer of a master that is busy with a reload that another program or a person requested.
const BUSY: &str = "Another reload is still in progress";

/// The parsed output of `show proc`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    /// Reloads since the master started, failed ones included.
    pub reloads: u64,
    /// Failed reloads; unknown before 2.5.
    pub failed: Option<u64>,
    /// The current workers.
    pub workers: Vec<u32>,
    /// The master's version.
    pub version: Option<Version>,
}

/// The meaning of the master's answer to `reload`.
#[derive(Debug, PartialEq, Eq)]
enum Reply {
    /// The master reloads, or has reloaded.
    Reloading,
    /// The master did not take the command, because another reload is under way.
    Missed,
    /// The new worker did not start. Contains its error text.
    Refused(Words),
}

/// The error of a reload.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// The master can't be reached.
    #[error(transparent)]
    Ask(#[from] SocketError),
    /// The new worker did not start; the old one continues.
    #[error("HAProxy refused the reload and goes on with the old configuration: {0}")]
    Refused(Words),
    /// No new worker appeared in time.
    #[error("no new worker {} s after the reload", .0.as_secs())]
    Timeout(Duration),
    /// The operator's command failed.
    #[error("the reload command failed: {0}: {1}")]
    Command(String, Words),
}

impl Processes {
    /// Parses the output of `show proc`.
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
                    found.version = rest.last().and_then(|word| Version::parse(word));
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
    /// The path of the socket.
    pub socket: PathBuf,
    /// The longest time for a reload.
    pub patience: Duration,
}

impl Master {
    /// Returns the current processes.
    pub async fn processes(&self) -> Result<Processes, SocketError> {
        Ok(Processes::parse(&ask(&self.socket, "show proc").await?))
    }

    /// Reloads, and waits until the new worker serves or has failed. If another reload is under way, repeats
    /// the command until that one is over, because it may have read the files before the new version was in
    /// place.
    pub async fn reload(&self) -> Result<(), ReloadError> {
        let deadline = Instant::now() + self.patience;
        let mut before = self.processes().await?;
        loop {
            let answer = ask_patiently(&self.socket, "reload", self.patience).await;
            match reply(answer, before.version)? {
                Reply::Reloading => return self.until_it_serves(&before, deadline).await,
                Reply::Refused(words) => return Err(ReloadError::Refused(words)),
                Reply::Missed if Instant::now() >= deadline => {
                    return Err(ReloadError::Timeout(self.patience));
                }
                Reply::Missed => tokio::time::sleep(POLL).await,
            }
            before = self.processes().await.unwrap_or(before);
        }
    }

    async fn until_it_serves(&self, before: &Processes, deadline: Instant) -> Result<(), ReloadError> {
        loop {
            tokio::time::sleep(POLL).await;
            // The master restarts for a reload, so for a moment its socket may refuse connections.
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

/// Interprets the answer of a master of this version to `reload`. From 2.7 on, the master answers after the
/// reload; 2.6 closes the connection at once. Until 3.0, a master that reloads restarts, and drops
/// connections that it has not read.
fn reply(answer: Result<String, SocketError>, version: Option<Version>) -> Result<Reply, SocketError> {
    let answers = version.is_some_and(|version| version > Version::OLDEST);
    match answer {
        Ok(answer) if answer.contains(BUSY) => Ok(Reply::Missed),
        Ok(answer) if answer.contains("Success=0") => Ok(Reply::Refused(Words::new(answer.as_bytes()))),
        Ok(answer) if answer.is_empty() && answers => Ok(Reply::Missed),
        Ok(_) => Ok(Reply::Reloading),
        Err(SocketError::Absent(..) | SocketError::Broken(..)) => Ok(Reply::Missed),
        Err(error) => Err(error),
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
        let version = Some(Version(2, 6));
        let expected = Processes { reloads: 5, failed: Some(2), workers: vec![1271], version };
        assert_eq!(Processes::parse(text), expected);
        assert_eq!(Processes::parse("nonsense\n1 master x"), Processes::default());
    }

    #[test]
    fn a_reload_that_another_one_swallowed_is_asked_for_again() {
        let (old, new) = (Some(Version(2, 6)), Some(Version(3, 0)));
        let broken = || Err(SocketError::Broken(PathBuf::new(), std::io::ErrorKind::ConnectionReset.into()));
        let absent =
            || Err(SocketError::Absent(PathBuf::new(), std::io::ErrorKind::ConnectionRefused.into()));
        let said = |text: &str| Ok(text.to_owned());
        let refused = "Success=0\n--\n[ALERT] (1) : no";
        for (answer, version, expected) in [
            (said(""), old, Reply::Reloading),
            (said(""), new, Reply::Missed),
            (said("Success=1\n--\n"), new, Reply::Reloading),
            (said("Success=0\n--\nAnother reload is still in progress.\n\n"), new, Reply::Missed),
            (said(refused), new, Reply::Refused(Words::new(refused.as_bytes()))),
            (broken(), new, Reply::Missed),
            (absent(), old, Reply::Missed),
        ] {
            assert_eq!(reply(answer, version).unwrap(), expected);
        }
        let frozen = SocketError::Frozen(PathBuf::new(), Duration::ZERO);
        assert!(matches!(reply(Err(frozen), new), Err(SocketError::Frozen(..))));
    }
}
