//! The style of a verdict: a word, the name of a colour, and a symbol with its own shape.

use nodegate_readiness::Verdict;
use nodegate_readiness::status::Status;

/// The look of a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct VerdictStyle {
    /// The word for the verdict.
    pub(super) word: &'static str,
    /// The class in the style sheet.
    pub(super) class: &'static str,
    /// The outline of the symbol, as a path in a square of 24 units.
    pub(super) outline: &'static str,
    /// The mark inside the outline, as a path.
    pub(super) mark: &'static str,
    /// The colour of the icon in the browser's tab; it must work on a light and on a dark tab.
    pub(super) icon: &'static str,
}

const READY: VerdictStyle = VerdictStyle {
    word: "Ready",
    class: "ready",
    outline: "M12 1a11 11 0 1 0 0 22a11 11 0 0 0 0-22z",
    mark: "M7 12.4l3.4 3.4L17 8.8",
    icon: "2a9d5c",
};

const DRAINING: VerdictStyle = VerdictStyle {
    word: "Draining",
    class: "draining",
    outline: "M1.5 3h21L12 22.5z",
    mark: "M12 6.2v8M8.8 11l3.2 3.4l3.2-3.4",
    icon: "c98200",
};

const NOT_READY: VerdictStyle = VerdictStyle {
    word: "NotReady",
    class: "not-ready",
    outline: "M7.5 1h9L23 7.5v9L16.5 23h-9L1 16.5v-9z",
    mark: "M8 8l8 8M16 8l-8 8",
    icon: "d63a32",
};

const MISCONFIGURED: VerdictStyle = VerdictStyle {
    word: "Misconfigured",
    class: "misconfigured",
    outline: "M1.5 1.5h21v21h-21z",
    mark: "M12 6v8M12 17v1.2",
    icon: "d63a32",
};

/// The mark that replaces any other while the answer is a guess.
const QUESTION: &str = "M8.6 9.4a3.5 3.5 0 1 1 5.2 3c-1.3.8-1.8 1.4-1.8 2.6M12 17.6v1.2";

impl VerdictStyle {
    /// Returns the style of a verdict that is certain.
    pub(super) fn of(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Ready => READY,
            Verdict::Draining => DRAINING,
            Verdict::NotReady => NOT_READY,
        }
    }

    /// Returns the style of the present verdict.
    pub(super) fn now(status: &Status) -> Self {
        let sure = status.verdict.map_or(MISCONFIGURED, Self::of);
        if is_guess(status) { Self { mark: QUESTION, ..sure } } else { sure }
    }
}

/// Returns true if the verdict comes from a stale cache, or against the Node's Ready condition.
pub(super) fn is_guess(status: &Status) -> bool {
    let against_ready = status.unconfirmed || status.not_ready_pending.is_some();
    (status.rests_on_stale_cache() || against_ready) && status.verdict.is_some()
}
