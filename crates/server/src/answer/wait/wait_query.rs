//! The query of `/wait`.

use nodegate_readiness::probers::Goal;
use std::time::Duration;

/// The timeout of a request that names none.
const TIMEOUT: u64 = 20;
const MOST_TIMEOUT: u64 = 600;
/// The longest `settle`, in seconds.
const MOST_SETTLE: u64 = 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WaitQuery {
    pub(super) goal: Goal,
    pub(super) timeout: Duration,
    /// The time that a node in service has to go out.
    pub(super) settle: Duration,
}

impl WaitQuery {
    /// Parses a query. Other parameters are ignored. The error is the text for the client.
    pub(super) fn parse(query: &str) -> Result<Self, String> {
        let (mut goal, mut timeout, mut settle) = (Goal::Told, TIMEOUT, 0);
        for pair in query.split('&') {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            match name {
                "for" => goal = parse_goal(value).ok_or_else(|| wrong("for", "told, released or ready"))?,
                "timeout" => timeout = seconds(name, value)?.clamp(1, MOST_TIMEOUT),
                "settle" => settle = seconds(name, value)?.min(MOST_SETTLE),
                _ => {}
            }
        }
        let [timeout, settle] = [timeout, settle].map(Duration::from_secs);
        Ok(Self { goal, timeout, settle })
    }
}

fn parse_goal(word: &str) -> Option<Goal> {
    [Goal::Told, Goal::Released, Goal::Ready].into_iter().find(|goal| goal.as_str() == word)
}

fn seconds(name: &str, value: &str) -> Result<u64, String> {
    let number = value.strip_suffix('s').unwrap_or(value);
    number.parse().map_err(|_| wrong(name, "whole seconds, e.g. 20"))
}

fn wrong(name: &str, takes: &str) -> String {
    format!("{name}: takes {takes}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_parameter_has_a_default_and_a_bound() {
        let parse = |query| {
            WaitQuery::parse(query)
                .map(|asked| (asked.goal.as_str(), asked.timeout.as_secs(), asked.settle.as_secs()))
        };
        assert_eq!(parse(""), Ok(("told", 20, 0)));
        assert_eq!(parse("for=released&timeout=55s&settle=2&x"), Ok(("released", 55, 2)));
        assert_eq!(parse("timeout=0&for=ready"), Ok(("ready", 1, 0)));
        assert_eq!(parse("timeout=86400&settle=86400"), Ok(("told", 600, 60)));
        for (query, error) in [
            ("for=gone", "for: takes told, released or ready\n"),
            ("for", "for: takes told, released or ready\n"),
            ("timeout=1m", "timeout: takes whole seconds, e.g. 20\n"),
            ("timeout=-1", "timeout: takes whole seconds, e.g. 20\n"),
            ("settle=", "settle: takes whole seconds, e.g. 20\n"),
        ] {
            assert_eq!(parse(query), Err(error.to_owned()), "{query}");
        }
    }
}
