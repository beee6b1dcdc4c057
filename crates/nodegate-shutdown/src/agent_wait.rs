//! Waits until the agent says that every load balancer has acknowledged.

use nodegate_agent_api::{WaitReply, WaitState};
use nodegate_agent_client::{AskError, get, parse};
use nodegate_program::sanitize_short;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// The longest time of one request. Then the next one shows whether the agent still answers.
const ONE_REQUEST: Duration = Duration::from_secs(5);
/// The time that an answer may come late by.
const LATE_BY: Duration = Duration::from_secs(2);
/// The time for which a refused connection may belong to an agent that is being replaced.
const REPLACED_WITHIN: Duration = Duration::from_secs(3);
/// The longest text of the agent in a log line.
const MAX_TEXT: usize = 200;
const RETRY: Duration = Duration::from_millis(250);

/// The end of a wait, in words: every load balancer has acknowledged, or there is none. The error is why that is not known:
/// the limit has passed, or the agent gives no answer, or none that says anything of the drain.
pub(crate) type WaitEnd = Result<String, String>;

/// Why a wait has ended at its limit.
pub(crate) const LATE: &str = "not every load balancer had acknowledged in time";

/// Waits for at most `limit`.
pub(crate) async fn wait_until_acknowledged(agent: SocketAddr, limit: Duration) -> WaitEnd {
    let silent = |why: String| Err(format!("the agent does not answer ({why})"));
    let deadline = Instant::now() + limit;
    let mut answered = Instant::now();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(LATE.to_owned());
        }
        let request = left.min(ONE_REQUEST);
        // The agent may not have seen the file yet.
        let path =
            format!("/wait?for=acknowledged&settle=2&format=json&timeout={}", request.as_secs().max(1));
        let reply = get(&[agent], &path, request + LATE_BY).await;
        match reply.and_then(|reply| parse::<WaitReply>(&reply)) {
            Ok(reply) if reply.state.ends_wait() => {
                let goal = if reply.state == WaitState::Reached { "acknowledged: " } else { "" };
                let why = sanitize_short(&format!("{goal}{}", reply.why), MAX_TEXT);
                return Ok(format!("the agent says: {why}"));
            }
            // Not acknowledged yet, an agent that is being replaced, or one with too much to do.
            Ok(_) | Err(AskError::Refused(_, 307 | 429 | 503)) => answered = Instant::now(),
            Err(AskError::Connect(_) | AskError::Closed | AskError::Broken(_))
                if answered.elapsed() < REPLACED_WITHIN => {}
            Err(AskError::Late(_)) => return silent(format!("nothing for {} s", request.as_secs())),
            Err(error) => return silent(error.to_string()),
        }
        sleep(RETRY).await;
    }
}
