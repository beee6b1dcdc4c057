//! `HAProxy`, in the system's version or another release.

use crate::balancer::{Balancer, Program, Row};
use crate::nodes::Nodes;
use crate::site::{NODES, Site, documented};
use nodegate_testbed::haproxy::{self, Haproxy};
use std::path::{Path, PathBuf};
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

impl Balancer for Haproxy {
    fn says(&self, _: &Site, node: usize) -> Option<String> {
        Some(self.server(NODES[node])?.status)
    }
}

pub(crate) fn start(row: &Row, nodes: &Nodes) -> Box<dyn Balancer> {
    let program = match row.program {
        Program::Haproxy(version) => fetched(version, row.name),
        Program::Debian | Program::Wheel(_) => PathBuf::from("haproxy"),
    };
    Box::new(Haproxy::start_as(&program, &nodes.site.configuration(row.file)))
}

/// Starts HAProxy without health checks, for comparison.
pub(crate) fn start_unasking(row: &Row, nodes: &Nodes) -> Box<dyn Balancer> {
    let file = Path::new(ROOT).join("tests/balancers").join(row.file);
    Box::new(Haproxy::start(&nodes.site.moved(&file)))
}

/// Returns a program from another of Debian's suites, by the version in the row.
fn fetched(version: &str, name: &str) -> PathBuf {
    let fetch = Command::new("hack/install-haproxy").arg(version).current_dir(ROOT).output().unwrap();
    assert!(fetch.status.success(), "{}", String::from_utf8_lossy(&fetch.stderr));
    let program = Path::new(String::from_utf8(fetch.stdout).unwrap().trim()).join("haproxy");
    let says = Command::new(&program).arg("-v").output().unwrap().stdout;
    let says = String::from_utf8_lossy(&says).into_owned();
    let (_, wanted) = name.split_once(' ').unwrap();
    assert!(says.contains(&format!("version {wanted}.")), "the row is called {name}, and this is {says}");
    program
}

#[test]
fn haproxy_accepts_the_documented_configurations() {
    let site = Site::new();
    for name in documented("haproxy") {
        haproxy::check(&site.configuration(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
