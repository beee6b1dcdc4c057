//! Holds the lock, and lets it go when every load balancer has acknowledged, or there is nothing to wait for any more.

use crate::agent_wait::{LATE, WaitEnd, wait_until_acknowledged};
use crate::login::Login;
use crate::signal_files::{SignalFiles, problem};
use futures::StreamExt;
use nodegate_agent_client::ask_drain;
use nodegate_program::Signals;
use std::convert::Infallible;
use std::future::pending;
use std::io::{self, ErrorKind::ConnectionReset};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// The pause between two looks at a host that is not going down: the delay may change at any time.
const LOOK_EVERY: Duration = Duration::from_mins(1);
/// The pause while it is going down: systemd 257 sends no signal of a cancelled shutdown.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// The first and the longest pause before the next try to reach the bus.
const RETRY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// The longest time that the end of the service takes, questions to logind included. `TimeoutStopSec=` of its unit is
/// longer.
const STOP_TIMEOUT: Duration = Duration::from_secs(85);
/// The time limit for a question to the agent.
const QUERY_TIMEOUT: Duration = Duration::from_secs(2);

/// The program while it runs as a service.
pub(crate) struct LockHolder {
    agent: SocketAddr,
    files: SignalFiles,
    lock: Option<OwnedFd>,
    phase: Phase,
    /// What the last warning said, while it is true.
    fault: Option<String>,
}

/// What the host does.
enum Phase {
    Up,
    /// The host is going down, and not every load balancer has acknowledged.
    Waiting(Pin<Box<dyn Future<Output = WaitEnd>>>),
    /// The host is going down, and there is nothing to wait for any more: acknowledged, no answer, or too late.
    Over,
}

impl LockHolder {
    pub(crate) fn new(agent: SocketAddr, files: SignalFiles) -> Self {
        Self { agent, files, lock: None, phase: Phase::Up, fault: None }
    }

    /// Runs until SIGTERM or SIGINT.
    pub(crate) async fn run(mut self) -> io::Result<()> {
        let stop = Signals::listen()?.shutdown();
        tokio::select! {
            () = stop => {}
            () = self.hold() => {}
        }
        self.stop().await;
        Ok(())
    }

    /// Runs until the future is dropped.
    async fn hold(&mut self) {
        let mut retry = RETRY;
        loop {
            let Err(error) = self.follow(&mut retry).await;
            if retry == RETRY {
                tracing::warn!(%error, "systemd-logind does not answer; retrying");
            }
            self.files.set_lock(None);
            sleep(retry).await;
            retry = (retry * 2).min(MAX_RETRY_DELAY);
        }
    }

    /// Follows logind until the connection ends, and returns the reason.
    async fn follow(&mut self, retry: &mut Duration) -> zbus::Result<Infallible> {
        let login = Login::connect().await?;
        let mut events = login.events().await?;
        let closed = || zbus::Error::InputOutput(io::Error::from(ConnectionReset).into());
        let mut relock = true;
        loop {
            self.look(&login, relock).await?;
            *retry = RETRY;
            let pause = if self.is_up() { LOOK_EVERY } else { RETRY_INTERVAL };
            relock = tokio::select! {
                event = events.next() => event.ok_or_else(closed)?,
                end = wait_end(&mut self.phase) => {
                    self.let_go(&end);
                    false
                }
                () = sleep(pause) => false,
            };
        }
    }

    /// Compares what the host does with what was known, and acts. `relock` asks for a new lock, because logind may
    /// have lost the old one.
    async fn look(&mut self, login: &Login, relock: bool) -> zbus::Result<()> {
        let (going_down, was_up) = (login.is_going_down().await?, self.is_up());
        let delay = login.delay().await?;
        match (was_up, going_down) {
            (true, true) => self.go_down(delay),
            (false, true) => {}
            (true, false) if !relock => {}
            // A host that gives a new lock is not going down. The old lock ends after the new one starts.
            (_, false) => match login.lock().await? {
                Some(lock) => self.stay_up(lock),
                None if was_up => self.go_down(delay),
                None => {}
            },
        }
        if self.lock.is_some() {
            self.files.set_lock(Some(delay));
        }
        // The agent may not have seen the file of a new lock yet.
        if was_up
            && self.is_up()
            && !relock
            && let Ok(summary) = ask_drain(&[self.agent], QUERY_TIMEOUT).await
        {
            let fault = problem(&summary, delay);
            if let Some(fault) = fault.as_ref().filter(|fault| self.fault.as_ref() != Some(fault)) {
                tracing::warn!("{fault}");
            }
            self.fault = fault;
        }
        Ok(())
    }

    fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up)
    }

    fn go_down(&mut self, delay: Duration) {
        self.files.set_shutdown(true);
        tracing::info!(?delay, "the host is going down; waiting until every load balancer has acknowledged");
        self.phase = Phase::Waiting(Box::pin(wait_until_acknowledged(self.agent, delay)));
    }

    fn stay_up(&mut self, lock: OwnedFd) {
        if !self.is_up() {
            tracing::info!("the shutdown was cancelled; the node returns to service");
        }
        if self.lock.replace(lock).is_none() {
            tracing::info!("holding the lock that delays a shutdown");
        }
        self.phase = Phase::Up;
        self.files.set_shutdown(false);
    }

    fn let_go(&mut self, end: &WaitEnd) {
        match end {
            Ok(why) => tracing::info!("{why}; letting the shutdown go on"),
            Err(why) => tracing::warn!("{why}; letting the shutdown go on"),
        }
        self.phase = Phase::Over;
        self.lock = None;
        self.files.set_lock(None);
    }

    /// Waits, too, if systemd ends this service because the shutdown bypasses logind.
    async fn stop(mut self) {
        let until = Instant::now() + STOP_TIMEOUT;
        let is_stopping = async { Login::connect().await?.is_stopping().await };
        if is_stopping.await.unwrap_or(false) {
            if self.is_up() {
                self.go_down(STOP_TIMEOUT);
            }
            if let Phase::Waiting(_) = self.phase {
                let end = timeout_at(until, wait_end(&mut self.phase)).await;
                self.let_go(&end.unwrap_or_else(|_| Err(LATE.to_owned())));
            }
        } else if self.is_up() {
            self.files.set_shutdown(false);
        }
        self.files.set_lock(None);
    }
}

/// Waits for the end of the wait; forever if there is none.
async fn wait_end(phase: &mut Phase) -> WaitEnd {
    if let Phase::Waiting(wait) = phase { wait.await } else { pending().await }
}
