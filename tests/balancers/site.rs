//! Where a story takes place: addresses of its own on loopback, so that the configurations are the documented ones but
//! for the network's first bytes.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
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
    net: [u8; 3],
    dir: TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicU8 = AtomicU8::new(1);
        // Of each test process its own; 127.0.0.0/8 is all loopback.
        let second = u8::try_from(std::process::id() % 200).unwrap() + 20;
        let net = [127, second, COUNT.fetch_add(1, Ordering::Relaxed)];
        Self { net, dir: tempfile::tempdir().unwrap() }
    }

    fn address(&self, last: u8) -> IpAddr {
        let [a, b, c] = self.net;
        Ipv4Addr::new(a, b, c, last).into()
    }

    /// A node's address: 10.0.0.11 and so on in the documentation.
    pub(crate) fn node(&self, index: usize) -> IpAddr {
        self.address(11 + u8::try_from(index).unwrap())
    }

    /// The balancer's address: 10.0.0.10 in the documentation.
    pub(crate) fn frontend(&self) -> SocketAddr {
        (self.address(10), FRONTEND_PORT).into()
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// A documented configuration, moved to this site.
    pub(crate) fn configuration(&self, name: &str) -> PathBuf {
        let text = fs::read_to_string(format!("{DOCS}/{name}")).unwrap();
        let [a, b, c] = self.net;
        let text = text
            .replace("10.0.0.10:443", &self.frontend().to_string())
            .replace("10.0.0.10, port_value: 443", &format!("10.0.0.10, port_value: {FRONTEND_PORT}"))
            .replace("10.0.0.", &format!("{a}.{b}.{c}."))
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
