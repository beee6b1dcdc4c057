//! The live view of a drain: acknowledgements of balancers, open sessions, remaining pods, lost requests.

use crate::balancer::Tally;
use crate::pods::Pods;
use crate::probe::ObservedAgent;
use crate::screen::Screen;
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
        let began = Instant::now();
        let say = |what: String| {
            screen.note(agent.node.name, &format!("+{:.1} s  {what}", began.elapsed().as_secs_f64()));
        };
        // The requests are counted until their sum is shown.
        let mut counted = tally.as_ref().map(|tally| (tally, tally.read()));
        let (mut acknowledged, mut sessions, mut evicted) = (None, None, None::<Instant>);
        while seen.borrow().answer.verdict == Some(Verdict::Draining) {
            sleep(LOOK_EVERY).await;
            let status = agent.status().await;
            // A ready node's drain is over, but this task has not noticed it yet.
            let Some(status) = status.filter(|status| status.verdict != Some(Verdict::Ready)) else {
                continue;
            };
            let (those, of) = (status.drain.acknowledged_probers, status.drain.probers);
            if of > 0 && acknowledged.replace((those, of)) != Some((those, of)) {
                let all = status.drain.acknowledged == Some(true);
                say(format!("acknowledged {those}/{of} balancers{}", if all { ": all of them" } else { "" }));
            }
            // The first number of sessions, and the end of the last one.
            match (sessions, status.sessions()) {
                (None, Some(now)) => say(format!("{now} sessions are open")),
                (Some(1..), Some(0)) => say("no session is left".to_owned()),
                // New sessions would come through a balancer that has not acknowledged the drain.
                (Some(0), Some(now @ 1..)) => say(format!("{now} sessions again")),
                _ => {}
            }
            sessions = status.sessions().or(sessions);
            if evicted.is_none() && pods.count(agent.node.name) == 0 {
                say("no pod takes requests here".to_owned());
                evicted = Some(Instant::now());
            }
            if evicted.is_some_and(|evicted| evicted.elapsed() >= SETTLED)
                && let Some((tally, before)) = counted.take()
            {
                let now = tally.read();
                let (lost, total) = (now.lost - before.lost, now.total - before.total);
                say(format!("{lost} of {total} requests lost since the cordon"));
            }
        }
    }
}
