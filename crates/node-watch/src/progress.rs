//! How far the first connections have come.

use crate::Startup;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::watch::Sender;

/// Which first lists are still awaited.
pub(crate) struct Progress {
    startup: Sender<Startup>,
    node: AtomicBool,
    services: Vec<AtomicBool>,
}

impl Progress {
    pub(crate) fn new(startup: Sender<Startup>, services: usize) -> Self {
        let services = (0..services).map(|_| AtomicBool::new(false)).collect();
        Self { startup, node: AtomicBool::new(false), services }
    }

    /// No client could be built.
    pub(crate) fn no_client(&self) {
        self.reach(Startup::NoClient);
    }

    /// The Node has been read.
    pub(crate) fn node_synced(&self) {
        self.settle(Some(&self.node));
    }

    /// The slices of this Service have been read, or can't be for now.
    pub(crate) fn service_settled(&self, index: usize) {
        self.settle(self.services.get(index));
    }

    fn settle(&self, one: Option<&AtomicBool>) {
        if let Some(one) = one {
            one.store(true, Ordering::Relaxed);
        }
        let mut all = self.services.iter().chain([&self.node]);
        if all.all(|settled| settled.load(Ordering::Relaxed)) {
            self.reach(Startup::Synced);
        }
    }

    fn reach(&self, reached: Startup) {
        self.startup
            .send_if_modified(|at| *at != Startup::Synced && std::mem::replace(at, reached) != reached);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_must_be_synced_and_no_service_undecided() {
        let startup = Sender::new(Startup::Connecting);
        let progress = Progress::new(startup.clone(), 1);
        progress.node_synced();
        assert_eq!(*startup.borrow(), Startup::Connecting);
        progress.no_client();
        assert_eq!(*startup.borrow(), Startup::NoClient);
        progress.service_settled(0);
        assert_eq!(*startup.borrow(), Startup::Synced);
        progress.no_client();
        assert_eq!(*startup.borrow(), Startup::Synced);
    }
}
