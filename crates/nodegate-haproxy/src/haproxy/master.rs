//! HAProxy's master process, where a command is one connection, one line and one answer, and `haproxy -c`.

use crate::failure::Failure;
use crate::plan::names;
use nodegate_program::{os_words, sanitize_short};
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::time::Instant;

/// The interval between looks at the progress of a reload.
const POLL: Duration = Duration::from_millis(20);
/// The longest time for a reload. 100,000 servers take a few seconds.
const RELOAD: Duration = Duration::from_secs(30);
/// The time for the new worker to answer, after the master says that it has started.
const ANSWERS: Duration = Duration::from_secs(5);
/// The time after which a reload that has not started is asked for again.
const AGAIN: Duration = Duration::from_secs(2);
/// The timeout for an answer. A HAProxy that takes longer is frozen, or overloaded.
const ANSWER: Duration = Duration::from_secs(2);
/// The maximum length of an answer. The states of 100,000 servers are 10 MB.
const MAX_ANSWER: u64 = 32 << 20;

/// The timeout. HAProxy reads 100,000 servers in a few seconds.
const CHECK: Duration = Duration::from_mins(1);
/// The maximum number of bytes that it may print.
const MAX_OUTPUT: u64 = 1 << 20;
const ALERTS: usize = 3;
const MAX_CHARS: usize = 600;

/// The kind of the failure that no process listens on the socket.
pub(crate) const ABSENT: &str = "absent";
/// The kind of the failure that HAProxy does not answer.
const SILENT: &str = "silent";
/// The kind of the failure that HAProxy refuses a configuration.
pub(crate) const REFUSED: &str = "reload";
/// The maximum number of commands of one connection.
const AT_ONCE: usize = 500;
/// The answer of a master that is busy with a reload that another program or a person requested.
const BUSY: &str = "Another reload is still in progress";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Processes {
    /// Reloads since the master started, failed ones included.
    reloads: u64,
    failed: u64,
    workers: Vec<u32>,
}

impl Processes {
    fn parse(text: &str) -> Self {
        let mut found = Self::default();
        // Old workers come last.
        for line in text.lines().take_while(|line| !line.starts_with("# old")) {
            match line.split_whitespace().collect::<Vec<_>>().as_slice() {
                [_, "master", reloads, rest @ ..] => {
                    found.reloads = reloads.parse().unwrap_or_default();
                    if let ["[failed:", failed, ..] = rest {
                        found.failed = failed.trim_end_matches(']').parse().unwrap_or_default();
                    }
                }
                [pid, "worker", ..] => found.workers.extend(pid.parse::<u32>().ok()),
                _ => {}
            }
        }
        found
    }
}

/// The process that reloads HAProxy and answers for its workers.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Master {
    /// HAProxy's master socket (haproxy -W -S), for reloads and for the proof that the file runs
    #[arg(long = "master-socket", env = "NODEGATE_HAPROXY_MASTER_SOCKET", value_name = "SOCKET")]
    #[arg(default_value = "/run/nodegate-haproxy/master.sock")]
    pub(crate) socket: PathBuf,
}

impl Master {
    /// Returns the process ID of the newest worker that serves.
    pub(crate) async fn worker(&self) -> Result<u32, Failure> {
        // "show proc" calls it an old one after a refused reload, from 3.1 on.
        let info = self.ask_worker(&["show info".to_owned()]).await?;
        let pid = info.lines().find_map(|line| line.strip_prefix("Pid: ")?.trim().parse().ok());
        pid.ok_or_else(|| Failure::new(SILENT, "HAProxy does not answer: no worker is ready"))
    }

    async fn processes(&self) -> Result<Processes, Failure> {
        Ok(Processes::parse(&self.ask("show proc\n", ANSWER).await?))
    }

    /// Sends commands to the newest worker. Returns its answers, one after the other.
    pub(crate) async fn ask_worker(&self, commands: &[String]) -> Result<String, Failure> {
        let mut answers = String::new();
        for some in commands.chunks(AT_ONCE) {
            let lines: Vec<String> = some.iter().map(|command| format!("@1 {command}\n")).collect();
            answers += &self.ask(&lines.concat(), ANSWER).await?;
        }
        Ok(answers)
    }

    /// Sends commands to the newest worker that have no answer if they succeed.
    pub(crate) async fn set(&self, commands: &[String]) -> Result<(), Failure> {
        let answers = self.ask_worker(commands).await?;
        let said = answers.lines().find(|line| !line.trim().is_empty());
        let refused = |said| Failure::new("weights", format!("HAProxy refuses a weight: {said}"));
        said.map_or(Ok(()), |said| Err(refused(said)))
    }

    /// Returns true if the newest worker runs the configuration with this hash.
    pub(crate) async fn runs(&self, hash: &str) -> Result<bool, Failure> {
        let answer = self.ask_worker(&[format!("show servers state {}", names::proof(hash))]).await?;
        Ok(answer.starts_with("1\n#"))
    }

    /// Reloads, after any other reload, and waits until the newest worker proves the configuration with this hash.
    pub(crate) async fn reload(&self, hash: &str) -> Result<(), Failure> {
        let before = self.processes().await?;
        let reloaded = async {
            loop {
                match self.ask("reload\n", RELOAD).await {
                    Ok(answer) if answer.contains(BUSY) => {}
                    Ok(answer) if answer.contains("Success=0") => return Err(refused(answer.as_bytes())),
                    // Until 3.0, a master that reloads restarts, and drops connections that it has not read.
                    Ok(_) | Err(_) if self.proves(hash, &before).await? => return Ok(()),
                    Ok(_) | Err(_) => {}
                }
                tokio::time::sleep(POLL).await;
            }
        };
        let late = || Failure::new(REFUSED, format!("no new worker {} s after the reload", RELOAD.as_secs()));
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
                return Err(runs_another());
            }
            if now.reloads == before.reloads && !is_fresh && Instant::now() >= again {
                return Ok(false);
            }
        }
    }

    /// Sends lines, and waits up to `within` for the end of the answer.
    async fn ask(&self, lines: &str, within: Duration) -> Result<String, Failure> {
        let at = self.socket.display();
        let failed =
            |error: &dyn Display| Failure::new(SILENT, format!("HAProxy does not answer: {at}: {error}"));
        let answer = async {
            let mut stream = UnixStream::connect(&self.socket).await.map_err(|error| match error.kind() {
                ErrorKind::NotFound | ErrorKind::ConnectionRefused => {
                    Failure::new(ABSENT, format!("HAProxy is not running: {at}: {error}"))
                }
                _ => failed(&error),
            })?;
            talk(&mut stream, lines).await.map_err(|error| failed(&error))
        };
        let late = || failed(&format!("no answer within {} s", within.as_secs()));
        tokio::time::timeout(within, answer).await.unwrap_or_else(|_| Err(late()))
    }
}

fn refused(said: &[u8]) -> Failure {
    let what = "HAProxy refuses the reload and goes on with the old configuration";
    Failure::new(REFUSED, alerts(said).map_or_else(|| what.to_owned(), |said| format!("{what}: {said}")))
}

pub(crate) fn runs_another() -> Failure {
    Failure::new(
        "proof",
        "HAProxy runs another configuration: it loads another file (-f), or was not reloaded",
    )
}

async fn talk(stream: &mut UnixStream, lines: &str) -> io::Result<String> {
    let (read, mut write) = stream.split();
    let (mut read, mut answer) = (read.take(MAX_ANSWER + 1), Vec::new());
    let send = async {
        write.write_all(lines.as_bytes()).await?;
        // The master keeps the connection open for more commands until the client closes its side.
        write.shutdown().await
    };
    tokio::try_join!(send, read.read_to_end(&mut answer))?;
    if answer.len() as u64 > MAX_ANSWER {
        return Err(io::Error::other("the answer is too long"));
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Runs `haproxy -c` on a file, and kills it if it takes too long. The error says what it printed.
pub(crate) async fn check(haproxy: &Path, file: &Path) -> Result<(), Failure> {
    let (name, failed) = (haproxy.display(), |why: String| Failure::new("check", why));
    let cannot_run = |error: io::Error| {
        let (flag, why) = ("--haproxy (NODEGATE_HAPROXY_BINARY)", os_words(&error));
        failed(format!("can't run {flag} \"{name}\": {why}; install HAProxy, or name its program"))
    };
    let refuses = |why: String| failed(format!("haproxy -c refuses the new configuration: {why}"));
    let mut command = Command::new(haproxy);
    command.arg("-c").arg("-f").arg(file).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::piped()).kill_on_drop(true);
    let mut child = command.spawn().map_err(cannot_run)?;
    let mut said = Vec::new();
    let ended = async {
        if let Some(output) = child.stderr.take() {
            // One that prints too much ends when its output is closed.
            output.take(MAX_OUTPUT).read_to_end(&mut said).await?;
        }
        child.wait().await
    };
    match tokio::time::timeout(CHECK, ended).await {
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(status)) => Err(refuses(
            alerts(&said).unwrap_or_else(|| format!("{name} says nothing, and ends with {status}")),
        )),
        Ok(Err(error)) => Err(cannot_run(error)),
        Err(_) => Err(refuses(format!("{name} takes longer than {} s", CHECK.as_secs()))),
    }
}

/// Returns the first alerts and warnings of a text that HAProxy printed, in one line. Its reader has bounded its size.
fn alerts(said: &[u8]) -> Option<String> {
    let said = String::from_utf8_lossy(said);
    let of = |kind| {
        said.lines().filter_map(move |line| line.split_once(kind)).map(|(_, alert)| without_pid(alert))
    };
    let alerts: Vec<&str> = of("[ALERT]").chain(of("[WARNING]")).take(ALERTS).collect();
    let text = if alerts.is_empty() { said.trim().replace('\n', "; ") } else { alerts.join("; ") };
    (!text.is_empty()).then(|| sanitize_short(&text, MAX_CHARS))
}

fn without_pid(alert: &str) -> &str {
    let alert = alert.trim_start();
    let rest = alert.strip_prefix('(').and_then(|rest| rest.split_once(") : "));
    rest.map_or(alert, |(_, message)| message).trim()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn show_proc_is_read() {
        let text = "#<PID>          <type>          <reloads>       <uptime>        <version>\n\
            1162            master          5 [failed: 2]   0d00h02m07s     2.6.12\n# workers\n\
            1271            worker          1               0d00h00m00s     2.6.12\n# old workers\n\
            1233            worker          3               0d00h00m43s     2.6.12\n# programs\n\n";
        let expected = Processes { reloads: 5, failed: 2, workers: vec![1271] };
        assert_eq!(Processes::parse(text), expected);
        assert_eq!(Processes::parse("nonsense\n1 master x"), Processes::default());
    }

    /// From 3.1 on, "show proc" calls the worker that serves an old one after a refused reload.
    #[tokio::test]
    async fn the_worker_that_serves_is_found_after_a_refused_reload() {
        let directory = tempfile::tempdir().unwrap();
        let master = Master { socket: directory.path().join("master.sock") };
        let listener = tokio::net::UnixListener::bind(&master.socket).unwrap();
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut asked = String::new();
            stream.read_to_string(&mut asked).await.unwrap();
            let processes = "1 master 2 [failed: 1]\n# workers\n# old workers\n7 worker 1\n";
            let answer = if asked == "@1 show info\n" { "Pid: 7\n" } else { processes };
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        assert_eq!(master.worker().await.unwrap(), 7);
    }

    #[tokio::test]
    async fn time_and_output_of_a_program_are_bounded() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("haproxy");
        for (script, says) in [
            ("echo no >&2; exit 3", "no"),
            ("exit 3", "ends with exit status: 3"),
            ("yes y >&2", "y; y"),
            ("exec sleep 1000", "takes longer"),
        ] {
            std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
            std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700)).unwrap();
            if says == "takes longer" {
                tokio::time::pause();
            }
            let error = check(&program, &program).await.unwrap_err().text;
            assert!(error.contains(says) && error.len() < 2 * MAX_CHARS, "{error}");
        }
    }

    #[test]
    fn the_first_alerts_are_the_message_in_one_line() {
        for (said, message) in [
            (
                "[WARNING] (1) : x\n[ALERT]    (12) : config : [f:1]: no\n[ALERT] (12) : b\n",
                "config : [f:1]: no; b; x",
            ),
            ("no\x1b[31m such\nfile\n", "no\u{fffd}[31m such; file"),
        ] {
            assert_eq!(alerts(said.as_bytes()).as_deref(), Some(message));
        }
        let long = "[ALERT] x\n".repeat(1000) + &"y".repeat(10_000);
        assert_eq!((alerts(long.as_bytes()).as_deref(), alerts(b" ")), (Some("x; x; x"), None));
    }
}
