//! The ways in which `HAProxy` can ask.

/// A documented way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Get,
    Options,
    Expect,
    DisableOn404,
    AgentCheck,
}

impl Mode {
    pub(crate) const ALL: [Self; 5] =
        [Self::Get, Self::Options, Self::Expect, Self::DisableOn404, Self::AgentCheck];

    pub(crate) fn configuration(self) -> &'static str {
        match self {
            Self::Get => "haproxy/httpchk-get.cfg",
            Self::Options => "haproxy/httpchk-options.cfg",
            Self::Expect => "haproxy/expect.cfg",
            Self::DisableOn404 => "haproxy/disable-on-404.cfg",
            Self::AgentCheck => "haproxy/agent-check.cfg",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "option httpchk GET /health",
            Self::Options => "option httpchk",
            Self::Expect => "http-check expect",
            Self::DisableOn404 => "disable-on-404, ?drain=404",
            Self::AgentCheck => "agent-check",
        }
    }
}
