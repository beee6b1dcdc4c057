//! The addresses of a test: loopback ones that differ from the documented ones in the first bytes, or exactly these,
//! in network namespaces.

use crate::lan::Lan;
use nodegate_testbed::network::namespaces::Namespace;
use nodegate_testbed::network::ports::Loopback;
use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The names of the nodes in the documentation.
pub(crate) const NODES: [&str; 3] = ["worker-1", "worker-2", "worker-3"];
/// The port of the balanced service on each node.
pub(crate) const SERVICE_PORT: u16 = 30443;
/// The port of the balancer. The documentation's 443 needs root.
pub(crate) const FRONTEND_PORT: u16 = 30444;
pub(crate) const HTTP_PORT: u16 = 25001;
pub(crate) const AGENT_PORT: u16 = 25002;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/load-balancers");

pub(crate) struct Site {
    net: Loopback,
    /// The machines, if the site has some. Else everything is on loopback.
    lan: Option<Lan>,
    dir: TempDir,
}

impl Site {
    /// Creates a site on loopback.
    pub(crate) fn new() -> Self {
        Self { net: Loopback::new(), lan: None, dir: tempfile::tempdir().unwrap() }
    }

    /// Creates a site of namespaces; clients connect to `service`.
    pub(crate) fn lan(service: IpAddr) -> Self {
        Self { lan: Some(Lan::new(service)), ..Self::new() }
    }

    /// Returns a node's address: 10.0.0.11 and so on in the documentation.
    pub(crate) fn node(&self, index: usize) -> IpAddr {
        let on_loopback = || self.net.address(11 + u8::try_from(index).unwrap());
        self.lan.as_ref().map_or_else(on_loopback, |_| Lan::node_address(index))
    }

    /// Returns the address that clients connect to: 10.0.0.10 in the documentation.
    pub(crate) fn frontend(&self) -> SocketAddr {
        match &self.lan {
            None => (self.net.address(10), FRONTEND_PORT).into(),
            Some(lan) => (lan.service, SERVICE_PORT).into(),
        }
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Returns true if the site has namespaces.
    pub(crate) fn has_namespaces(&self) -> bool {
        self.lan.is_some()
    }

    /// Returns the namespaces of a site that must have some.
    pub(crate) fn machines(&self) -> &Lan {
        self.lan.as_ref().expect("it is played among namespaces")
    }

    /// Returns the command of a program on a node.
    pub(crate) fn command_on(&self, index: usize, program: impl AsRef<OsStr>) -> Command {
        match &self.lan {
            None => Command::new(program),
            Some(lan) => lan.nodes[index].command(program),
        }
    }

    /// Runs `act` on a node.
    pub(crate) fn on_node<T: Send>(&self, index: usize, act: impl FnOnce() -> T + Send) -> T {
        self.on(|lan| &lan.nodes[index], act)
    }

    /// Runs `act` on the machine with the API server and the routers.
    pub(crate) fn on_router<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        self.on(|lan| &lan.router, act)
    }

    /// Runs `act` on the clients' machine.
    pub(crate) fn as_client<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        self.on(|lan| &lan.client, act)
    }

    fn on<T: Send>(&self, machine: impl Fn(&Lan) -> &Namespace, act: impl FnOnce() -> T + Send) -> T {
        match &self.lan {
            None => act(),
            Some(lan) => machine(lan).act(act),
        }
    }

    /// Returns a documented configuration, with this site's addresses.
    pub(crate) fn configuration(&self, name: &str) -> PathBuf {
        self.moved(&PathBuf::from(format!("{DOCS}/{name}")))
    }

    /// Returns a configuration with this site's addresses.
    pub(crate) fn moved(&self, file: &Path) -> PathBuf {
        let text = fs::read_to_string(file).unwrap();
        let text = match &self.lan {
            Some(_) => text,
            None => text
                .replace("10.0.0.10:443", &self.frontend().to_string())
                .replace("10.0.0.10, port_value: 443", &format!("10.0.0.10, port_value: {FRONTEND_PORT}"))
                .replace("\n:80 {", &format!("\n:{FRONTEND_PORT} {{"))
                .replace("10.0.0.", &self.net.prefix())
                .replace("127.0.0.1", &self.frontend().ip().to_string())
                .replace("/run/nginx/", &format!("{}/", self.dir().display()))
                .replace("/run/haproxy/", &format!("{}/", self.dir().display()))
                .replace("/var/lib/haproxy/", &format!("{}/", self.dir().display())),
        };
        let path = self.dir().join(file.file_name().unwrap());
        fs::write(&path, text).unwrap();
        path
    }
}

/// Returns the documented configurations of a program.
pub(crate) fn documented(program: &str) -> Vec<String> {
    let files = fs::read_dir(format!("{DOCS}/{program}")).unwrap();
    let mut names: Vec<String> =
        files.map(|file| format!("{program}/{}", file.unwrap().file_name().display())).collect();
    names.sort();
    assert!(!names.is_empty());
    names
}
