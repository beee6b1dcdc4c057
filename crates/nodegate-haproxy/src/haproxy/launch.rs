//! Other programs, with bounds on their time and their output; the way in which HAProxy's master was started; and
//! `haproxy -c`, which has to see what the master sees.

use crate::failure::Failure;
use nodegate_program::sanitize_short;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::process::Command;

/// Variables with which a master speaks to itself over its re-execution, and to systemd.
const OWN_VARIABLES: [&str; 4] =
    ["HAPROXY_MWORKER", "HAPROXY_PROCESSES", "HAPROXY_LOAD_SUCCESS", "NOTIFY_SOCKET"];

/// The arguments, the environment and the directory of a master, as far as its configuration depends on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(crate) options: Vec<OsString>,
    pub(crate) files: Vec<OsString>,
    /// The environment. `None` if it can't be read.
    pub(crate) environment: Option<Vec<(OsString, OsString)>>,
    pub(crate) directory: PathBuf,
}

impl Launch {
    /// Reads the launch of a process. `None` if it can't be read, as in another container.
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let at = |name: &str| format!("/proc/{pid}/{name}");
        let mut launch = Self::parse(split(&std::fs::read(at("cmdline")).ok()?));
        launch.directory = std::fs::read_link(at("cwd")).unwrap_or_else(|_| PathBuf::from("/"));
        launch.environment = std::fs::read(at("environ")).ok().map(|bytes| variables(&bytes));
        Some(launch)
    }

    fn parse(words: Vec<OsString>) -> Self {
        let mut launch = Self::default();
        let mut words = words.into_iter().skip(1).peekable();
        while let Some(word) = words.next() {
            match word.to_string_lossy().as_ref() {
                "-f" | "--" => {
                    // Each may be followed by several files.
                    while let Some(file) = words.next_if(|word| word.as_bytes().first() != Some(&b'-')) {
                        launch.files.push(file);
                    }
                }
                "-C" | "-L" | "-m" | "-n" | "-N" => {
                    launch.options.push(word);
                    launch.options.extend(words.next());
                }
                "-S" | "-p" | "-x" => drop(words.next()),
                "-db" | "-dC" => {}
                option if option.starts_with("-d") => launch.options.push(word),
                // All others concern only a running process; the numbers behind -sf and -st fall here, too.
                _ => {}
            }
        }
        launch
    }

    pub(crate) fn variable(&self, name: &str) -> Option<&OsStr> {
        self.environment.as_ref()?.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }
}

fn split(bytes: &[u8]) -> Vec<OsString> {
    let words = bytes.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| OsString::from_vec(word.to_vec())).collect()
}

fn variables(bytes: &[u8]) -> Vec<(OsString, OsString)> {
    let own = |name: &OsString| OWN_VARIABLES.iter().any(|own| name.as_bytes().starts_with(own.as_bytes()));
    let pair = |word: OsString| {
        let at = word.as_bytes().iter().position(|byte| *byte == b'=')?;
        let (name, value) = word.as_bytes().split_at(at);
        Some((OsString::from_vec(name.to_vec()), OsString::from_vec(value.get(1..)?.to_vec())))
    };
    split(bytes).into_iter().filter_map(pair).filter(|(name, _)| !own(name)).collect()
}

/// The timeout. HAProxy reads 100,000 servers in a few seconds.
const TIMEOUT: Duration = Duration::from_mins(1);
const MAX_SOCKETS: u32 = 64;

/// Runs `haproxy -c` on a file, as the master would load it.
pub(crate) async fn check(haproxy: &Path, launch: Option<&Launch>, file: &Path) -> Result<(), Failure> {
    let ended = run(command_of(haproxy, launch, file), TIMEOUT).await;
    ended.map_err(|why| Failure::new("check", format!("haproxy -c refuses the new configuration: {why}")))
}

fn command_of(haproxy: &Path, launch: Option<&Launch>, file: &Path) -> Command {
    let sockets = launch.and_then(|launch| launch.variable("LISTEN_FDS")?.to_str()?.parse().ok());
    let stand_in = sockets.and_then(|count: u32| {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
        Some((count.min(MAX_SOCKETS), OwnedFd::from(socket)))
    });
    // `bind fd@3` names a socket of systemd. A socket of ours stands in for each: HAProxy only looks at it.
    let mut command = if let Some((count, socket)) = stand_in {
        let copies: Vec<String> = (3..3 + count).map(|fd| format!("{fd}<&0")).collect();
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("exec \"$@\" {}", copies.join(" "))).arg("sh").arg(haproxy);
        shell.stdin(Stdio::from(socket));
        shell
    } else {
        let mut plain = Command::new(haproxy);
        plain.stdin(Stdio::null());
        plain
    };
    command.arg("-c").arg("-f").arg(file);
    if let Some(launch) = launch {
        command.args(&launch.options).current_dir(&launch.directory);
        if let Some(variables) = &launch.environment {
            let path = std::env::var_os("PATH");
            command.env_clear().envs(path.map(|path| ("PATH", path)));
            command.envs(variables.iter().map(|(name, value)| (name, value)));
        }
    }
    command
}

/// The maximum number of bytes that a program may print, on both of its outputs.
const MAX_OUTPUT: u64 = 1 << 20;
/// The time for the last output of a program that has ended. A process that it left behind may keep it open.
const LAST: Duration = Duration::from_millis(200);

const ALERTS: usize = 3;
const MAX_CHARS: usize = 600;

/// Runs a program in a process group, which is killed if a bound is exceeded. The error is what it printed.
pub(crate) async fn run(mut command: Command, within: Duration) -> Result<(), String> {
    let name = command.as_std().get_program().to_string_lossy().into_owned();
    let cannot_run = |error: io::Error| format!("can't run {name}: {error}");
    let (output, theirs) = io::pipe().map_err(cannot_run)?;
    command.stdout(theirs.try_clone().map_err(cannot_run)?).stderr(theirs);
    let mut child = command.process_group(0).kill_on_drop(true).spawn().map_err(cannot_run)?;
    // With it, our copies of the pipe's other end are gone.
    drop(command);
    let group = child.id().and_then(|pid| Pid::from_raw(pid.cast_signed()));
    let output = Receiver::from_owned_fd(output.into()).map_err(cannot_run)?;
    let mut said = Vec::new();
    let result = {
        // A program that prints too much ends when its output is closed.
        let read = async { output.take(MAX_OUTPUT + 1).read_to_end(&mut said).await };
        let mut read = Box::pin(read);
        let ended = async {
            tokio::select! {
                status = child.wait() => {
                    let _ = tokio::time::timeout(LAST, &mut read).await;
                    status
                }
                _ = &mut read => child.wait().await,
            }
        };
        tokio::time::timeout(within, ended).await
    };
    match result {
        Ok(Ok(_)) if said.len() as u64 > MAX_OUTPUT => {
            Err(format!("{name} prints more than {MAX_OUTPUT} bytes"))
        }
        Ok(Ok(status)) if status.success() => Ok(()),
        Ok(Ok(_)) => Err(alerts(&said)),
        ended => {
            if let Some(group) = group {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let late = || format!("{name} takes longer than {} s", within.as_secs());
            Err(ended.map_or_else(|_| late(), |ended| ended.map_or_else(cannot_run, |_| String::new())))
        }
    }
}

/// Returns the first alerts of a text that HAProxy printed, in one line. Its reader has bounded its size.
pub(crate) fn alerts(said: &[u8]) -> String {
    let said = String::from_utf8_lossy(said);
    let alerts = said.lines().filter_map(|line| line.split_once("[ALERT]")).take(ALERTS);
    let mut text = alerts.map(|(_, alert)| without_pid(alert)).collect::<Vec<_>>().join("; ");
    if text.is_empty() {
        text = said.trim().replace('\n', "; ");
    }
    if text.is_empty() { "its log says why".to_owned() } else { sanitize_short(&text, MAX_CHARS) }
}

fn without_pid(alert: &str) -> &str {
    let alert = alert.trim_start();
    let rest = alert.strip_prefix('(').and_then(|rest| rest.split_once(") : "));
    rest.map_or(alert, |(_, message)| message).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_the_meaning_of_a_configuration_is_kept() {
        let words =
            "haproxy -W -D -dr -db -f a.cfg b.cfg -C /etc/haproxy -S /run/m.sock -p /run/p -m 100 -- d.cfg";
        let launch = Launch::parse(words.split(' ').map(OsString::from).collect());
        assert_eq!(launch.options, ["-dr", "-C", "/etc/haproxy", "-m", "100"].map(OsString::from));
        assert_eq!(launch.files, ["a.cfg", "b.cfg", "d.cfg"].map(OsString::from));
    }

    #[test]
    fn a_master_s_own_variables_are_left_out() {
        let found =
            variables(b"A=1\0HAPROXY_MWORKER_REEXEC=1\0HAPROXY_PROCESSES=|x\0NOTIFY_SOCKET=/x\0B=c=d\0=\0");
        let names: Vec<_> =
            found.iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect();
        assert_eq!(names, ["A=1", "B=c=d", "="]);
    }

    async fn shell(script: &str, within: Duration) -> Result<(), String> {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        run(command, within).await
    }

    #[tokio::test]
    async fn time_and_output_of_a_program_are_bounded() {
        let minute = Duration::from_mins(1);
        assert_eq!(shell("echo out; echo no >&2; exit 3", minute).await, Err("out; no".to_owned()));
        for script in ["yes", "yes >&2"] {
            assert!(shell(script, minute).await.unwrap_err().contains("prints more"));
        }
        let hangs = shell("sleep 1000 & wait", Duration::from_millis(50)).await;
        assert!(hangs.unwrap_err().contains("takes longer"));
        // A process that it leaves behind does not keep its result back.
        let pid = tempfile::NamedTempFile::new().unwrap();
        let leaves = format!("sleep 100 & echo $! >{}", pid.path().display());
        assert!(tokio::time::timeout(Duration::from_secs(30), shell(&leaves, minute)).await.unwrap().is_ok());
        shell(&format!("kill $(cat {})", pid.path().display()), minute).await.unwrap();
    }

    #[test]
    fn the_first_alerts_are_the_message_in_one_line() {
        for (said, message) in [
            (
                "[NOTICE] (1) : x\n[ALERT]    (12) : config : parsing [f:1]: no\n[ALERT] (12) : b\n",
                "config : parsing [f:1]: no; b",
            ),
            ("", "its log says why"),
            ("no\x1b[31m such\nfile\n", "no\u{fffd}[31m such; file"),
        ] {
            assert_eq!(alerts(said.as_bytes()), message);
        }
        let long = "[ALERT] x\n".repeat(1000) + &"y".repeat(10_000);
        assert_eq!(alerts(long.as_bytes()), "x; x; x");
    }
}
