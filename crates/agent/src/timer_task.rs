//! Logs that the cache becomes stale, stays stale, and is fresh again, and the same for a kubelet that is cut off from
//! the API server, and for a cordoned node that is kept in the pool. No answer depends on this task; requests read the
//! freshness themselves.

use nodegate_agent_api::Status;
use nodegate_agent_client::hints::kubelet_unreachable;
use nodegate_agent_client::sentence::{self, last_known};
use nodegate_program::OngoingFault;
use nodegate_readiness::liveness::REPORT_EVERY;
use nodegate_readiness::{Age, Board, Liveness, Moment, OnStale, Timeline};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;
use tokio::time::sleep;

/// Something that may last: the warning while it does, the log line at its end, and whether the warning is repeated each
/// minute. One is enough of what may last until a setting changes.
type Watched = (Option<String>, &'static str, bool);

/// Looks at all that may last.
fn look(board: &Board, now: Moment) -> [Watched; 5] {
    let status = board.read(now, nodegate_clock::wall(), Status::of);
    let cut_off = status.unconfirmed.then(|| {
        let left = status.leaves_in_ms.map(|ms| format!(" for {} more", Age(ms)));
        "the control plane gets no heartbeat from the kubelet, which answers on this node; keeping the node in the pool"
            .to_owned()
            + &left.unwrap_or_default()
    });
    let absent = status.node.as_ref().filter(|_| status.node_exists == Some(false)).map(|name| {
        format!(
            "the cluster has no Node of this name, {name:?}; answering not-ready. Is --node-name (NODE_NAME) right?"
        )
    });
    let unreachable = board.kubelet_unreachable().as_ref().map(kubelet_unreachable);
    let kept = status.kept.as_ref().map(sentence::kept);
    [
        (staleness(&status, board.policy().on_stale), "the cache follows the API server again", true),
        (cut_off, "the verdict follows the API server again", true),
        (kept, "the node is no longer kept in the pool", true),
        (absent, "the Node is there", true),
        (unreachable, "the check kubelet no longer contradicts a Node that is Ready", false),
    ]
}

/// Returns the warning about a stale cache.
fn staleness(status: &Status, on_stale: OnStale) -> Option<String> {
    let answer = match on_stale {
        _ if !status.cache.stale => return None,
        OnStale::Ready => "failing open: answering ready",
        OnStale::KeepDrain => "failing open, but holding the last known drain signal",
        OnStale::NotReady => "failing closed: answering not-ready",
    };
    let proof = status.cache.age_ms.map_or("none".to_owned(), |ms| format!("{} ago", Age(ms)));
    let known = status.last_known.as_ref().map(|known| format!("; last known: {}", last_known(known)));
    let error = status.cache.error.as_ref().map(|error| format!("; {error}"));
    let [known, error] = [known, error].map(Option::unwrap_or_default);
    Some(format!("the cache is stale; {answer} (last proof: {proof}{known}{error})"))
}

/// Runs forever. Logs nothing before the ports are open.
pub(crate) async fn run(
    board: Arc<Board>,
    liveness: Arc<Liveness>,
    timeline: Timeline,
    mut open: Receiver<bool>,
) {
    let mut faults = <[OngoingFault; 5]>::default();
    // The sender lives as long as the process.
    let _ = open.wait_for(|open| *open).await;
    loop {
        let now = timeline.at(nodegate_clock::now());
        liveness.timers.advance(now);
        board.tick(now, nodegate_clock::wall());
        let mut look_often = false;
        if board.node_name().is_none() {
            // Without a name there is no watch, and a restart by the kubelet would not help.
            liveness.watch.advance(now);
        } else {
            look_often = log(&mut faults, &board, now);
        }
        sleep(until_next(&board, look_often, now)).await;
    }
}

/// Logs what has started, what still lasts after a minute, and what is over. Returns true if something lasts that is soon
/// over.
fn log(faults: &mut [OngoingFault; 5], board: &Board, now: Moment) -> bool {
    let (since_start, mut look_often) = (now.since(Moment::default()), false);
    for ((warning, end, repeats), fault) in look(board, now).into_iter().zip(faults) {
        let is_new = !fault.is_on();
        if let Some(warning) = warning {
            look_often |= repeats;
            if fault.should_log("", since_start) && (is_new || repeats) {
                tracing::warn!("{warning}");
            }
        } else if let Some(lasted) = fault.ends(since_start) {
            tracing::info!(lasted_s = lasted.as_secs(), "{end}");
        }
    }
    look_often
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
    use std::sync::Mutex;

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    /// Returns a board with a proof at second 1, so stale from second 17 on.
    fn board() -> Board {
        let board = Board::new(None, Policy::default(), Catalog::new(Vec::new()), &[]);
        board.prove(at(1));
        board
    }

    #[test]
    fn a_stale_cache_is_mentioned_once_a_minute_and_its_end_once() {
        let (board, written) = (board(), tempfile::NamedTempFile::new().unwrap());
        let writer = Mutex::new(written.reopen().unwrap());
        let mut faults = <[OngoingFault; 5]>::default();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(writer).finish();
        let mut mentioned: Vec<(u64, String)> = Vec::new();
        tracing::subscriber::with_default(subscriber, || {
            for second in 1..=190 {
                if second == 180 {
                    board.prove(at(180));
                }
                log(&mut faults, &board, at(second));
                let text = std::fs::read_to_string(written.path()).unwrap();
                let new = text.lines().skip(mentioned.len());
                mentioned.extend(new.map(|line| (second, line.to_owned())).collect::<Vec<_>>());
            }
        });
        let seconds: Vec<_> = mentioned.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds, [17, 77, 137, 180], "{mentioned:#?}");
        let (end, warnings) = mentioned.split_last().unwrap();
        assert!(warnings.iter().all(|(_, line)| line.contains("WARN") && line.contains("failing open")));
        assert!(end.1.contains("follows the API server again") && end.1.contains("lasted_s=163"));
    }

    #[test]
    fn it_wakes_when_the_cache_can_become_stale_and_each_second_while_it_is() {
        let board = board();
        assert_eq!(until_next(&board, false, at(15)), Duration::from_millis(1001));
        assert_eq!(until_next(&board, false, at(20)), Duration::from_millis(1), "never at once");
        assert_eq!(until_next(&board, true, at(20)), Duration::from_secs(1));
        let unproved = Board::new(None, Policy::default(), Catalog::new(Vec::new()), &[]);
        assert_eq!(until_next(&unproved, false, at(20)), REPORT_EVERY);
    }
}
