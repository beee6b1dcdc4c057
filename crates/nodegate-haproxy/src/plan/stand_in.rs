//! Keeps the running version of frontends whose newer version has to wait.

use crate::plan::desired::{Desired, Frontend, LastResortBackend, PlannedServer};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Returns the desired configuration, but with the frontends of these backends as they are in `live`, on the
/// current nodes. A frontend that `live` lacks is left out. One whose socket another frontend is to have is
/// removed.
pub fn keeping(desired: &Desired, live: &Desired, backends: &BTreeSet<String>) -> Desired {
    let mut kept = desired.clone();
    kept.frontends.retain(|frontend| !backends.contains(&frontend.backend));
    let mut pools = Pools { desired, live, made: BTreeMap::new() };
    for old in live.frontends.iter().filter(|old| backends.contains(&old.backend)) {
        if kept.frontends.iter().any(|new| new.shares_a_socket(old)) {
            continue;
        }
        let new = desired.frontend(&old.backend).map(|frontend| &frontend.servers);
        kept.frontends.push(Frontend { servers: pools.today(&old.servers, new), ..old.clone() });
    }
    kept.frontends.sort_by(|a, b| a.backend.cmp(&b.backend));
    kept.last_resort = last_resorts(&kept.frontends, &mut pools);
    kept
}

/// Returns the last-resort backends that these frontends lead to, and no others.
fn last_resorts(frontends: &[Frontend], pools: &mut Pools<'_>) -> Vec<LastResortBackend> {
    let names: BTreeSet<&String> = frontends.iter().flat_map(|frontend| &frontend.last_resort).collect();
    let (desired, live) = (pools.desired, pools.live);
    let find = |all: &'_ [LastResortBackend], name: &String| all.iter().position(|b| b.name == *name);
    let mut backends = Vec::new();
    for name in names {
        let new = find(&desired.last_resort, name).and_then(|at| desired.last_resort.get(at));
        let old = find(&live.last_resort, name).and_then(|at| live.last_resort.get(at));
        match (new, old) {
            // Such a backend belongs to one frontend alone, which may be the old version.
            (Some(new), Some(old)) if old.is_local() && frontends.iter().any(|f| f.leads_only_to(old)) => {
                let servers = pools.today(&old.servers, Some(&new.servers));
                backends.push(LastResortBackend { servers, ..old.clone() });
            }
            (Some(new), _) => backends.push(new.clone()),
            (None, Some(old)) => {
                let servers = pools.today(&old.servers, None);
                backends.push(LastResortBackend { servers, ..old.clone() });
            }
            (None, None) => {}
        }
    }
    backends
}

/// Old servers with the current nodes. Many frontends share their servers, and each list is made once.
struct Pools<'a> {
    desired: &'a Desired,
    live: &'a Desired,
    made: BTreeMap<(Shared, Shared), Arc<Vec<PlannedServer>>>,
}

/// The identity of a list of servers that frontends share.
type Shared = *const Vec<PlannedServer>;

impl Pools<'_> {
    /// Returns the servers of `old` with the current nodes. Servers of removed nodes are left out. Servers of
    /// new nodes are added if the new version has them. The others get the address of the new version, if it
    /// has them.
    fn today(
        &mut self,
        old: &Arc<Vec<PlannedServer>>,
        new: Option<&Arc<Vec<PlannedServer>>>,
    ) -> Arc<Vec<PlannedServer>> {
        let key = (Arc::as_ptr(old), new.map_or(std::ptr::null(), Arc::as_ptr));
        if let Some(made) = self.made.get(&key) {
            return made.clone();
        }
        let find = |servers: &[PlannedServer], name: &str| {
            let at = servers.binary_search_by(|server| server.name.as_str().cmp(name)).ok()?;
            servers.get(at).cloned()
        };
        let server = |node: &crate::plan::desired::PlannedNode| {
            let newer = new.and_then(|servers| find(servers, &node.name));
            let before = find(old, &node.name);
            match (before, newer) {
                (Some(_), Some(newer)) => Some(newer),
                (Some(before), None) => Some(PlannedServer { weight: node.weight, ..before }),
                (None, newer) => newer.filter(|_| self.live.node(&node.name).is_none()),
            }
        };
        let servers: Vec<PlannedServer> = self.desired.nodes.iter().filter_map(server).collect();
        let servers = if servers == **old { old.clone() } else { Arc::new(servers) };
        self.made.insert(key, servers.clone());
        servers
    }
}
