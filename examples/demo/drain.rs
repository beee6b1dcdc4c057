//! The live view of a drain: acknowledgements of balancers, open sessions, remaining pods, lost requests.

use crate::pods::Pods;
use crate::probe::ObservedAgent;
use crate::screen::Screen;
use crate::traffic::{Counts, Tally};
use nodegate_readiness::Verdict;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The interval of looks, shorter than anything that is shown.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The time after which no balancer sends new requests: a balancer without an acknowledgement continues for a
/// second or two.
const SETTLED: Duration = Duration::from_secs(3);

/// Shows the drains of one node, one after the other.
pub(crate) async fn follow(agent: ObservedAgent, pods: Pods, tally: Option<Tally>, screen: Screen) {
    let mut seen = agent.seen.clone();
    while seen.wait_for(|seen| seen.answer.verdict == Some(Verdict::Draining)).await.is_ok() {
        let mut drain = Drain {
            agent: &agent,
            pods: &pods,
            tally: tally.as_ref(),
            screen: &screen,
            began: Instant::now(),
            before: tally.as_ref().map(Tally::read).unwrap_or_default(),
            told: None,
            sessions: None,
            evicted: None,
        };
        while seen.borrow().answer.verdict == Some(Verdict::Draining) {
            drain.look().await;
            sleep(LOOK_EVERY).await;
        }
    }
}

/// A drain, and what was shown of it.
struct Drain<'a> {
    agent: &'a ObservedAgent,
    pods: &'a Pods,
    /// The requests, until their sum is shown.
    tally: Option<&'a Tally>,
    screen: &'a Screen,
    began: Instant,
    before: Counts,
    told: Option<(usize, usize)>,
    sessions: Option<u64>,
    evicted: Option<Instant>,
}

impl Drain<'_> {
    fn say(&self, what: &str) {
        let after = self.began.elapsed().as_secs_f64();
        self.screen.note(self.agent.node.name, &format!("+{after:.1} s  {what}"));
    }

    async fn look(&mut self) {
        let Some(status) = self.agent.status().await else { return };
        if status.verdict == Some(Verdict::Ready) {
            // The drain is over, but this task has not noticed it yet.
            return;
        }
        let (told, of) = status.told_of();
        if of > 0 && self.told.replace((told, of)) != Some((told, of)) {
            let is_told = status.drain.as_ref().and_then(|drain| drain.told) == Some(true);
            self.say(&format!("told {told}/{of} balancers{}", if is_told { ": all of them" } else { "" }));
        }
        // The first number of sessions, and the end of the last one.
        match (self.sessions, status.sessions()) {
            (None, Some(now)) => self.say(&format!("{now} sessions are open")),
            (Some(1..), Some(0)) => self.say("no session is left"),
            // New sessions would come through a balancer that has not acknowledged the drain.
            (Some(0), Some(now @ 1..)) => self.say(&format!("{now} sessions again")),
            _ => {}
        }
        self.sessions = status.sessions().or(self.sessions);
        match self.evicted {
            None if self.pods.count(self.agent.node.name) == 0 => {
                self.say("no pod takes requests here");
                self.evicted = Some(Instant::now());
            }
            Some(evicted) if evicted.elapsed() >= SETTLED => {
                if let Some(tally) = self.tally.take() {
                    let now = tally.read();
                    let (lost, total) = (now.lost - self.before.lost, now.total() - self.before.total());
                    self.say(&format!("{lost} of {total} requests lost since the cordon"));
                }
            }
            _ => {}
        }
    }
}
