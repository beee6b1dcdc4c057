//! The backends that serve when none of a Service's own servers may. A mass cordon must not be an outage.
//!
//! HAProxy decides for each connection, by the states of the servers that it knows. So draining the last node
//! takes no reload. The frontend tells a shared backend the Service's own port, so that one server per node is
//! enough for all Services.

use crate::plan::annotation::{SendProxy, word_of};
use crate::plan::desired::{Backend, Check, Health, Weights};
use crate::plan::names;
use crate::plan::policy::{LastResort, PlanPolicy};

const DRAINED: &str = "Drained nodes that pass their check, for when no node is Ready.";
const ANY: &str = "Any node, one that is not drained if there is one, for when none passes its check.";

/// Returns the last-resort backends of a backend, in order of preference. Several backends share those that
/// have the same name. `pool` distinguishes their servers.
pub(crate) fn of(backend: &Backend, pool: &str, policy: &PlanPolicy) -> Vec<Backend> {
    if policy.last_resort == LastResort::None {
        return Vec::new();
    }
    let drained = match &backend.health {
        Health::Unchecked => None,
        Health::Own(check) => Some(own(backend, check)),
        Health::Track(..) => {
            let health = Health::Track(names::PASSING.to_owned(), passing(policy));
            Some(shared(backend, &names::last_resort(&kind(backend, pool)), DRAINED, health))
        }
    };
    // A node without an endpoint would drop the traffic of a Service with the policy Local, so any node is no
    // better than none.
    let any = (policy.last_resort == LastResort::All && !is_local(backend)).then(|| {
        let name = names::any_node(&kind(backend, pool));
        let weights =
            if backend.servers.iter().any(|s| s.weight > 0) { Weights::Current } else { Weights::Shares };
        Backend { weights, ..shared(backend, &name, ANY, Health::Unchecked) }
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

/// Returns the last resort of a backend whose servers have checks of their own. If the check does not ask for
/// drains, its results are good enough.
fn own(backend: &Backend, check: &Check) -> Backend {
    let drained = check.path.as_ref().map(|path| {
        let path = path.replace("drain=404", "drain=200");
        path.strip_suffix("?drain=503").map(str::to_owned).unwrap_or(path)
    });
    let health = if drained == check.path {
        Health::Track(backend.name.clone(), check.clone())
    } else {
        Health::Own(Check { port: check.port, path: drained })
    };
    Backend {
        node_port: backend.node_port,
        ..shared(backend, &names::last_resort_of(&backend.name), DRAINED, health)
    }
}

fn kind(backend: &Backend, pool: &str) -> String {
    let proxy = match backend.send_proxy {
        SendProxy::Off => String::new(),
        version => format!("_proxy_{}", word_of(&version)),
    };
    format!("{}_{}{proxy}_{pool}", word_of(&backend.mode), word_of(&backend.balance))
}

fn shared(backend: &Backend, name: &str, comment: &'static str, health: Health) -> Backend {
    let (name, weights, node_port) = (name.to_owned(), Weights::Shares, None);
    Backend { name, comment, health, node_port, weights, ..backend.clone() }
}
