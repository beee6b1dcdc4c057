//! A real `HAProxy` and its stats socket.

use crate::http::TIMEOUT;
use crate::programs::{system, try_run};
use crate::waiting::{until, until_or};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The script that makes the documented state file.
const STATES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/load-balancers/haproxy-states.awk");

/// A running HAProxy with a backend `nodes`, and its log beside the configuration. Drop ends it.
pub struct Haproxy {
    program: PathBuf,
    child: Child,
    configuration: PathBuf,
}

/// One server in `show servers state` and `show stat`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveServer {
    /// The operational state: 0 stopped, 1 starting, 2 running, 3 stopping.
    pub operational: u32,
    /// The administrative state as bits: 0x01 forced maintenance, 0x08 forced drain, and others.
    pub administrative: u32,
    pub status: String,
}

impl LiveServer {
    pub fn is_ready(&self) -> bool {
        self.operational == 2 && self.administrative == 0 && self.status == "UP"
    }

    /// Returns true if the server is running but takes no new connections.
    pub fn is_draining(&self) -> bool {
        self.operational == 2 && self.administrative == 0x08 && self.status == "DRAIN (agent)"
    }

    /// Returns true if the agent's answer has stopped the server, and nothing else has.
    pub fn is_down(&self) -> bool {
        self.operational == 0 && self.status.starts_with("DOWN")
    }
}

impl Haproxy {
    /// Starts the system's HAProxy. Its socket and its state file are beside the configuration.
    pub fn start(configuration: &Path) -> Self {
        Self::start_as(Path::new("haproxy"), configuration)
    }

    /// Starts HAProxy in this directory with a stats socket. The text begins with the rest of `global`.
    pub fn with(directory: &Path, text: &str) -> Self {
        fs::create_dir_all(directory).unwrap();
        let (file, socket) = (directory.join("haproxy.cfg"), directory.join("nodegate.sock"));
        fs::write(&file, format!("global\n  stats socket {} level admin\n{text}", socket.display())).unwrap();
        Self::start(&file)
    }

    pub fn start_as(program: &Path, configuration: &Path) -> Self {
        let haproxy = Self {
            program: program.to_owned(),
            child: spawn(program, configuration, &[]),
            configuration: configuration.to_owned(),
        };
        haproxy.wait();
        haproxy
    }

    fn wait(&self) {
        until("HAProxy to answer", || self.command("show info").filter(|text| text.contains("Uptime")));
    }

    /// Sends a command to the stats socket. Returns `None` without an answer.
    pub fn command(&self, command: &str) -> Option<String> {
        ask(&self.configuration.with_file_name("nodegate.sock"), command, TIMEOUT)
    }

    pub fn up(&self, backend: &str) -> usize {
        // Type 4: servers alone.
        let stat = self.command(&format!("show stat {backend} 4 -1")).unwrap_or_default();
        stat.lines().filter(|line| line.split(',').nth(17) == Some("UP")).count()
    }

    pub fn restart(&mut self) {
        self.stop();
        let _ = fs::remove_file(self.configuration.with_file_name("server-state"));
        self.child = spawn(&self.program, &self.configuration, &[]);
        self.wait();
    }

    /// Reloads as `systemctl reload haproxy` does, with the documented state file. Returns what the script says.
    pub fn reload(&mut self) -> String {
        let [state_file, dump] =
            ["server-state", "server-state.dump"].map(|name| self.configuration.with_file_name(name));
        fs::write(&dump, self.command("show servers state").unwrap()).unwrap();
        let mut filter = Command::new("awk");
        filter.arg("-f").arg(STATES).arg(&self.configuration).arg(&dump);
        let output = filter.output().expect("awk runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        fs::write(state_file, output.stdout).unwrap();
        let old = self.child.id().to_string();
        let successor = spawn(&self.program, &self.configuration, &["-sf", &old]);
        let mut old_child = std::mem::replace(&mut self.child, successor);
        let own = format!("Pid: {}", self.child.id());
        until("the new HAProxy to answer", || self.command("show info").filter(|text| text.contains(&own)));
        // The old process lives on for its open connections.
        std::thread::spawn(move || old_child.wait());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    pub fn server(&self, name: &str) -> Option<LiveServer> {
        let row = |command: &str, separator: char, name_at: usize| {
            let table = self.command(command)?;
            let mut rows =
                table.lines().map(|line| line.split(separator).map(str::to_owned).collect::<Vec<_>>());
            rows.find(|row| row.get(name_at).is_some_and(|found| found == name))
        };
        let state = row("show servers state nodes", ' ', 3)?;
        Some(LiveServer {
            operational: state.get(5)?.parse().ok()?,
            administrative: state.get(6)?.parse().ok()?,
            status: row("show stat nodes -1 -1", ',', 1)?.get(17)?.clone(),
        })
    }

    pub fn wait_server(&self, name: &str, what: &str, wanted: impl Fn(&LiveServer) -> bool) {
        until_or(
            || self.server(name).filter(&wanted),
            || format!("HAProxy is to see {name} {what}, and sees {:?}", self.server(name)),
        );
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Sends a line to a socket of HAProxy's. Returns the answer, or `None` if none ends in time.
pub fn ask(socket: &Path, line: &str, within: Duration) -> Option<String> {
    let mut stream = UnixStream::connect(socket).ok()?;
    stream.set_read_timeout(Some(within)).ok()?;
    stream.write_all(format!("{line}\n").as_bytes()).ok()?;
    // A master waits for more commands until then.
    stream.shutdown(Shutdown::Write).ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    Some(text)
}

fn command(program: &Path, args: &[&str], configuration: &Path) -> Command {
    let mut command = system(program);
    command.args(args).arg("-f").arg(configuration);
    command
}

fn spawn(program: &Path, configuration: &Path, args: &[&str]) -> Child {
    let mut command = command(program, &["-db"], configuration);
    let log = File::create(configuration.with_extension("log")).unwrap();
    command.args(args).stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
    command.spawn().expect("haproxy is needed: hack/install installs it")
}

/// Runs HAProxy's syntax check on a configuration, and returns its messages as the error.
pub fn check(configuration: &Path) -> Result<(), String> {
    try_run(&mut command(Path::new("haproxy"), &["-c"], configuration)).map(drop)
}
