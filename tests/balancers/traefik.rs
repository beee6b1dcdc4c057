//! Traefik, which is not in Debian.

use crate::balancer::{Balancer, Row};
use crate::nodes::Nodes;
use crate::site::{SERVICE_PORT, Site};
use nodegate_testbed::process::Program;
use nodegate_testbed::{http, programs};
use serde_json::Value;
use std::net::SocketAddr;
use std::process::Command;

const API_PORT: u16 = 30445;

struct Traefik {
    _program: Program,
    api: SocketAddr,
    protocol: &'static str,
}

impl Balancer for Traefik {
    fn says(&self, site: &Site, node: usize) -> Option<String> {
        let reply = http::get(self.api, &format!("/api/{}/services/nodes@file", self.protocol)).ok()?;
        let service: Value = serde_json::from_str(&reply.body).ok()?;
        let server = SocketAddr::from((site.node(node), SERVICE_PORT));
        let known = if self.protocol == "http" { format!("http://{server}") } else { server.to_string() };
        Some(service["serverStatus"][known].as_str()?.to_owned())
    }
}

pub(crate) fn start(row: &Row, nodes: &Nodes) -> Box<dyn Balancer> {
    let frontend = nodes.site.frontend();
    let api = SocketAddr::from((frontend.ip(), API_PORT));
    let mut command = Command::new(programs::fetched("traefik").expect("hack/install-pinned installs it"));
    command.arg(format!("--entrypoints.ingress.address={frontend}"));
    command.arg(format!("--entrypoints.traefik.address={api}")).arg("--api.insecure=true");
    let file = nodes.site.configuration(row.file);
    command.arg(format!("--providers.file.filename={}", file.display())).env("GOMAXPROCS", "1");
    // Traefik must not contact its vendor.
    command.args(["--global.checknewversion=false", "--global.sendanonymoususage=false"]);
    let protocol = if row.file.contains("tcp") { "tcp" } else { "http" };
    Box::new(Traefik { _program: Program::start(&mut command), api, protocol })
}
