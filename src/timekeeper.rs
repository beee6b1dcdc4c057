//! The one task that watches time pass: it logs that the cache has become stale, that it still is, and that it is not
//! any more. No answer depends on it; requests read the freshness themselves.

use nodegate_readiness::beats::BEAT;
use nodegate_readiness::{Beats, Board, Moment, OnStale, Timeline};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};
use tokio::sync::watch::Receiver;

/// How often a stale cache is mentioned again.
const REMIND_EVERY: Duration = Duration::from_mins(1);

/// An episode of staleness.
#[derive(Clone, Copy)]
struct Episode {
    began: Moment,
    mentioned: Moment,
}

/// Keeps time, forever. Nothing is logged before `open` says that answers are given.
pub(crate) async fn run(board: Arc<Board>, beats: Arc<Beats>, timeline: Timeline, mut open: Receiver<bool>) {
    let mut episode: Option<Episode> = None;
    // The sender only goes away with the process.
    let _ = open.wait_for(|open| *open).await;
    loop {
        let now = timeline.at(Instant::now());
        beats.timers(now);
        board.tick(now, SystemTime::now());
        if board.node_name().is_none() {
            // Nothing is watched without a name, and a restart by the kubelet would not bring one.
            beats.watch(now);
        } else {
            episode = mention(&board, episode, now);
        }
        tokio::time::sleep(until_next(&board, episode, now)).await;
    }
}

/// Logs what is new about the freshness, and gives the episode as it now stands.
fn mention(board: &Board, episode: Option<Episode>, now: Moment) -> Option<Episode> {
    let freshness = board.freshness(now);
    match (freshness.stale, episode) {
        (false, None) => None,
        (false, Some(episode)) => {
            let seconds = now.since(episode.began).as_secs();
            tracing::info!(stale_for_s = seconds, "the cache follows the API server again");
            None
        }
        (true, Some(episode)) if now.since(episode.mentioned) < REMIND_EVERY => Some(episode),
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
            tracing::warn!(last_proof = age, on_stale = %board.policy().on_stale, "the cache is stale, {answer}");
            Some(Episode { began, mentioned: now })
        }
    }
}

/// Until the cache can become stale, a reminder is due, or a beat.
fn until_next(board: &Board, episode: Option<Episode>, now: Moment) -> Duration {
    let next = match episode {
        // Recovery is worth noticing soon, and an outage is no time to save wake-ups.
        Some(_) => now.plus(Duration::from_secs(1)),
        // Just past the limit: at the limit itself the cache is still believed.
        None => board.last_proof().map_or(now.plus(BEAT), |proof| {
            proof.plus(board.policy().stale_after).plus(Duration::from_millis(1))
        }),
    };
    next.since(now).clamp(Duration::from_millis(1), BEAT)
}
