//! Debian's nginx, whose passive checks are made to see the agent's answer.

use crate::event::Event;
use crate::nodes::Nodes;
use crate::site::{NODES, Site};
use crate::traffic::{ask, failures, served, traffic};
use nodegate_testbed::prober::Saw;
use nodegate_testbed::programs::system;
use nodegate_testbed::until;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

struct Nginx(Child);

impl Nginx {
    fn start(site: &Site, name: &str) -> Self {
        let mut command = command(site, name);
        let nginx = Self(command.args(["-g", "daemon off; master_process off;"]).spawn().unwrap());
        until("nginx to answer", || matches!(ask(site.frontend()), Saw::Answer(..)).then_some(()));
        nginx
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// nginx with a documented configuration in an otherwise empty one.
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

/// What a syntax check of a configuration says.
pub(crate) fn check(site: &Site, name: &str) -> Result<(), String> {
    let output = command(site, name).arg("-t").stderr(Stdio::piped()).output();
    let output = output.expect("nginx is needed: make tools");
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn a_passive_check_sees_what_the_agent_says() {
    let mut nodes = Nodes::start();
    let _nginx = Nginx::start(&nodes.site, "nginx/doors.conf");
    let traffic = traffic(nodes.site.frontend());
    for event in [Event::Cordon, Event::Drain, Event::NotReady] {
        let outcome = event.play_new(&mut nodes, &traffic);
        eprintln!("nginx, {}: {outcome}", event.name());
        assert!(outcome.failures.is_empty(), "{}: {:?}", event.name(), outcome.failures);
    }
    // What passive checks are made for: a service that is suddenly gone, on a node that is ready.
    nodes.wait_for_traffic();
    nodes.backends[0].stop();
    let gone = Instant::now();
    until("the others to take over", || {
        let served = served(&traffic, gone);
        NODES[1..].iter().all(|name| served.get(*name) > Some(&20)).then_some(())
    });
    assert_eq!(failures(&traffic, gone), [] as [String; 0]);
}
