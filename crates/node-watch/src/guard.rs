//! Asks the API server what etcd holds when nothing else has proved it, and has a deaf watch replaced.

use crate::NodeWatch;
use crate::held::{Finding, Held};
use crate::proof::Proof;
use crate::pulse::Pulse;
use kube::api::GetParams;
use kube::{Api, Client};
use nodegate_kube_follow::{Backoff, StaticCredentials, WatchedNode};
use nodegate_readiness::Moment;
use nodegate_readiness::liveness::REPORT_EVERY;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;

/// The client of the Node's watch, which the others use, too.
pub(crate) type Shared = Receiver<Option<Client>>;

/// A real API server sends a bookmark every 60 s (measured on 1.36); a Node watch silent for longer may be deaf even
/// while the Lease is heard: the server may have lost one stream of the connection that they share.
pub(crate) const BOOKMARK_OVERDUE: Duration = Duration::from_secs(70);
/// A kubelet renews its Lease every 10 s (`leaseDuration` / 4); one that was heard sooner ago than this is no silent one,
/// however soon the cache is to be stale.
const LEASE_OVERDUE: Duration = Duration::from_secs(12);
/// The part of `--stale-after` after which the guard asks. Of the default 15 s that is 12.9: a Lease is overdue then, without
/// Leases it makes 280 questions an hour, and there is time for a question on each of two connections.
const ASK_AFTER: f64 = 6.0 / 7.0;
/// Longest wait for the answer.
const ASK_TIMEOUT: Duration = Duration::from_millis(1500);
/// A change that the question shows may be on its way through the watch: so long it gets to arrive.
const IN_FLIGHT: Duration = Duration::from_millis(300);
/// Streams that went silent together are replaced at once, and then ever more rarely: a dead kubelet is silent too.
const FIRST_REPLACEMENT_GAP: Duration = Duration::from_secs(24);
const LONGEST_REPLACEMENT_GAP: Duration = Duration::from_mins(5);

/// Why a question has no answer that would help.
#[derive(Debug, thiserror::Error)]
enum Refused {
    /// The API server says that it does not want to answer.
    #[error("{0}")]
    Answered(String),
    #[error("{0}")]
    Unheard(String),
}

struct Guard<'a> {
    watch: &'a NodeWatch,
    proof: Arc<Proof>,
    shared: Shared,
    ask_after: Duration,
    node_verified: Option<Moment>,
    backoff: Backoff,
    not_before: Moment,
    /// Whether the last question was in vain, and where the next goes.
    failing: bool,
    on_a_new_connection: bool,
    hurried: bool,
    replacement_gap: Duration,
    next_replacement: Moment,
}

/// Guards the streams, forever.
pub(crate) async fn run(watch: &NodeWatch, proof: Arc<Proof>, shared: Shared) {
    let mut guard = Guard {
        watch,
        proof,
        shared,
        ask_after: watch.stale_after.mul_f64(ASK_AFTER),
        node_verified: None,
        backoff: Backoff::new(),
        not_before: Moment::default(),
        failing: false,
        on_a_new_connection: false,
        hurried: false,
        replacement_gap: FIRST_REPLACEMENT_GAP,
        next_replacement: Moment::default(),
    };
    loop {
        let now = guard.proof.now();
        watch.liveness.report_watch(now);
        guard.hurried &= watch.board.freshness(now).stale;
        let pause = match guard.due() {
            Some(due) if due <= now => {
                guard.ask().await;
                continue;
            }
            Some(due) => due.since(now),
            // A session that begins in the meantime begins with a list, which is proof: no question is due any sooner.
            None => guard.ask_after,
        };
        tokio::select! {
            biased;
            () = tokio::time::sleep(pause.min(REPORT_EVERY)) => {}
            () = guard.proof.thawed.notified() => guard.hurry(),
        }
    }
}

impl Guard<'_> {
    /// When the next question is due if nothing is proved until then; `None` while no watch is open, because then each
    /// attempt to open one is the question.
    fn due(&self) -> Option<Moment> {
        if !self.proof.node.is_open() {
            return None;
        }
        let silent = self.watch.board.last_proof()?.plus(self.ask_after);
        let heard = self.proof.node.last_bytes().max(self.node_verified)?;
        Some(silent.min(heard.plus(BOOKMARK_OVERDUE)).max(self.not_before))
    }

    /// A silent stream speaks again: the API server will answer. But every agent hears that at the same time, and each hears
    /// many words: only the first one counts.
    fn hurry(&mut self) {
        if !std::mem::replace(&mut self.hurried, true) {
            self.backoff.reset();
            self.on_a_new_connection = false;
            let soon = self.proof.now().plus(self.backoff.wait());
            self.not_before = self.not_before.min(soon);
        }
    }

    /// Asks on the connection of the streams, whose server is the one to be judged; after a failure on a new connection, which
    /// behind a Service or a virtual address may be one to another API server.
    async fn ask(&mut self) {
        let asked_at = self.proof.now();
        let before = self.proof.held();
        let shared = if self.on_a_new_connection { None } else { self.shared.borrow().clone() };
        let is_new = shared.is_none();
        match self.question(shared).await {
            Ok((client, answer)) => {
                let mut finding = self.proof.held().compare(&before, &answer);
                if finding != Finding::Current {
                    tokio::time::sleep(IN_FLIGHT).await;
                    finding = self.proof.held().compare(&before, &answer);
                }
                self.on_a_new_connection = false;
                self.failing = false;
                self.conclude(finding, &answer, asked_at, is_new.then_some(client));
            }
            Err(refused) => self.unanswered(&refused),
        }
    }

    /// `moved` is a new connection on which the answer came: the watches move there.
    fn conclude(&mut self, finding: Finding, answer: &Held, asked_at: Moment, moved: Option<Client>) {
        let newest = answer.version();
        match finding {
            Finding::Current => {
                self.backoff.reset();
                self.node_verified = Some(asked_at);
                self.proof.verified(asked_at, moved.is_none());
            }
            Finding::Behind => {
                tracing::info!(
                    newest,
                    "the API server knows of a change that the watch did not tell: replacing it"
                );
                self.wait();
            }
            Finding::Rewound => {
                tracing::warn!(
                    newest,
                    "the API server's history is not the one that the watch told: beginning anew"
                );
                self.wait();
            }
        }
        match (finding, moved) {
            (_, Some(client)) => {
                tracing::info!(
                    "the API server was asked in vain, and answers on a new connection: moving there"
                );
                self.proof.move_to(client);
            }
            (Finding::Current, None) => self.replace_silent_streams(asked_at),
            (Finding::Behind | Finding::Rewound, None) => self.replace_streams(),
        }
    }

    /// The first failure is followed at once by a question on a new connection, unless it was an answer, too: others would
    /// be told the same.
    fn unanswered(&mut self, refused: &Refused) {
        tracing::debug!(error = %refused, "the API server did not answer whether the cache is current");
        let answered = matches!(refused, Refused::Answered(_));
        self.on_a_new_connection = !self.on_a_new_connection && !answered;
        if std::mem::replace(&mut self.failing, true) || answered {
            self.wait();
        }
    }

    fn wait(&mut self) {
        self.not_before = self.proof.now().plus(self.backoff.wait());
    }

    /// One metadata-only GET. Without a resourceVersion it is a quorum read: an API server that is cut off from etcd can't
    /// answer it, though it answers much else.
    async fn question(&self, client: Option<Client>) -> Result<(Client, Held), Refused> {
        let pulse = Pulse { proof: self.proof.clone(), metrics: self.watch.metrics.clone() };
        let connector = &self.watch.connector;
        let ask = async {
            let client = match client {
                Some(client) => client,
                None => connector
                    .connect::<StaticCredentials>(pulse)
                    .await
                    .map_err(|error| Refused::Unheard(error.to_string()))?,
            };
            let api = Api::<WatchedNode>::all(client.clone());
            match api.get_metadata_with(&self.watch.node_name, &GetParams::default()).await {
                Ok(node) => Ok((client, Held::present(&node.metadata))),
                Err(kube::Error::Api(status)) if status.code == 404 => Ok((client, Held::Absent)),
                Err(kube::Error::Api(status)) if status.code < 500 => {
                    Err(Refused::Answered(status.to_string()))
                }
                Err(error) => Err(Refused::Unheard(error.to_string())),
            }
        };
        let late = |_| Refused::Unheard(format!("no answer within {} s", ASK_TIMEOUT.as_secs_f64()));
        tokio::time::timeout(ASK_TIMEOUT, ask).await.map_err(late)?
    }

    /// The API server answers while the open streams are silent: a heartbeat that used to come has
    /// either stopped or can't be heard, and only a new watch can tell which.
    fn replace_silent_streams(&mut self, now: Moment) {
        let lease = &self.proof.lease;
        let overdue = self.ask_after.max(LEASE_OVERDUE);
        let silent = lease.last_bytes().is_some_and(|heard| now.since(heard) >= overdue);
        if !(lease.is_open() && lease.had_event() && silent) {
            self.replacement_gap = FIRST_REPLACEMENT_GAP;
        } else if now >= self.next_replacement {
            tracing::debug!("the node's Lease is no longer renewed or no longer heard: watching anew");
            self.next_replacement = now.plus(self.replacement_gap);
            self.replacement_gap = (self.replacement_gap * 2).min(LONGEST_REPLACEMENT_GAP);
            self.replace_streams();
        }
    }

    /// What happened to one stream may have happened to all.
    fn replace_streams(&self) {
        for life in self.proof.streams() {
            if life.is_open() {
                life.replace.notify_one();
            }
        }
    }
}
