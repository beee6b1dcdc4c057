//! Waits until the agent says that every load balancer has acknowledged.

use nodegate_agent_api::WaitState;
use nodegate_agent_client::{AskError, get, parse_wait};
use nodegate_program::sanitize_short;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};

/// The longest time of one request. Then the next one shows whether the agent still answers.
const ONE_REQUEST: Duration = Duration::from_secs(5);
/// The time that an answer may come late by.
const LATE_BY: Duration = Duration::from_secs(2);
/// The time for which a refused connection may belong to an agent that is being replaced.
const REPLACED_WITHIN: Duration = Duration::from_secs(3);
/// The longest text of the agent in a log line.
const MAX_TEXT: usize = 200;
const RETRY: Duration = Duration::from_millis(250);

/// The end of a wait.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WaitEnd {
    /// Every load balancer has acknowledged, or there is none; in the agent's words.
    Acknowledged(String),
    /// The limit has passed.
    Late,
    /// The agent gives no answer, or none that says anything of the drain.
    NoAnswer(String),
}

impl fmt::Display for WaitEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Acknowledged(words) => write!(f, "the agent says: {words}"),
            Self::Late => f.write_str("not every load balancer had acknowledged in time"),
            Self::NoAnswer(why) => write!(f, "the agent does not answer ({why})"),
        }
    }
}

/// Waits for at most `limit`.
pub(crate) async fn wait_until_acknowledged(agent: SocketAddr, limit: Duration) -> WaitEnd {
    let deadline = Instant::now() + limit;
    let mut answered = Instant::now();
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return WaitEnd::Late;
        }
        let request = left.min(ONE_REQUEST);
        // The agent may not have seen the file yet.
        let path =
            format!("/wait?for=acknowledged&settle=2&format=json&timeout={}", request.as_secs().max(1));
        let reply = timeout(request + LATE_BY, get(&[agent], &path)).await;
        match reply.map(|reply| reply.and_then(|reply| parse_wait(&reply))) {
            Ok(Ok(reply)) if reply.state.is_over() => {
                let goal = if reply.state == WaitState::Reached { "acknowledged: " } else { "" };
                return WaitEnd::Acknowledged(sanitize_short(&format!("{goal}{}", reply.why), MAX_TEXT));
            }
            // Not acknowledged yet, an agent that is being replaced, or one with too much to do.
            Ok(Ok(_) | Err(AskError::Refused(_, 307 | 429 | 503))) => answered = Instant::now(),
            Ok(Err(AskError::Connect(_) | AskError::Closed | AskError::Broken(_)))
                if answered.elapsed() < REPLACED_WITHIN => {}
            Ok(Err(error)) => return WaitEnd::NoAnswer(error.to_string()),
            Err(_) => return WaitEnd::NoAnswer(format!("nothing for {} s", request.as_secs())),
        }
        sleep(RETRY).await;
    }
}
