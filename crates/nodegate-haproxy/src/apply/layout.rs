//! The structure that HAProxy runs, as far as it is known. The structure loop and the server-state loop share
//! it.

use crate::plan::desired::{Desired, Frontend};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The structure in effect.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// The desired configuration that was rendered.
    pub desired: Arc<Desired>,
    /// Nodes that were added at run time. HAProxy 2.6 lets no server track a dynamic one, so their servers
    /// track none.
    pub dynamic: BTreeSet<String>,
    /// The node weights in the file that the process has loaded.
    pub loaded: Arc<BTreeMap<String, u16>>,
    /// True if the generated sections are the built-in ones, with the backend that all others track.
    pub ours: bool,
    /// The number of the HAProxy process. Commands to an earlier process no longer count.
    pub generation: u64,
}

/// A server that has a state of its own.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StateTarget {
    /// The name of the backend.
    pub backend: String,
    /// The name of the server, which is its node's name.
    pub server: String,
    /// True if the server has an agent-check, provided that agent-checks are on.
    pub agent_check: bool,
    /// True if only the server's own check knows about endpoints on its node.
    pub local: bool,
}

impl StateTarget {
    /// Returns the server in the form that commands take.
    pub fn path(&self) -> String {
        format!("{}/{}", self.backend, self.server)
    }
}

impl Layout {
    /// Returns the structure that an earlier run would have left behind: the same backends.
    pub fn guess(desired: Arc<Desired>, ours: bool) -> Self {
        Self { desired, ours, ..Self::default() }
    }

    /// Returns the servers that hold a node's state, without those that track them.
    pub fn targets(&self, node: &str) -> Vec<StateTarget> {
        if self.desired.node(node).is_none() {
            return Vec::new();
        }
        let dynamic = self.dynamic.contains(node);
        let target = |backend: &str, local| StateTarget {
            backend: backend.to_owned(),
            server: node.to_owned(),
            agent_check: !dynamic,
            local,
        };
        let of = |frontend: &Frontend| target(&frontend.backend, self.ours && frontend.local.is_some());
        let there = self.desired.frontends.iter().filter(|frontend| frontend.has(node));
        if dynamic || !self.ours {
            return there.map(of).collect();
        }
        let all = std::iter::once(target(self.desired.names.nodes(), false));
        all.chain(there.filter(|frontend| frontend.local.is_some()).map(of)).collect()
    }

    /// Returns the Services' backends that have a server for a node.
    pub fn backends_of<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a str> {
        self.desired
            .frontends
            .iter()
            .filter(move |frontend| frontend.has(node))
            .map(|frontend| frontend.backend.as_str())
    }

    /// Returns the last-resort backends that have a server for a node. An operator's template may have none.
    pub fn last_resorts_of<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a str> {
        let there = self
            .desired
            .last_resort
            .iter()
            .filter(move |backend| self.ours && backend.server(node).is_some());
        there.map(|backend| backend.name.as_str())
    }
}
