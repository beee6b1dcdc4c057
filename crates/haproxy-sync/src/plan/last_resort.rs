//! The backends that serve when no server of a Service's own backend may: a mass cordon must not be an outage.
//!
//! HAProxy decides, connection by connection, by what it knows of the servers; so neither a reload nor a word of ours is
//! needed when the last node is drained. A Service's own port is told to a shared backend by the frontend, so that there
//! is one server a node for all Services, and not one for each.

use crate::plan::annotation::{Balance, Mode, SendProxy};
use crate::plan::desired::{Desired, Frontend, LocalHealth, Server};
use crate::plan::facts::Family;
use crate::plan::names;
use crate::plan::policy::Policy;
use serde::Serialize;
use std::fmt;
use std::sync::Arc;

/// Which nodes serve when none is Ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LastResort {
    /// Those that pass their check, drained or not; when none does, any.
    #[default]
    All,
    /// Those that pass their check, drained or not.
    Drained,
    /// None: connections are refused.
    None,
}

impl fmt::Display for LastResort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// A backend that serves when no server of a frontend's own may. Nobody takes its servers out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LastResortBackend {
    /// Its name.
    pub name: String,
    /// TCP or HTTP.
    pub mode: Mode,
    /// The algorithm.
    pub balance: Balance,
    /// Whether the algorithm hashes.
    pub hashed: bool,
    /// The PROXY protocol.
    pub send_proxy: SendProxy,
    /// What its servers are checked by; none if any node is better than none.
    pub check: Option<LocalHealth>,
    /// The nodes' port, if it serves one Service alone; else the frontend sets it.
    pub node_port: Option<u16>,
    /// Its servers, one a node.
    #[serde(skip)]
    pub servers: Arc<Vec<Server>>,
}

impl LastResortBackend {
    /// Whether it is of one Service whose traffic stays on the node.
    pub fn is_local(&self) -> bool {
        self.node_port.is_some()
    }

    /// The server of a node.
    pub fn server(&self, node: &str) -> Option<&Server> {
        let at = self.servers.binary_search_by(|server| server.name.as_str().cmp(node)).ok()?;
        self.servers.get(at)
    }
}

/// Gives a frontend its last resort; backends that others have already are shared. `pool` tells its servers from others
/// in a name.
pub(crate) fn give(desired: &mut Desired, frontend: &mut Frontend, pool: &str, policy: &Policy) {
    if policy.last_resort == LastResort::None {
        return;
    }
    let backends = match &frontend.local {
        // A node without an endpoint would drop what it gets, so that any node is no better than none.
        Some(local) => vec![LastResortBackend {
            check: Some(LocalHealth { port: local.port, path: without_query(&local.path).to_owned() }),
            node_port: Some(frontend.node_port),
            ..like(frontend, names::last_resort(&frontend.backend))
        }],
        None => shared(frontend, pool, policy),
    };
    for backend in backends {
        frontend.last_resort.push(backend.name.clone());
        if desired.last_resort.iter().all(|known| known.name != backend.name) {
            desired.last_resort.push(backend);
        }
    }
}

/// What nodegate is asked without a word of draining: an endpoint is enough.
fn without_query(path: &str) -> &str {
    path.split_once('?').map_or(path, |(path, _)| path)
}

fn shared(frontend: &Frontend, pool: &str, policy: &Policy) -> Vec<LastResortBackend> {
    let proxy = match frontend.send_proxy {
        SendProxy::Off => "",
        SendProxy::V1 => "_proxy_v1",
        SendProxy::V2 => "_proxy_v2",
    };
    let kind = format!("{}_{}{proxy}_{pool}", frontend.mode, frontend.balance);
    let (port, path) = (policy.check.port, policy.check.drained_path());
    let healthy = LastResortBackend {
        check: Some(LocalHealth { port, path }),
        ..like(frontend, names::last_resort(&kind))
    };
    let any = like(frontend, names::any_node(&kind));
    if policy.last_resort == LastResort::All { vec![healthy, any] } else { vec![healthy] }
}

fn like(frontend: &Frontend, name: String) -> LastResortBackend {
    LastResortBackend {
        name,
        mode: frontend.mode,
        balance: frontend.balance,
        hashed: frontend.hashed,
        send_proxy: frontend.send_proxy,
        check: None,
        node_port: None,
        servers: frontend.servers.clone(),
    }
}

/// Families in a name.
pub(crate) fn families(families: &[Family]) -> String {
    let word = |family: &Family| match family {
        Family::V4 => "v4",
        Family::V6 => "v6",
    };
    if families.is_empty() { "any".to_owned() } else { families.iter().map(word).collect() }
}
