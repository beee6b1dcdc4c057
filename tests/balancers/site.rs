//! Where a story takes place: addresses of its own on loopback, so that the configurations are the documented ones but
//! for the network's first bytes.

use nodegate_testbed::network::ports::Loopback;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The nodes, as the documentation names them.
pub(crate) const NODES: [&str; 3] = ["worker-1", "worker-2", "worker-3"];
/// Where the service that is balanced listens on each node.
pub(crate) const SERVICE_PORT: u16 = 30443;
/// Where the balancer listens. The documentation's 443 is for root.
pub(crate) const FRONTEND_PORT: u16 = 30444;
pub(crate) const HTTP_PORT: u16 = 25001;
pub(crate) const AGENT_PORT: u16 = 25002;

const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/load-balancers");

pub(crate) struct Site {
    net: Loopback,
    dir: TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self { net: Loopback::new(), dir: tempfile::tempdir().unwrap() }
    }

    /// A node's address: 10.0.0.11 and so on in the documentation.
    pub(crate) fn node(&self, index: usize) -> IpAddr {
        self.net.address(11 + u8::try_from(index).unwrap())
    }

    /// The balancer's address: 10.0.0.10 in the documentation.
    pub(crate) fn frontend(&self) -> SocketAddr {
        (self.net.address(10), FRONTEND_PORT).into()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A documented configuration, moved to this site.
    pub(crate) fn configuration(&self, name: &str) -> PathBuf {
        let text = fs::read_to_string(format!("{DOCS}/{name}")).unwrap();
        let text = text
            .replace("10.0.0.10:443", &self.frontend().to_string())
            .replace("10.0.0.10, port_value: 443", &format!("10.0.0.10, port_value: {FRONTEND_PORT}"))
            .replace("10.0.0.", &self.net.prefix())
            .replace("/run/nginx/", &format!("{}/", self.dir().display()))
            .replace("/run/haproxy/", &format!("{}/", self.dir().display()))
            .replace("/var/lib/haproxy/", &format!("{}/", self.dir().display()));
        let path = self.dir().join(Path::new(name).file_name().unwrap());
        fs::write(&path, text).unwrap();
        path
    }
}

/// The documented configurations of a program.
pub(crate) fn documented(program: &str) -> Vec<String> {
    let files = fs::read_dir(format!("{DOCS}/{program}")).unwrap();
    let mut names: Vec<String> =
        files.map(|file| format!("{program}/{}", file.unwrap().file_name().display())).collect();
    names.sort();
    assert!(!names.is_empty());
    names
}
