//! Logs that the cache becomes stale, stays stale, and is fresh again, and the same for a kubelet that is cut off from
//! the API server, for a `Ready=False` that does not count yet, and for a cordoned node that is kept in the pool. No
//! answer depends on this task; requests read the freshness themselves.

use nodegate_agent_client::hints::kubelet_unreachable;
use nodegate_agent_client::sentence::{self, last_known};
use nodegate_program::Episode;
use nodegate_readiness::liveness::REPORT_EVERY;
use nodegate_readiness::{Board, Liveness, Moment, OnStale, Timeline};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::watch::Receiver;
use tokio::time::timeout;

/// Runs forever. Logs nothing before the ports are open.
pub(crate) async fn run(
    board: Arc<Board>,
    liveness: Arc<Liveness>,
    timeline: Timeline,
    mut open: Receiver<bool>,
) {
    let (mut stale, mut cut_off, mut pending, mut kept) = <(Episode, Episode, Episode, Episode)>::default();
    let mut absent = Episode::default();
    let wake = Arc::new(Notify::new());
    let on_pending = wake.clone();
    let _ = board.on_pending.set(Box::new(move |()| on_pending.notify_one()));
    let mut unreachable = false;
    // The sender lives as long as the process.
    let _ = open.wait_for(|open| *open).await;
    loop {
        let now = timeline.at(nodegate_clock::now());
        liveness.timers.advance(now);
        board.tick(now, nodegate_clock::wall());
        if board.node_name().is_none() {
            // Without a name there is no watch, and a restart by the kubelet would not help.
            liveness.watch.advance(now);
        } else {
            log_staleness(&board, &mut stale, now);
            log_cut_off(&board, &mut cut_off, now);
            log_pending(&board, &mut pending, now);
            log_kept(&board, &mut kept, now);
            log_absent(&board, &mut absent, now);
            log_unreachable(&board, &mut unreachable);
        }
        let look_often = stale.is_on() || cut_off.is_on() || pending.is_on();
        // An error means that nothing woke this task in time.
        let _ = timeout(until_next(&board, look_often, now), wake.notified()).await;
    }
}

/// Notes whether it lasts. Calls `warn` when it begins and each minute while it lasts, and `end` with its seconds when it
/// is over.
fn observe(episode: &mut Episode, lasts: bool, now: Moment, warn: impl FnOnce(), end: impl FnOnce(u64)) {
    let now = now.since(Moment::default());
    if lasts {
        if episode.lasts("", now) {
            warn();
        }
    } else if let Some(lasted) = episode.ends(now) {
        end(lasted.as_secs());
    }
}

/// Logs changes of freshness.
fn log_staleness(board: &Board, episode: &mut Episode, now: Moment) {
    let freshness = board.freshness(now);
    let warn = || {
        let age =
            freshness.age.map_or("none since start".to_owned(), |age| format!("{} s ago", age.as_secs()));
        let on_stale = board.policy().on_stale;
        let answer = match on_stale {
            OnStale::Ready => "failing open: answering ready",
            OnStale::KeepDrain => "failing open, but holding the last known drain signal",
            OnStale::NotReady => "failing closed: answering not-ready",
        };
        let last_known = board.last_known(now).map(|known| tracing::field::display(last_known(&known)));
        let trouble = board.trouble();
        let error = trouble.as_deref().map(tracing::field::display);
        tracing::warn!(last_proof = age, error, last_known, %on_stale, "the cache is stale; {answer}");
    };
    observe(episode, freshness.stale, now, warn, |stale_for_s| {
        tracing::info!(stale_for_s, "the cache follows the API server again");
    });
}

/// Logs a Node that is in the pool only because its own kubelet answers.
fn log_cut_off(board: &Board, episode: &mut Episode, now: Moment) {
    let warn = || {
        let leaves_in_s = board.leaves_at(now).map(|at| at.since(now).as_secs());
        tracing::warn!(
            leaves_in_s,
            "the control plane gets no heartbeat from the kubelet, which answers on this node; keeping the node in \
             the pool"
        );
    };
    observe(episode, board.unconfirmed(now), now, warn, |unconfirmed_for_s| {
        tracing::info!(unconfirmed_for_s, "the verdict follows the API server again");
    });
}

/// Logs a Node that is in the pool only because its `Ready=False` has not lasted long enough.
fn log_pending(board: &Board, episode: &mut Episode, now: Moment) {
    let pending = board.not_ready_pending(now);
    let warn = || {
        let counts_in_ms = pending.map(|pending| pending.counts_in_ms);
        tracing::warn!(
            counts_in_ms,
            "the Node is Ready=False, which does not count yet; keeping the node in the pool"
        );
    };
    observe(episode, pending.is_some(), now, warn, |not_ready_for_s| {
        tracing::info!(not_ready_for_s, "the verdict follows the Ready condition again");
    });
}

/// Logs a cordoned Node that is in the pool because too many others are drained.
fn log_kept(board: &Board, episode: &mut Episode, now: Moment) {
    let kept = board.kept(now);
    let warn = || tracing::warn!("{}", kept.as_ref().map(sentence::kept).unwrap_or_default());
    observe(episode, kept.is_some(), now, warn, |kept_for_s| {
        tracing::info!(kept_for_s, "the node is no longer kept in the pool");
    });
}

/// Logs that the API server has no Node of this name.
fn log_absent(board: &Board, episode: &mut Episode, now: Moment) {
    let is_absent = board.published().state.node.exists() == Some(false);
    let warn = || {
        tracing::warn!(
            node = board.node_name(),
            "the cluster has no Node of this name; answering not-ready. Is --node-name (NODE_NAME) right?"
        );
    };
    observe(episode, is_absent, now, warn, |absent_for_s| tracing::info!(absent_for_s, "the Node is there"));
}

/// Logs that the kubelet's port can't be reached on a node that is Ready, once for as long as it lasts.
fn log_unreachable(board: &Board, logged: &mut bool) {
    match (board.kubelet_unreachable(), *logged) {
        (Some(reason), false) => tracing::warn!("{}", kubelet_unreachable(&reason)),
        (None, true) => tracing::info!("the check kubelet no longer contradicts a Node that is Ready"),
        (Some(_), true) | (None, false) => return,
    }
    *logged = !*logged;
}

/// Returns the time until the cache can become stale, a reminder is due, or the watchdog needs a sign of
/// life.
fn until_next(board: &Board, look_often: bool, now: Moment) -> Duration {
    let next = if look_often {
        // While something is wrong, look often: recovery should be logged soon, and a balancer should learn
        // without delay that the node leaves the pool.
        let soon = now.plus(Duration::from_secs(1));
        board.expires(now).map_or(soon, |expires| soon.min(expires))
    } else {
        // Just past the limit: at the limit itself the cache is still fresh.
        board.last_proof().map_or(now.plus(REPORT_EVERY), |proof| {
            proof.plus(board.policy().stale_after).plus(Duration::from_millis(1))
        })
    };
    next.since(now).clamp(Duration::from_millis(1), REPORT_EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_readiness::{Catalog, Policy};
    use std::io::{self, Write};
    use std::sync::Mutex;
    use tracing_subscriber::fmt::MakeWriter;

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    /// Returns a board with a proof at second 1, so stale from second 17 on.
    fn board() -> Board {
        let board = Board::new(None, Policy::default(), Catalog::new(Vec::new()), &[], Box::new(|_| {}));
        board.prove(at(1));
        board
    }

    /// The log lines that a test has collected.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl MakeWriter<'_> for Lines {
        type Writer = Self;

        fn make_writer(&self) -> Self {
            self.clone()
        }
    }

    #[test]
    fn a_stale_cache_is_mentioned_once_a_minute_and_its_end_once() {
        let (board, mut episode, lines) = (board(), Episode::default(), Lines::default());
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(lines.clone()).finish();
        let mut mentioned = Vec::new();
        tracing::subscriber::with_default(subscriber, || {
            for second in 1..=190 {
                if second == 180 {
                    board.prove(at(180));
                }
                log_staleness(&board, &mut episode, at(second));
                let text = String::from_utf8(std::mem::take(&mut *lines.0.lock().unwrap())).unwrap();
                mentioned.extend(text.lines().map(|line| (second, line.to_owned())));
            }
        });
        let seconds: Vec<_> = mentioned.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds, [17, 77, 137, 180], "{mentioned:#?}");
        let (end, warnings) = mentioned.split_last().unwrap();
        assert!(warnings.iter().all(|(_, line)| line.contains("WARN") && line.contains("failing open")));
        assert!(end.1.contains("follows the API server again") && end.1.contains("stale_for_s=163"));
    }

    #[test]
    fn it_wakes_when_the_cache_can_become_stale_and_each_second_while_it_is() {
        let board = board();
        assert_eq!(until_next(&board, false, at(15)), Duration::from_millis(1001));
        assert_eq!(until_next(&board, false, at(20)), Duration::from_millis(1), "never at once");
        assert_eq!(until_next(&board, true, at(20)), Duration::from_secs(1));
        let unproved = Board::new(None, Policy::default(), Catalog::new(Vec::new()), &[], Box::new(|_| {}));
        assert_eq!(until_next(&unproved, false, at(20)), REPORT_EVERY);
    }
}
