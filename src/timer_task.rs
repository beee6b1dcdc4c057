//! The one task that watches time pass: it logs that the cache has become stale, that it still is, and that it is not
//! any more. No answer depends on it; requests read the freshness themselves.

use nodegate_readiness::liveness::REPORT_EVERY;
use nodegate_readiness::{Board, Liveness, Moment, OnStale, Timeline};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch::Receiver;

/// How often a stale cache is logged again.
const REMIND_EVERY: Duration = Duration::from_mins(1);

/// A time in which the cache is stale.
#[derive(Clone, Copy)]
struct StaleEpisode {
    began: Moment,
    logged: Moment,
}

/// Runs forever. Nothing is logged before `open` says that answers are given.
pub(crate) async fn run(
    board: Arc<Board>,
    liveness: Arc<Liveness>,
    timeline: Timeline,
    mut open: Receiver<bool>,
) {
    let mut episode: Option<StaleEpisode> = None;
    // The sender only goes away with the process.
    let _ = open.wait_for(|open| *open).await;
    loop {
        let now = timeline.at(nodegate_clock::now());
        liveness.report_timers(now);
        board.tick(now, nodegate_clock::wall());
        if board.node_name().is_none() {
            // Nothing is watched without a name, and a restart by the kubelet would not bring one.
            liveness.report_watch(now);
        } else {
            episode = log_staleness(&board, episode, now);
        }
        tokio::time::sleep(until_next(&board, episode, now)).await;
    }
}

/// Logs what is new about the freshness, and gives the episode as it now stands.
fn log_staleness(board: &Board, episode: Option<StaleEpisode>, now: Moment) -> Option<StaleEpisode> {
    let freshness = board.freshness(now);
    match (freshness.stale, episode) {
        (false, None) => None,
        (false, Some(episode)) => {
            let seconds = now.since(episode.began).as_secs();
            tracing::info!(stale_for_s = seconds, "the cache follows the API server again");
            None
        }
        (true, Some(episode)) if now.since(episode.logged) < REMIND_EVERY => Some(episode),
        (true, _) => {
            let began = episode.map_or(now, |episode| episode.began);
            let age = freshness
                .age
                .map_or_else(|| "none since start".to_owned(), |age| format!("{} s ago", age.as_secs()));
            let answer = match board.policy().on_stale {
                OnStale::Ready => "failing open: answering ready",
                OnStale::KeepDrain => "failing open, but holding the last known drain signal",
                OnStale::NotReady => "failing closed: answering not-ready",
            };
            let last_known = board.last_known(now).map(tracing::field::display);
            let on_stale = board.policy().on_stale;
            tracing::warn!(last_proof = age, last_known, %on_stale, "the cache is stale, {answer}");
            Some(StaleEpisode { began, logged: now })
        }
    }
}

/// Until the cache can become stale, a reminder is due, or a sign of life.
fn until_next(board: &Board, episode: Option<StaleEpisode>, now: Moment) -> Duration {
    let next = match episode {
        // Recovery is worth noticing soon, and an outage is no time to save wake-ups.
        Some(_) => now.plus(Duration::from_secs(1)),
        // Just past the limit: at the limit itself the cache is still believed.
        None => board.last_proof().map_or(now.plus(REPORT_EVERY), |proof| {
            proof.plus(board.policy().stale_after).plus(Duration::from_millis(1))
        }),
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

    /// Proved at second 1, so stale from second 17 on.
    fn board() -> Board {
        let board = Board::new(None, Policy::default(), Catalog::new(Vec::new()), &[], Box::new(|_| {}));
        board.prove(at(1));
        board
    }

    /// Collects log lines.
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
        let board = board();
        let lines = Lines::default();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(lines.clone()).finish();
        let mut mentioned = Vec::new();
        tracing::subscriber::with_default(subscriber, || {
            let mut episode = None;
            for second in 1..=190 {
                if second == 180 {
                    board.prove(at(180));
                }
                episode = log_staleness(&board, episode, at(second));
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
        assert_eq!(until_next(&board, None, at(15)), Duration::from_millis(1001));
        assert_eq!(until_next(&board, None, at(20)), Duration::from_millis(1), "never at once");
        let episode = StaleEpisode { began: at(17), logged: at(17) };
        assert_eq!(until_next(&board, Some(episode), at(20)), Duration::from_secs(1));
        let unproved = Board::new(None, Policy::default(), Catalog::new(Vec::new()), &[], Box::new(|_| {}));
        assert_eq!(until_next(&unproved, None, at(20)), REPORT_EVERY);
    }
}
