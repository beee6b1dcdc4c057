//! The way in which HAProxy's master was started, and `haproxy -c`, which has to see what the master sees.

use crate::failure::Failure;
use crate::haproxy::command;
use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
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
    let ended = command::run(command_of(haproxy, launch, file), TIMEOUT).await;
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
}
