//! Tracks the first lists that have not arrived yet.

use crate::Startup;
use std::sync::Arc;
use tokio::sync::watch::Sender;

/// A handle on the startup. Each follower has a clone, and gives it back when its first list is complete or
/// can't be had. With the last one, the startup is synced.
#[derive(Clone)]
pub(crate) struct FirstList(Arc<Sender<Startup>>);

impl FirstList {
    pub(crate) fn new(startup: Sender<Startup>) -> Self {
        Self(Arc::new(startup))
    }

    pub(crate) fn settled(self) {
        if let Some(startup) = Arc::into_inner(self.0) {
            startup.send_replace(Startup::Synced);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_one_tells() {
        let startup = Sender::new(Startup::Connecting);
        let node = FirstList::new(startup.clone());
        let service = node.clone();
        node.settled();
        assert_eq!(*startup.borrow(), Startup::Connecting);
        service.settled();
        assert_eq!(*startup.borrow(), Startup::Synced);
    }
}
