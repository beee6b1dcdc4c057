//! SIGTERM and SIGINT, for every program: the first one asks for an orderly shutdown, a second one ends it at once.

use std::io;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that end a program.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes over both signals from their default, which ends the process. Call it on a runtime.
    ///
    /// # Errors
    /// Fails if the runtime can't handle signals.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    /// Waits for the first signal. From then on, another one ends the process with exit code 1.
    pub async fn shutdown(mut self) {
        self.next().await;
        tracing::info!("shutting down; a second signal ends the program at once");
        tokio::spawn(async move {
            self.next().await;
            std::process::exit(1);
        });
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
