//! HAProxy's master process: reloads, and what its newest worker says.

use crate::failure::Failure;
use crate::haproxy::launch::Launch;
use crate::haproxy::socket::{ask, ask_patiently};
use crate::haproxy::words::alerts;
use crate::plan::names;
use std::path::PathBuf;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::Instant;

/// The interval between looks at the progress of a reload.
const POLL: Duration = Duration::from_millis(20);
/// The longest time for a reload. 100,000 servers take a few seconds.
pub const RELOAD: Duration = Duration::from_secs(30);
/// The time for the new worker to answer, after the master says that it has started.
const ANSWERS: Duration = Duration::from_secs(5);
/// The time after which a reload that has not started is asked for again.
const AGAIN: Duration = Duration::from_secs(2);
/// The answer of a master that is busy with a reload that another program or a person requested.
const BUSY: &str = "Another reload is still in progress";

/// The parsed output of `show proc`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processes {
    /// Reloads since the master started, failed ones included.
    pub reloads: u64,
    /// Failed reloads.
    pub failed: u64,
    /// The current workers.
    pub workers: Vec<u32>,
    /// The workers that end when their last connection does.
    pub old: Vec<u32>,
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
                    if let ["[failed:", failed, ..] = rest {
                        found.failed = failed.trim_end_matches(']').parse().unwrap_or_default();
                    }
                }
                [pid, "worker", ..] => {
                    let workers = if old { &mut found.old } else { &mut found.workers };
                    workers.extend(pid.parse::<u32>().ok());
                }
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
}

impl Master {
    /// Returns the current processes.
    pub async fn processes(&self) -> Result<Processes, Failure> {
        Ok(Processes::parse(&ask(&self.socket, "show proc").await?))
    }

    /// Asks the newest worker a question.
    pub async fn ask_worker(&self, command: &str) -> Result<String, Failure> {
        ask(&self.socket, &format!("@1 {command}")).await
    }

    /// Returns true if the newest worker runs the configuration with this hash.
    pub async fn runs(&self, hash: &str) -> Result<bool, Failure> {
        let answer = self.ask_worker(&format!("show servers state {}", names::proof(hash))).await?;
        Ok(answer.starts_with("1\n#"))
    }

    /// Returns the way in which the master was started. `None` if the kernel does not say that.
    pub async fn launch(&self) -> Option<Launch> {
        let stream = tokio::time::timeout(ANSWERS, UnixStream::connect(&self.socket)).await.ok()?.ok()?;
        let pid = u32::try_from(stream.peer_cred().ok()?.pid()?).ok()?;
        Launch::of(pid)
    }

    /// Reloads, and waits until the newest worker proves the configuration with this hash. If another reload is
    /// under way, repeats the command until that one is over.
    pub async fn reload(&self, hash: &str) -> Result<(), Failure> {
        let before = self.processes().await?;
        let reloaded = async {
            loop {
                match ask_patiently(&self.socket, "reload", RELOAD).await {
                    Ok(answer) if answer.contains(BUSY) => {}
                    Ok(answer) if answer.contains("Success=0") => return Err(refused(answer.as_bytes())),
                    // Until 3.0, a master that reloads restarts, and drops connections that it has not read.
                    Ok(_) | Err(_) if self.proves(hash, &before).await? => return Ok(()),
                    Ok(_) | Err(_) => {}
                }
                tokio::time::sleep(POLL).await;
            }
        };
        let late =
            || Failure::new("reload", format!("no new worker {} s after the reload", RELOAD.as_secs()));
        tokio::time::timeout(RELOAD, reloaded).await.unwrap_or_else(|_| Err(late()))
    }

    /// Waits for the proof after a reload. Returns false if the reload has not started.
    async fn proves(&self, hash: &str, before: &Processes) -> Result<bool, Failure> {
        let (again, mut fresh_since) = (Instant::now() + AGAIN, None);
        loop {
            tokio::time::sleep(POLL).await;
            // The master restarts for a reload, so for a moment its socket may refuse connections.
            let Ok(now) = self.processes().await else { continue };
            if now.failed > before.failed {
                return Err(refused(b""));
            }
            let is_fresh = now.workers.iter().any(|pid| !before.workers.contains(pid));
            if is_fresh && self.runs(hash).await.unwrap_or(false) {
                return Ok(true);
            }
            fresh_since = is_fresh.then(|| fresh_since.unwrap_or_else(Instant::now));
            if fresh_since.is_some_and(|since| since.elapsed() > ANSWERS) {
                return Err(self.runs_another().await);
            }
            if now.reloads == before.reloads && !is_fresh && Instant::now() >= again {
                return Ok(false);
            }
        }
    }

    /// Waits until the newest worker proves the configuration with this hash, after another program's reload.
    pub async fn wait_for_proof(&self, hash: &str) -> Result<(), Failure> {
        let proven = async {
            while !self.runs(hash).await.unwrap_or(false) {
                tokio::time::sleep(POLL).await;
            }
        };
        match tokio::time::timeout(RELOAD, proven).await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.runs_another().await),
        }
    }

    async fn runs_another(&self) -> Failure {
        let elsewhere = self.elsewhere().await;
        Failure::new("proof", format!("HAProxy runs another configuration after the reload; {elsewhere}"))
    }

    /// Returns what is known of the files that the running HAProxy loads.
    pub async fn elsewhere(&self) -> String {
        let Some(launch) = self.launch().await else {
            return "it may have been started with another file".to_owned();
        };
        let files: Vec<String> = launch.files.iter().map(|file| format!("-f {}", file.display())).collect();
        format!("it was started with {}", files.join(" "))
    }
}

fn refused(said: &[u8]) -> Failure {
    let what = "HAProxy refuses the reload and goes on with the old configuration";
    Failure::new("reload", format!("{what}: {}", alerts(said)))
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
        let expected = Processes { reloads: 5, failed: 2, workers: vec![1271], old: vec![1233] };
        assert_eq!(Processes::parse(text), expected);
        assert_eq!(Processes::parse("nonsense\n1 master x"), Processes::default());
    }
}
