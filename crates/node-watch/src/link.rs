//! The one owner of the API server's client: the client in use, the next one, and every reason why they change.

// `Connector` (kube-follow) makes a new client, with the credentials of that moment, except a token file, which is read
// for each request. It is made for the Node's next session after a failure without an answer, after a 401, and after
// repeated 5xx; and for a consistency check that must go elsewhere, because its server fails, refuses the credentials,
// or because these are about to expire. If such a check is answered, all watches move to its client. The followers of
// Lease and Services borrow the client in use.

use kube::Client;
use nodegate_kube_follow::{Connector, FailureReason, SessionEnd, WatchObserver, expires_in};
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch::{self, Receiver};
use tokio::time::Instant;

/// The least duration of a successful session, after which the backoff starts over.
pub(crate) const LASTING: Duration = Duration::from_secs(5);
/// The interval of new connections while an API server goes on failing: it may be one of several behind its
/// address.
const TRY_ANOTHER_EVERY: Duration = Duration::from_mins(1);
/// The least time between two replacements of credentials that are about to expire.
const RENEW_EVERY: Duration = Duration::from_secs(15);

/// The owner of the client.
pub(crate) struct Link {
    connector: Connector,
    /// The client in use, once it has a connection. A request on it any sooner would open a second connection, and
    /// a thousand agents that come back together would come back twice.
    in_use: watch::Sender<Option<Client>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The client of the Node's next session, unless that needs a new one.
    next: Option<Client>,
    /// The client of the Node's session that has no connection yet.
    connecting: Option<Client>,
    errors: ServerErrors,
    /// The time at which the credentials in use must be replaced.
    expires: Option<Instant>,
}

impl Link {
    pub(crate) fn new(connector: Connector) -> Self {
        Self { connector, in_use: watch::channel(None).0, state: Mutex::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the client in use, and each that follows it.
    pub(crate) fn in_use(&self) -> Receiver<Option<Client>> {
        self.in_use.subscribe()
    }

    /// Drops all clients. Each of them observes for the driver, which owns this link: they would keep each other.
    pub(crate) fn close(&self) {
        self.in_use.send_replace(None);
        *self.state() = State::default();
    }

    // === The Node's sessions ===

    /// Returns the client of the Node's next session. The last one is kept for as long as its server answers, even
    /// with errors: during an outage, new connections of five thousand agents would be a storm of their own.
    pub(crate) async fn next(&self, observer: Arc<dyn WatchObserver>) -> Result<Client, String> {
        let next = self.state().next.take();
        if let Some(client) = next {
            return Ok(client);
        }
        let connected = self.connector.connect(observer).await;
        self.state().connecting = connected.as_ref().ok().cloned();
        if connected.is_err() {
            self.in_use.send_replace(None);
        }
        connected
    }

    /// Shares the client of the Node's session, which has a connection now.
    pub(crate) fn connected(&self) {
        let Some(client) = self.state().connecting.take() else { return };
        let expires = expires_in(&client).map(|left| Instant::now() + left.max(RENEW_EVERY));
        self.state().expires = expires;
        self.in_use.send_replace(Some(client));
    }

    /// Takes the client of a session of the Node that has ended.
    pub(crate) fn ended(&self, client: Client, ended: &SessionEnd) {
        // The server may forbid the Node's watch, but allow the others.
        if ended.reason == FailureReason::Forbidden {
            self.connected();
        }
        let mut state = self.state();
        let keep = state.errors.keep(ended, Instant::now());
        if state.next.is_some() {
            return;
        }
        if keep {
            state.next = Some(client);
        } else {
            drop(state);
            // On the old client the other followers would open a connection of their own.
            self.in_use.send_replace(None);
        }
    }

    // === Checks ===

    /// Returns the client for a consistency check: the one in use, unless there is none or the check must go elsewhere.
    pub(crate) async fn of_check(
        &self,
        elsewhere: bool,
        observer: Arc<dyn WatchObserver>,
    ) -> Result<Client, String> {
        let in_use = self.in_use.borrow().clone().filter(|_| !elsewhere);
        match in_use {
            Some(client) => Ok(client),
            None => self.connector.connect(observer).await,
        }
    }

    /// Makes the new client on which a check was answered that of the Node's next session.
    pub(crate) fn move_to(&self, client: &Client) {
        let mut state = self.state();
        (state.connecting, state.next) = (Some(client.clone()), Some(client.clone()));
    }

    // === Expiry ===

    /// Waits until the credentials in use must be replaced. If that fails, the replacement is due again after
    /// `RENEW_EVERY`.
    pub(crate) async fn expired(&self) {
        let expires = self.state().expires;
        let Some(expires) = expires else { return pending().await };
        tokio::time::sleep_until(expires).await;
        self.state().expires = Some(Instant::now() + RENEW_EVERY);
    }
}

/// Decides whether to keep a connection whose server fails.
#[derive(Default)]
struct ServerErrors {
    in_a_row: u32,
    tried_another: Option<Instant>,
}

impl ServerErrors {
    /// Returns true if the next attempt uses the same connection.
    fn keep(&mut self, ended: &SessionEnd, now: Instant) -> bool {
        if ended.reason != FailureReason::ServerError || ended.lasted > LASTING {
            *self = Self::default();
        }
        match ended.reason {
            FailureReason::BadRequest
            | FailureReason::Forbidden
            | FailureReason::Expired
            | FailureReason::Throttled
            | FailureReason::Rejected
            | FailureReason::Relist => true,
            // The server has just answered the check. A second one so soon after is not believed.
            FailureReason::Unresponsive | FailureReason::Moved => ended.lasted > LASTING,
            FailureReason::ServerError => {
                self.in_a_row += 1;
                let tried = self.tried_another.is_some_and(|at| now - at < TRY_ANOTHER_EVERY);
                let keep = self.in_a_row == 1 || tried;
                if !keep {
                    self.tried_another = Some(now);
                }
                keep
            }
            // A 401 requires fresh credentials, and all other failures are no answer.
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use FailureReason::{
        BadRequest, Disconnected, Expired, Forbidden, Malformed, ServerError, Throttled, Timeout,
        Unauthorized,
    };

    /// Returns for each end if the connection is kept after it. Each comes with the seconds since the first.
    fn kept(ends: &[(u64, FailureReason)]) -> Vec<bool> {
        let (began, mut errors) = (Instant::now(), ServerErrors::default());
        let keep = |(seconds, reason): &(u64, FailureReason)| {
            let ended = SessionEnd { reason: *reason, detail: String::new(), lasted: Duration::ZERO };
            errors.keep(&ended, began + Duration::from_secs(*seconds))
        };
        ends.iter().map(keep).collect()
    }

    #[test]
    fn an_answer_keeps_the_connection_and_silence_does_not() {
        for reason in [Forbidden, Expired, Throttled, BadRequest] {
            assert_eq!(kept(&[(0, reason), (1, reason), (300, reason)]), [true; 3], "{reason:?}");
        }
        for reason in [Timeout, Disconnected, Malformed, Unauthorized] {
            assert_eq!(kept(&[(0, reason)]), [false], "{reason:?}");
        }
    }

    #[test]
    fn a_server_that_goes_on_failing_is_not_the_only_one_tried() {
        let failing = [0, 1, 5, 60, 62, 70, 130].map(|at| (at, ServerError));
        assert_eq!(kept(&failing), [true, false, true, true, false, true, false]);
        let interrupted = [(0, ServerError), (1, Throttled), (2, ServerError)];
        assert_eq!(kept(&interrupted), [true; 3]);
    }
}
