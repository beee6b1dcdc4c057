//! The backends that serve when none of a Service's own servers may. A mass cordon must not be an outage.

// HAProxy decides for each connection, so draining the last node takes no reload. The frontend tells a shared
// backend the Service's own port, so that one server per node is enough for all Services.

use crate::plan::annotation::{SendProxy, word_of};
use crate::plan::desired::{Backend, Check, Health, PlannedServer};
use crate::plan::names;
use crate::plan::policy::{LastResort, PlanPolicy};
use std::sync::Arc;

const DRAINED: &str = "Drained nodes that pass their check, for when no node is Ready.";
const ANY: &str = "Any node, one that is not drained if there is one, for when none passes its check.";

/// Returns the last-resort backends of a backend, in order of preference. Those with one name are shared.
/// `pool` distinguishes their servers, which are `all`, none of them out.
pub(crate) fn of(
    backend: &Backend,
    all: &Arc<Vec<PlannedServer>>,
    pool: &str,
    policy: &PlanPolicy,
) -> Vec<Backend> {
    if policy.last_resort == LastResort::None {
        return Vec::new();
    }
    let kind = kind(backend, pool);
    let serving = |name: String, comment, health| {
        let servers = all.clone();
        Backend { name, comment, health, node_port: None, servers, ..backend.clone() }
    };
    let drained = match &backend.health {
        Health::Unchecked => None,
        Health::Own(check) => {
            let own = serving(names::last_resort_of(&backend.name), DRAINED, drained_health(backend, check));
            Some(Backend { node_port: backend.node_port, ..own })
        }
        Health::Track(..) => {
            let health = Health::Track(names::PASSING.to_owned(), passing(policy));
            Some(serving(names::last_resort(&kind), DRAINED, health))
        }
    };
    // With the policy Local, a node without an endpoint would drop the traffic: any node is no better than
    // none.
    let any = (policy.last_resort == LastResort::All && !is_local(backend)).then(|| {
        let any = serving(names::any_node(&kind), ANY, Health::Unchecked);
        let has_ready = backend.servers.iter().any(|server| server.weight > 0);
        if has_ready { Backend { servers: backend.servers.clone(), ..any } } else { any }
    });
    drained.into_iter().chain(any).collect()
}

/// Returns true if only nodes with an endpoint take the traffic: the backend's own check asks for that.
fn is_local(backend: &Backend) -> bool {
    let path = backend.own_check().and_then(|check| check.path.as_ref());
    path.is_some_and(|path| !path.starts_with("/health?"))
}

/// Returns the check that drained nodes pass, too.
pub(crate) fn passing(policy: &PlanPolicy) -> Check {
    Check { port: Some(policy.check.port), path: Some("/health?drain=200".to_owned()) }
}

/// Returns the health of the last resort of a backend whose servers have checks of their own.
fn drained_health(backend: &Backend, check: &Check) -> Health {
    let drained = check.path.as_ref().map(|path| {
        let path = path.replace("drain=404", "drain=200");
        path.strip_suffix("?drain=503").map(str::to_owned).unwrap_or(path)
    });
    if drained == check.path {
        Health::Track(backend.name.clone(), check.clone())
    } else {
        Health::Own(Check { port: check.port, path: drained })
    }
}

fn kind(backend: &Backend, pool: &str) -> String {
    let proxy = match backend.send_proxy {
        SendProxy::Off => String::new(),
        version => format!("_proxy_{}", word_of(&version)),
    };
    format!("{}_{}{proxy}_{pool}", word_of(&backend.mode), word_of(&backend.balance))
}
