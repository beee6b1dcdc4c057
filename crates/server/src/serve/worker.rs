//! Threads of a listener that run outside the runtime.

use std::convert::Infallible;
use std::io;
use std::thread;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub(super) struct Worker {
    ended: oneshot::Receiver<Infallible>,
}

impl Worker {
    /// Starts a thread. Its tasks are spawned on the current runtime.
    pub(super) fn start(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (working, ended) = oneshot::channel();
        let runtime = Handle::current();
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            // Dropped with the thread, even if the thread panics.
            let _working = working;
            let _runtime = runtime.enter();
            work();
        })?;
        Ok(Self { ended })
    }

    /// Waits for the end of the thread.
    pub(super) async fn ended(&mut self) {
        // The channel carries no message; it only closes.
        let _ = (&mut self.ended).await;
    }
}
