//! A thread of a listener's own, beside the runtime.

use std::convert::Infallible;
use std::io;
use std::thread;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub(super) struct Worker {
    ended: oneshot::Receiver<Infallible>,
}

impl Worker {
    /// Starts one. What it spawns goes to the runtime that this is called from.
    pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (working, ended) = oneshot::channel();
        let runtime = Handle::current();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Goes with the thread, also if that panics.
            let _working = working;
            let _runtime = runtime.enter();
            work();
        })?;
        Ok(Self { ended })
    }

    /// Waits for the end of the thread.
    pub(super) async fn ended(&mut self) {
        // Nothing is ever sent.
        let _ = (&mut self.ended).await;
    }
}
