//! Caddy, in a newer version than Debian's.

use crate::balancer::{Balancer, Row};
use crate::nodes::Nodes;
use crate::site::Site;
use nodegate_testbed::process::Program;
use nodegate_testbed::programs;
use std::fs;
use std::process::Command;

struct Caddy {
    _program: Program,
}

impl Balancer for Caddy {
    /// Caddy's metric covers both pools, so it has no status of one node.
    fn says(&self, _: &Site, _: usize) -> Option<String> {
        None
    }
}

pub(crate) fn start(row: &Row, nodes: &Nodes) -> Box<dyn Balancer> {
    let file = nodes.site.configuration(row.file);
    let documented = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{{\n\tadmin off\n}}\n{documented}")).unwrap();
    let mut command = Command::new(programs::fetched("caddy").expect("hack/install-pinned installs it"));
    command.args(["run", "--adapter", "caddyfile", "--config"]).arg(file);
    command.env("HOME", nodes.site.dir()).env("GOMAXPROCS", "1");
    Box::new(Caddy { _program: Program::start(&mut command) })
}
