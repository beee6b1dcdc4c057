//! A Debian host whose HAProxy is in use, with the paths of Debian's packages in a mount namespace of its
//! own.

use crate::lab::Lab;
use nodegate_haproxy::haproxy::socket::Runtime;
use nodegate_testbed::programs::{needs_root, system};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Stdio;
use tempfile::TempDir;
use tokio::process::{Child, Command};

/// The unit that Debian's package installs.
const HAPROXY_UNIT: &str = "/lib/systemd/system/haproxy.service";
const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/systemd");

/// Mounts a copy of /etc, and an empty /run and /var/lib, which only this host sees.
const MOUNTS: &str = "set -e\nmount --make-rprivate /\nmkdir $1/etc\nmount -t tmpfs tmpfs $1/etc\ncp -a /etc/. $1/etc/\n\
    mount --bind $1/etc /etc\nmount -t tmpfs tmpfs /run\nmount -t tmpfs tmpfs /var/lib\n\
    rm -rf /etc/haproxy /etc/default/haproxy /etc/systemd/system/haproxy.service.d\n\
    mkdir -p /etc/haproxy /run/haproxy /var/lib/haproxy /etc/nodegate-haproxy\ntouch $1/ready\nexec sleep infinity\n";

pub(crate) struct Host {
    /// The address on which its HAProxy listens, because the hosts share one loopback interface.
    pub(crate) address: Ipv4Addr,
    dir: TempDir,
    anchor: Child,
    haproxy: Option<Child>,
    program: Option<Child>,
}

/// The settings of a unit and its drop-ins as systemd reads them, and the commands that it starts.
#[derive(Default)]
struct Unit {
    environment: BTreeMap<String, String>,
    before: Vec<String>,
    start: String,
}

impl Unit {
    /// Parses units. A settings file overrides the unit's own settings.
    fn read(texts: &[String], files: impl Fn(&str) -> String) -> Self {
        let mut unit = Self::default();
        let mut from_files = BTreeMap::new();
        for line in texts.iter().flat_map(|text| text.lines()) {
            match line.split_once('=') {
                Some(("Environment", settings)) => unit.environment.extend(assignments(settings)),
                Some(("EnvironmentFile", path)) => {
                    let text = files(path.trim_start_matches('-'));
                    let settings = text.lines().filter(|line| !line.starts_with('#'));
                    from_files.extend(settings.filter_map(assignment));
                }
                Some(("ExecStart", command)) => command.clone_into(&mut unit.start),
                Some(("ExecStartPre", command)) => unit.before.push(command.to_owned()),
                _ => {}
            }
        }
        unit.environment.extend(from_files);
        unit
    }

    /// Returns the words of a command, with variables replaced.
    fn words(&self, command: &str) -> Vec<String> {
        let value = |name: &str| self.environment.get(name).cloned().unwrap_or_default();
        let expand = |word: &str| word.strip_prefix('$').map_or_else(|| word.to_owned(), value);
        let expanded: Vec<String> = command.split_whitespace().map(expand).collect();
        expanded.iter().flat_map(|word| word.split_whitespace()).map(str::to_owned).collect()
    }
}

/// Parses the settings in a unit's line: `A=b "C=d e"`.
fn assignments(text: &str) -> Vec<(String, String)> {
    let (mut words, mut quoted) = (vec![String::new()], false);
    for letter in text.chars() {
        match letter {
            '"' => quoted = !quoted,
            ' ' if !quoted => words.push(String::new()),
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    words.iter().filter_map(|word| assignment(word)).collect()
}

/// Parses a line of a settings file.
fn assignment(line: &str) -> Option<(String, String)> {
    let (name, value) = line.split_once('=')?;
    Some((name.to_owned(), value.trim_matches('"').to_owned()))
}

impl Host {
    /// Starts a host with this configuration, whose HAProxy is in use.
    pub(crate) async fn new(index: u8, lab: &Lab, own: impl Fn(Ipv4Addr) -> String) -> Self {
        needs_root("mounts of its own");
        let dir = tempfile::tempdir().unwrap();
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "sh", "-c", MOUNTS, "sh"]).arg(dir.path()).kill_on_drop(true);
        let anchor = unshare.stdin(Stdio::null()).spawn().unwrap();
        let address = Ipv4Addr::new(127, 2, 0, index + 1);
        let mut host = Self { address, dir, anchor, haproxy: None, program: None };
        lab.until("the host has its mounts", async || host.dir.path().join("ready").exists()).await;
        std::fs::write(host.path("/etc/haproxy/haproxy.cfg"), own(address)).unwrap();
        host.start_haproxy(lab).await;
        host
    }

    /// Returns the path of a file of this host, as seen from outside.
    pub(crate) fn path(&self, path: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root{path}", self.anchor.id().unwrap()))
    }

    pub(crate) fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.path(path)).unwrap_or_default()
    }

    /// Returns a command on this host, whose output goes to its log.
    pub(crate) fn command(&self, words: &[String]) -> Command {
        let log = self.dir.path().join("log");
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut command = Command::from(system("nsenter"));
        command
            .arg("--mount")
            .arg("--target")
            .arg(self.anchor.id().unwrap().to_string())
            .arg("--")
            .args(words);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log).kill_on_drop(true);
        command
    }

    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    fn unit(&self, main: &str, drop_ins: &str) -> Unit {
        let mut texts = vec![std::fs::read_to_string(main).expect("a unit (hack/install-tools)")];
        if let Ok(entries) = std::fs::read_dir(self.path(drop_ins)) {
            texts.extend(entries.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()));
        }
        Unit::read(&texts, |path| self.read(path))
    }

    /// Starts HAProxy as systemd starts haproxy.service.
    async fn start_haproxy(&mut self, lab: &Lab) {
        let unit = self.unit(HAPROXY_UNIT, "/etc/systemd/system/haproxy.service.d");
        for command in &unit.before {
            // A check that the unit makes runs this program, too.
            let words = unit.words(&command.replace("/usr/sbin/haproxy", "haproxy"));
            let status = self.command(&words).status().await.unwrap();
            assert!(status.success(), "{command}\n{}", self.said());
        }
        let words = unit.words(&unit.start.replace("/usr/sbin/haproxy", "haproxy"));
        self.haproxy = Some(self.command(&words).spawn().unwrap());
        lab.until("HAProxy runs", async || self.worker().await.is_some()).await;
    }

    /// Restarts HAProxy as `systemctl restart haproxy` does.
    pub(crate) async fn restart_haproxy(&mut self, lab: &Lab) {
        let mut old = self.haproxy.take().unwrap();
        nodegate_testbed::process::signal(old.id().unwrap(), "TERM");
        old.wait().await.unwrap();
        self.start_haproxy(lab).await;
    }

    /// Copies the drop-in that has HAProxy load a second file.
    pub(crate) fn install_drop_in(&self) {
        let to = self.path("/etc/systemd/system/haproxy.service.d");
        std::fs::create_dir_all(&to).unwrap();
        std::fs::copy(format!("{PACKAGING}/haproxy.service.d/nodegate.conf"), to.join("nodegate.conf"))
            .unwrap();
    }

    /// Returns the program with its unit's settings and these arguments.
    pub(crate) fn program(&self, more: &[&str]) -> Command {
        let unit = self.unit(&format!("{PACKAGING}/nodegate-haproxy.service"), "/nowhere");
        assert_eq!(unit.start, "/usr/bin/nodegate-haproxy");
        let mut words = vec![env!("CARGO_BIN_EXE_nodegate-haproxy").to_owned()];
        words.extend(more.iter().map(|word| (*word).to_owned()));
        let mut command = self.command(&words);
        command.envs(&unit.environment);
        command
    }

    /// Starts the program as `systemctl start nodegate-haproxy` does.
    pub(crate) fn start_program(&mut self) {
        self.program = Some(self.program(&[]).spawn().unwrap());
    }

    /// Returns the ID of HAProxy's current worker.
    pub(crate) async fn worker(&self) -> Option<u32> {
        Runtime::Master(self.path("/run/haproxy-master.sock")).worker_pid().await.ok().flatten()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for child in [&self.program, &self.haproxy].into_iter().flatten() {
            // The master passes the signal on to its workers. A program that has ended needs no signal.
            let pid = child.id().map(|pid| pid.to_string()).unwrap_or_default();
            let _ = std::process::Command::new("kill").args(["-TERM", &pid]).stderr(Stdio::null()).status();
        }
    }
}

#[test]
fn units_are_read_as_systemd_reads_them() {
    let text =
        "Environment=\"A=/a\" \"B=-x -y\"\nEnvironmentFile=-/file\nExecStart=/bin/x -f $A $B $C\n".to_owned();
    let drop_in = "[Service]\nEnvironment=\"B=-z\"\nExecStartPre=/bin/touch f\n".to_owned();
    let unit = Unit::read(&[text.clone(), drop_in.clone()], |_| "#B=no\nC=c\n".to_owned());
    assert_eq!(unit.words(&unit.start), ["/bin/x", "-f", "/a", "-z", "c"]);
    assert_eq!(unit.before, ["/bin/touch f"]);
    let unit = Unit::read(&[text, drop_in], |_| "B=\"wins\"\n".to_owned());
    assert_eq!(unit.words(&unit.start), ["/bin/x", "-f", "/a", "wins"]);
}
