//! The operator's changes to a node, with the real kubectl and the operator's own credentials.

use super::undo::{self, Ticket};
use nodegate_testbed::kubectl;
use std::ops::Deref;
use std::time::Instant;

/// kubectl for one node.
#[derive(Clone)]
pub(crate) struct Kubectl {
    kubectl: kubectl::Kubectl,
    pub(crate) node: String,
}

impl Deref for Kubectl {
    type Target = kubectl::Kubectl;

    fn deref(&self) -> &Self::Target {
        &self.kubectl
    }
}

/// A change to the node. Dropping it undoes the change, also when a test fails, and so does Ctrl-C.
#[must_use = "the change is taken back as soon as this is dropped"]
pub(crate) struct Change {
    ticket: Ticket,
    /// The time at which kubectl ended; the API server has acknowledged the change by then.
    pub(crate) done: Instant,
}

impl Kubectl {
    pub(crate) fn new(kubectl: kubectl::Kubectl, node: &str) -> Self {
        Self { kubectl, node: node.to_owned() }
    }

    /// Makes a change that `undo` takes back.
    fn change(&self, act: &[&str], undo: &[&str]) -> Change {
        // Noted before the change: kubectl may fail after the API server has made it.
        let ticket = undo::note(self.clone(), undo.iter().map(|word| (*word).to_owned()).collect());
        let mut change = Change { ticket, done: Instant::now() };
        self.must(act);
        change.done = Instant::now();
        change
    }

    pub(crate) fn cordon(&self) -> Change {
        self.change(&["cordon", &self.node], &["uncordon", &self.node])
    }

    /// Sets a taint that keeps no pod away and evicts none.
    pub(crate) fn taint(&self, key: &str) -> Change {
        let (taint, without) =
            (format!("{key}=nodegate-e2e:PreferNoSchedule"), format!("{key}:PreferNoSchedule-"));
        self.change(&["taint", "node", &self.node, &taint], &["taint", "node", &self.node, &without])
    }

    pub(crate) fn label(&self, key: &str, value: &str) -> Change {
        let (label, without) = (format!("{key}={value}"), format!("{key}-"));
        self.change(&["label", "node", &self.node, &label], &["label", "node", &self.node, &without])
    }
}

impl Change {
    /// Undoes the change, and returns the time.
    pub(crate) fn undo(self) -> Instant {
        if let Err(error) = undo::take_back(self.ticket) {
            panic!("{error}");
        }
        Instant::now()
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        if let Err(error) = undo::take_back(self.ticket) {
            eprintln!("{error}");
        }
    }
}
