//! Forwards: ports of the nodes themselves, published without a Service (`--forward`).

use crate::plan::{parse_port, selector};
use kube::core::Selector;
use nodegate_program::is_object_name;
use std::str::FromStr;

const TAKES: &str = "takes NAME=PORT:NODEPORT[@SELECTOR][?CHECKS], e.g. \
    https=443:443@node-role.kubernetes.io/infra?node_ready,okd_router_1936";

/// A port of HAProxy that leads to a port of the nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Forward {
    pub(crate) name: String,
    pub(crate) port: u16,
    pub(crate) node_port: u16,
    /// The labels of the nodes, as written, and parsed. `None` for all nodes.
    pub(crate) nodes: Option<(String, Selector)>,
    /// The names of the checks that the agents are asked for. Empty for the agents' own.
    pub(crate) checks: Vec<String>,
}

impl FromStr for Forward {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, rest) = text.trim().split_once('=').ok_or(TAKES)?;
        let (rest, checks) = rest.split_once('?').unwrap_or((rest, ""));
        let (ports, nodes) = match rest.split_once('@') {
            Some((ports, nodes)) => (ports, Some((nodes.trim().to_owned(), selector::parse(nodes.trim())?))),
            None => (rest, None),
        };
        let (port, node_port) = ports.split_once(':').ok_or(TAKES)?;
        let port_of = |text: &str| parse_port(text.trim()).map_err(|_| TAKES);
        let checks: Vec<String> =
            checks.split(',').map(str::trim).filter(|name| !name.is_empty()).map(str::to_owned).collect();
        let is_check = |name: &String| {
            name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'-' | b':' | b'/' | b'.'))
        };
        if !is_object_name(name) || name.contains('.') || name.len() > 63 || !checks.iter().all(is_check) {
            return Err(TAKES);
        }
        let (port, node_port) = (port_of(port)?, port_of(node_port)?);
        Ok(Self { name: name.to_owned(), port, node_port, nodes, checks })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forward_has_ports_and_perhaps_nodes_and_checks() {
        let plain: Forward = "https=443:8443".parse().unwrap();
        assert_eq!((plain.port, plain.node_port, plain.nodes, plain.checks.len()), (443, 8443, None, 0));
        let full: Forward = "http=80:80@role in (a, b),!c?node_ready,http:nginx".parse().unwrap();
        assert_eq!(full.nodes.map(|(text, _)| text).as_deref(), Some("role in (a, b),!c"));
        assert_eq!(full.checks, ["node_ready", "http:nginx"]);
        for bad in
            ["", "a", "a=1", "a=0:1", "a=1:70000", "A=1:1", "a.b=1:1", "a=1:1@", "a=1:1?x y", "a=1:1?x\nbind"]
        {
            assert!(bad.parse::<Forward>().is_err(), "{bad:?}");
        }
    }
}
