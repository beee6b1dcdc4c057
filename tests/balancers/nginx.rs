//! Debian's nginx, whose passive checks see the agent's answer.

use crate::balancer::{Balancer, Row};
use crate::nodes::Nodes;
use crate::site::{NODES, Site};
use crate::traffic::{failures, served, traffic};
use nodegate_testbed::process::Program;
use nodegate_testbed::programs::system;
use nodegate_testbed::until;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

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

/// Checks the syntax of a configuration, and returns the error.
pub(crate) fn check(site: &Site, name: &str) -> Result<(), String> {
    let output = command(site, name).arg("-t").stderr(Stdio::piped()).output();
    let output = output.expect("nginx is needed: hack/install-tools installs it");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

/// Shows what passive checks are for: a service on a ready node that is suddenly gone.
#[test]
fn nginx_fails_no_request_when_a_service_is_gone() {
    let nodes = Nodes::start();
    let _nginx = Nginx {
        _program: Program::start(
            command(&nodes.site, "nginx/local-servers.conf").args(["-g", "daemon off; master_process off;"]),
        ),
    };
    let traffic = traffic(nodes.site.frontend());
    nodes.wait_for_traffic_on(&[0, 1, 2]);
    nodes.backends[0].stop();
    let gone = Instant::now();
    until("the others to take over", || {
        let served = served(&traffic, gone);
        NODES[1..].iter().all(|name| served.get(*name) > Some(&20)).then_some(())
    });
    assert_eq!(failures(&traffic, gone), [] as [String; 0]);
}
