//! Debian's nginx, whose passive checks see the agent's answer.

use crate::balancer::{Balancer, Row};
use crate::nodes::Nodes;
use crate::site::{Site, documented};
use nodegate_testbed::process::Program;
use nodegate_testbed::programs::system;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

struct Nginx {
    _program: Program,
}

impl Balancer for Nginx {
    /// nginx without a subscription has no status.
    fn says(&self, _: &Site, _: usize) -> Option<String> {
        None
    }
}

pub(crate) fn start(row: &Row, nodes: &Nodes) -> Box<dyn Balancer> {
    let mut command = command(&nodes.site, row.file);
    command.args(["-g", "daemon off; master_process off;"]);
    Box::new(Nginx { _program: Program::start(&mut command) })
}

/// Returns the command of nginx, with a documented configuration in an otherwise empty one.
fn command(site: &Site, name: &str) -> Command {
    let dir = site.dir().display();
    let documented = site.configuration(name);
    let main: PathBuf = site.dir().join("nginx.conf");
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {dir}/{kind};"))
        .join(" ");
    let text = format!(
        "pid {dir}/nginx.pid; error_log {dir}/error.log; events {{}}\nhttp {{ access_log off; {paths} include {}; }}\n",
        documented.display()
    );
    fs::write(&main, text).unwrap();
    let mut command = system("nginx");
    command.arg("-e").arg(site.dir().join("error.log")).arg("-c").arg(main);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

#[test]
fn nginx_accepts_the_documented_configurations() {
    let site = Site::new();
    for name in documented("nginx") {
        let output = command(&site, &name).arg("-t").stderr(Stdio::piped()).output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    }
}
