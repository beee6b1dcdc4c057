//! What HAProxy runs, as it has proven, and what its checks have found.

use crate::plan::desired::{Backend, Desired, Health, Problem};
use crate::plan::template::Template;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Debug, Default)]
pub(crate) struct Applied {
    pub(crate) template: Template,
    /// The plan, without what was left out.
    pub(crate) plan: Desired,
    /// What HAProxy can't have now, with the reasons.
    pub(crate) left_out: BTreeSet<Problem>,
    pub(crate) file: Vec<u8>,
    pub(crate) hash: String,
    /// The process ID of the worker that runs it.
    pub(crate) worker: u32,
}

/// The nodes, and whether each passes HAProxy's check.
pub(crate) type Passing = BTreeMap<String, bool>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checked {
    /// `None` if HAProxy can't be asked or has no check.
    pub(crate) nodes: Option<Passing>,
    /// The frontends whose servers all fail a check of their own, with the results of the check.
    pub(crate) down: BTreeSet<Problem>,
    /// The backends that have had a server that is up.
    pub(crate) was_up: BTreeSet<String>,
}

impl Checked {
    /// Returns true if a server of the backend has been up, as far as HAProxy checks them.
    pub(crate) fn was_up(&self, backend: &Backend) -> bool {
        match &backend.health {
            Health::Own(_) => self.was_up.contains(&backend.name),
            Health::Track(other, _) => self.was_up.contains(other),
            Health::Unchecked => true,
        }
    }

    /// Returns true if there are nodes, and none passes.
    pub(crate) fn no_node_passes(&self) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| !nodes.is_empty() && !nodes.values().any(|passes| *passes))
    }
}
