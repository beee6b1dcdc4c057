//! How a drain ends that does not go through.

use nodegate_readiness::probers::Ended;

/// Why a drain ended before its end.
pub(super) struct Stopped {
    /// 1 or 3, as [`Ended`] has them.
    pub(super) code: u8,
    pub(super) why: String,
}

impl Stopped {
    /// It was refused, took too long, was broken off or did not work.
    pub(super) fn failed(why: impl Into<String>) -> Self {
        Self { code: Ended::TimedOut.exit_code(), why: why.into() }
    }

    /// It can't be known whether the balancers are told.
    pub(super) fn not_known(why: impl Into<String>) -> Self {
        Self { code: Ended::NotKnown.exit_code(), why: why.into() }
    }
}
