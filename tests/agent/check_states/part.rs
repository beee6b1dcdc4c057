//! A component of a node that a check tests, and the states that it can be in.

use nodegate_testbed::{Agent, ProbeReply};
use std::time::Duration;

/// The interval and the timeout of the check: the defaults where the run measures times, and less in a
/// quick run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Defaults,
    Quick,
}

impl Pace {
    pub(crate) fn interval(self) -> Duration {
        if self.is_quick() { Duration::from_millis(200) } else { Duration::from_secs(5) }
    }

    /// Returns the value of `--check-settings` for a check.
    pub(crate) fn settings(self) -> &'static str {
        if self.is_quick() { "interval=200ms,timeout=2s" } else { "interval=5s,timeout=5s" }
    }

    /// Scales a time to this pace.
    pub(crate) fn time(self, by_default: Duration) -> Duration {
        if self.is_quick() { by_default / 5 } else { by_default }
    }

    /// Adapts a reason to this pace. Reasons name the timeout, or the three quarters of it that each disk
    /// has.
    fn words(self, pattern: &str) -> String {
        if !self.is_quick() {
            return pattern.to_owned();
        }
        pattern.replace("Timeout after 5s", "Timeout after 2s").replace("after 3s 750ms", "after 1s 500ms")
    }

    pub(crate) fn is_quick(self) -> bool {
        self == Self::Quick
    }
}

/// A component that a check tests.
pub(crate) trait Part: Sized + 'static {
    /// The name of the check in a probe request.
    const CHECK: &'static str;
    /// The heading of the table: the check and its settings.
    const TITLE: &'static str = Self::CHECK;
    /// The programs that play the component.
    const PLAYED_WITH: &'static str;
    /// The states; each one follows the one before it.
    const STATES: &'static [State<Self>];

    /// Returns true if the programs exist that `make test` does not install.
    fn is_there() -> bool {
        true
    }

    /// Starts the component, before its first state.
    fn start(pace: Pace) -> Self;

    /// Starts an agent beside the component.
    fn agent(&self) -> Agent;
}

/// A state of the component, and the answer of the check in it.
pub(crate) struct State<P> {
    pub(crate) name: &'static str,
    /// Brings the component into the state.
    pub(crate) enter: fn(&mut P),
    /// The answer of an agent that ran before the state began.
    pub(crate) says: Says,
    /// The first answer of an agent that starts in this state.
    pub(crate) newcomer: Says,
    /// True if the first answer of a newcomer is temporary: then it answers as the other agent does.
    pub(crate) newcomer_at_first: bool,
    /// The longest time until the first agent answers so, with the default settings.
    pub(crate) within: Duration,
    /// The reason why a test elsewhere plays this state.
    pub(crate) note: Option<&'static str>,
    /// True if only `make checks-test` plays this state.
    pub(crate) long: bool,
}

/// The time until the next run of the check, which sees the event.
const NEXT_RUN: Duration = Duration::from_secs(5);

impl<P> State<P> {
    pub(crate) const fn new(name: &'static str, enter: fn(&mut P), says: Says) -> Self {
        Self {
            name,
            enter,
            says,
            newcomer: says,
            newcomer_at_first: false,
            within: NEXT_RUN,
            note: None,
            long: false,
        }
    }

    /// Sets a different answer for an agent that starts in this state.
    pub(crate) const fn newcomer(mut self, says: Says) -> Self {
        self.newcomer = says;
        self
    }

    /// Sets a different first answer for an agent that starts in this state, until it has measured as much.
    pub(crate) const fn newcomer_at_first(mut self, says: Says) -> Self {
        self.newcomer_at_first = true;
        self.newcomer(says)
    }

    pub(crate) const fn within(mut self, seconds: u64) -> Self {
        self.within = Duration::from_secs(seconds);
        self
    }

    pub(crate) const fn note(mut self, note: &'static str) -> Self {
        self.note = Some(note);
        self
    }

    pub(crate) const fn long(mut self) -> Self {
        self.long = true;
        self
    }
}

/// An answer of a check. In reasons `…` matches any text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    Passes,
    /// The check fails open.
    PassesStale,
    Fails(&'static str),
    /// The check keeps the last known result.
    FailsStale(&'static str),
    Drains(&'static str),
}

/// The status code that a probe requests for Draining.
const DRAINING: u16 = 404;

/// Returns the probe request of a check.
pub(crate) fn question(check: &str) -> String {
    format!("/health?check={check}&drain={DRAINING}")
}

impl Says {
    pub(crate) fn verdict(self) -> &'static str {
        match self {
            Self::Passes => "passes",
            Self::PassesStale => "passes, stale",
            Self::Fails(_) => "fails",
            Self::FailsStale(_) => "fails, stale",
            Self::Drains(_) => "drains",
        }
    }

    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::Passes | Self::PassesStale => "",
            Self::Fails(reason) | Self::FailsStale(reason) | Self::Drains(reason) => reason,
        }
    }

    /// Returns true if the reply is this answer.
    pub(crate) fn is(self, reply: &ProbeReply, pace: Pace) -> bool {
        said(reply) == self.verdict()
            && matches(&pace.words(self.reason()), &reply.reason().unwrap_or_default())
    }
}

/// Returns the verdict of a reply in the words of the table.
pub(crate) fn said(reply: &ProbeReply) -> String {
    let verdict = match reply.status {
        200 => "passes",
        DRAINING => "drains",
        503 => "fails",
        _ => "breaks",
    };
    format!("{verdict}{}", if reply.is_stale() { ", stale" } else { "" })
}

fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('…') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(first) else { return false };
    let mut parts: Vec<&str> = rest.split('…').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        let Some((_, after)) = left.split_once(part) else { return false };
        left = after;
    }
    left.ends_with(last)
}

#[test]
fn an_ellipsis_in_a_reason_matches_any_text() {
    assert!(matches("", ""));
    assert!(matches("HTTP 503", "HTTP 503"));
    assert!(!matches("HTTP 503", "HTTP 5033"));
    assert!(matches("NoSocket: …", "NoSocket: /run/x"));
    assert!(matches("a … c … e", "a b c d e"));
    assert!(!matches("a … c … e", "a b d e"));
}
