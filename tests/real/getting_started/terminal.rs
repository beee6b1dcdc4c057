//! A shell that stays open: what a command changes, such as the directory or a variable, holds for the next one.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// Longer than a release build takes on a busy machine.
const PATIENCE: Duration = Duration::from_hours(1);

pub(super) struct Terminal {
    bash: Child,
    stdin: Option<ChildStdin>,
    codes: Receiver<String>,
    printed: [PathBuf; 2],
}

/// What a command has ended with.
pub(super) struct Ended {
    pub(super) is_success: bool,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Terminal {
    /// Opens a shell with the environment and the directory of this command. What commands print goes into files.
    pub(super) fn open(mut bash: Command, files: &Path) -> Self {
        bash.args(["--noprofile", "--norc", "-o", "pipefail"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut bash = bash.spawn().expect("bash is needed");
        let (stdin, stdout) = (bash.stdin.take(), bash.stdout.take().unwrap());
        let (send, codes) = channel();
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        Self { bash, stdin, codes, printed: ["stdout", "stderr"].map(|name| files.join(name)) }
    }

    pub(super) fn run(&mut self, command: &str) -> Ended {
        let [out, errors] = &self.printed;
        let line = format!(
            "eval '{}' </dev/null >{} 2>{}; echo $?\n",
            command.replace('\'', r"'\''"),
            out.display(),
            errors.display()
        );
        self.stdin.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        let code = self.codes.recv_timeout(PATIENCE);
        let read = |path| String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned();
        let (stdout, stderr) = (read(out), read(errors));
        let code = code.unwrap_or_else(|error| panic!("$ {command}: {error}\n{stdout}{stderr}"));
        Ended { is_success: code == "0", stdout, stderr }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It has ended by itself unless a command hangs.
        if thread::panicking() {
            let _ = self.bash.kill();
        }
        let _ = self.bash.wait();
    }
}
