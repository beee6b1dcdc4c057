//! Runs the plugin for Windows under Wine.

use crate::lab::{Lab, Said};
use nodegate_testbed::programs::run;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const WINE: &str = "/usr/lib/wine/wine64";
const WINESERVER: &str = "/usr/lib/wine/wineserver64";
const HERE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios/windows");

/// A separate Wine installation, with the plugin and a kubectl.exe that runs the real kubectl.
pub(super) struct Wine {
    plugin: PathBuf,
    /// The directory with Wine's drive C and the programs.
    dir: tempfile::TempDir,
    kubectl: TcpListener,
}

impl Wine {
    pub(super) fn new() -> Self {
        let plugin = std::env::var_os("WINDOWS_PLUGIN").expect("WINDOWS_PLUGIN=<kubectl-nodegate.exe>");
        // cargo runs tests in their package's directory.
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let plugin = root.join(plugin).canonicalize().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let to = dir.path().display();
        run(&format!(
            "rustc --edition=2024 --target=x86_64-pc-windows-gnu -Clinker=x86_64-w64-mingw32-gcc -o {to}/kubectl.exe {HERE}/kubectl.rs"
        ));
        run(&format!(
            "x86_64-w64-mingw32-gcc -shared -o {to}/bcryptprimitives.dll {HERE}/bcryptprimitives.c -ladvapi32"
        ));
        let wine = Self { plugin, dir, kubectl: TcpListener::bind("127.0.0.1:0").unwrap() };
        let made = wine.command("wineboot").arg("--init").stderr(Stdio::null()).status().unwrap();
        assert!(made.success());
        wine
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(WINE);
        command.arg(program.as_ref()).env_clear().stdin(Stdio::null());
        for name in ["PATH", "LANG"] {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command
            .env("WINEPREFIX", self.dir.path().join("prefix"))
            .env("WINEPATH", windows(self.dir.path()))
            .env("WINEDEBUG", "-all")
            .env("WINEDLLOVERRIDES", "mscoree,mshtml=")
            .env("KUBECTL_AT", self.kubectl.local_addr().unwrap().to_string());
        command
    }

    /// Returns the plugin in this lab, with the lab's agents and without a kubeconfig.
    pub(super) fn plugin(&self, lab: &Lab, args: &[&str]) -> Command {
        let mut command = self.command(&self.plugin);
        command.args(args).arg(format!("--port={}", lab.crowd.port())).arg("--agent-timeout=20s");
        command
    }

    /// Returns the directory of `USERPROFILE`.
    pub(super) fn user_profile(&self) -> PathBuf {
        let users = std::fs::read_dir(self.dir.path().join("prefix/drive_c/users")).unwrap();
        let mut own = users.map(|user| user.unwrap().path()).filter(|user| !user.ends_with("Public"));
        own.next().unwrap()
    }

    /// Runs a command while the real kubectl answers for kubectl.exe, with the lab's kubeconfig.
    pub(super) fn run(&self, lab: &Lab, mut command: Command) -> Said {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        self.kubectl.set_nonblocking(true).unwrap();
        while child.try_wait().unwrap().is_none() {
            match self.kubectl.accept() {
                Ok((mut shim, _)) => {
                    shim.set_nonblocking(false).unwrap();
                    let mut words = String::new();
                    shim.read_to_string(&mut words).unwrap();
                    let said = self.real_kubectl(lab, words.lines());
                    let reply = format!("{}\0{}\0{}", said.code.unwrap(), said.out, said.err);
                    shim.write_all(reply.as_bytes()).unwrap();
                }
                Err(_) => std::thread::sleep(std::time::Duration::from_millis(20)),
            }
        }
        Said::of(&child.wait_with_output().unwrap())
    }

    /// Runs the real kubectl; the arguments name files as on Windows.
    fn real_kubectl<'a>(&self, lab: &Lab, words: impl Iterator<Item = &'a str>) -> Said {
        let drive_c = self.dir.path().join("prefix/drive_c").display().to_string();
        let word = |word: &str| match word.split_once("=C:\\") {
            Some((flag, file)) => format!("{flag}={drive_c}/{}", file.replace('\\', "/")),
            None => word.to_owned(),
        };
        let mut kubectl = Command::new("kubectl");
        kubectl.env("KUBECONFIG", lab.kubeconfig()).env("HOME", lab.dir.path()).args(words.map(word));
        Said::of(&kubectl.output().unwrap())
    }
}

impl Drop for Wine {
    fn drop(&mut self) {
        let mut server = Command::new(WINESERVER);
        let _ = server.arg("--kill").env("WINEPREFIX", self.dir.path().join("prefix")).status();
        let _ =
            Command::new(WINESERVER).arg("--wait").env("WINEPREFIX", self.dir.path().join("prefix")).status();
    }
}

/// Returns a path in Windows form: Wine shows the whole machine as drive Z.
pub(super) fn windows(path: &Path) -> String {
    format!("Z:{}", path.display().to_string().replace('/', "\\"))
}
