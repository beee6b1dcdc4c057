//! A part of a node that a check looks at, and the states that it can be in.

use nodegate_testbed::{Agent, ProbeReply};
use std::time::Duration;

/// How often the check runs and how long a run may take: the defaults where times are measured, and less in a hurry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Defaults,
    Hurried,
}

impl Pace {
    pub(crate) fn interval(self) -> Duration {
        if self.is_hurried() { Duration::from_millis(200) } else { Duration::from_secs(5) }
    }

    /// What the agent is told of a check.
    pub(crate) fn settings(self) -> &'static str {
        if self.is_hurried() { "interval=200ms,timeout=2s" } else { "interval=5s,timeout=5s" }
    }

    /// The same time at this pace.
    pub(crate) fn time(self, by_default: Duration) -> Duration {
        if self.is_hurried() { by_default / 5 } else { by_default }
    }

    /// Reasons name the timeout, or the three quarters of it that each disk has.
    fn words(self, pattern: &str) -> String {
        if !self.is_hurried() {
            return pattern.to_owned();
        }
        pattern.replace("Timeout after 5s", "Timeout after 2s").replace("after 3s 750ms", "after 1s 500ms")
    }

    pub(crate) fn is_hurried(self) -> bool {
        self == Self::Hurried
    }
}

/// Something that a check looks at.
pub(crate) trait Part: Sized + 'static {
    /// The check, as it is asked for.
    const CHECK: &'static str;
    /// The heading: the check with what is set of it.
    const TITLE: &'static str = Self::CHECK;
    /// What plays the part.
    const PLAYED_WITH: &'static str;
    /// Each comes after the one before it.
    const STATES: &'static [State<Self>];

    /// What has to be there besides what `make test` installs.
    fn is_there() -> bool {
        true
    }

    /// The part before the first state.
    fn start(pace: Pace) -> Self;

    /// An agent beside it.
    fn agent(&self) -> Agent;
}

/// A state of the part, and what the check says of it.
pub(crate) struct State<P> {
    pub(crate) name: &'static str,
    /// Brings it about.
    pub(crate) enter: fn(&mut P),
    /// What an agent says that has been there all the time.
    pub(crate) says: Says,
    /// What one says that starts in this state, in its first answer.
    pub(crate) newcomer: Says,
    /// That answer passes away, and then it says what the other says.
    pub(crate) newcomer_at_first: bool,
    /// Until the first says so, at most, with the defaults.
    pub(crate) within: Duration,
    /// Why somebody else plays this state.
    pub(crate) note: Option<&'static str>,
    /// Left to those who have the time.
    pub(crate) long: bool,
}

/// A run that begins after the event sees it.
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

    /// One that starts in this state says something else.
    pub(crate) const fn newcomer(mut self, says: Says) -> Self {
        self.newcomer = says;
        self
    }

    /// One that starts in this state says something else, until it has seen as much.
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

/// What a check says. In reasons `…` stands for anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Says {
    Passes,
    /// Fails open.
    PassesStale,
    Fails(&'static str),
    /// What was known last is held.
    FailsStale(&'static str),
    Drains(&'static str),
}

/// The status by which it can be told that a check drains.
const DRAINING: u16 = 404;

/// Where a check is asked.
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

    /// Whether an answer is this one.
    pub(crate) fn is(self, reply: &ProbeReply, pace: Pace) -> bool {
        said(reply) == self.verdict()
            && matches(&pace.words(self.reason()), &reply.reason().unwrap_or_default())
    }
}

/// An answer's verdict in the words of the table.
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
fn an_ellipsis_stands_for_anything() {
    assert!(matches("", ""));
    assert!(matches("HTTP 503", "HTTP 503"));
    assert!(!matches("HTTP 503", "HTTP 5033"));
    assert!(matches("NoSocket: …", "NoSocket: /run/x"));
    assert!(matches("a … c … e", "a b c d e"));
    assert!(!matches("a … c … e", "a b d e"));
}
