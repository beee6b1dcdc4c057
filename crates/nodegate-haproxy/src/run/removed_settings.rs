//! Settings that earlier releases had, with what takes their place.

use nodegate_program::Removed;

/// The settings that are gone.
pub(super) const SETTINGS: &[Removed] = &[
    gone("before", "NODEGATE_HAPROXY_BEFORE", "make your part the --template; HAProxy loads one file alone"),
    gone("prefix", "NODEGATE_HAPROXY_PREFIX", "run a second HAProxy for a second cluster"),
    gone("state-dir", "NODEGATE_HAPROXY_STATE_DIR", "states are kept beside --config"),
    gone("state-file", "NODEGATE_HAPROXY_STATE_FILE", "states are kept beside --config"),
    gone("pause-file", "NODEGATE_HAPROXY_PAUSE_FILE", "stop nodegate-haproxy; HAProxy goes on"),
    gone("runtime-socket", "NODEGATE_HAPROXY_RUNTIME_SOCKET", "use --master-socket"),
    gone("reload-timeout", "NODEGATE_HAPROXY_RELOAD_TIMEOUT", "a reload has 30 s"),
    gone("service-selector", "NODEGATE_HAPROXY_SERVICE_SELECTOR", "use --namespaces"),
    gone("publish", "NODEGATE_HAPROXY_PUBLISH", "use the annotation nodegate.io/haproxy-publish"),
    gone("bind-allow", "NODEGATE_HAPROXY_BIND_ALLOW", "use --ports"),
    gone("reserved-ports", "NODEGATE_HAPROXY_RESERVED_PORTS", "use --ports; no port is taken away"),
    gone("mode", "NODEGATE_HAPROXY_MODE", "use the annotation nodegate.io/haproxy-mode"),
    gone("balance", "NODEGATE_HAPROXY_BALANCE", "use the annotation nodegate.io/haproxy-balance"),
    gone("address-types", "NODEGATE_HAPROXY_ADDRESS_TYPES", "use --node-networks"),
    gone("check-port", "NODEGATE_HAPROXY_CHECK_PORT", "use --check agent:port=PORT"),
    gone("check-path", "NODEGATE_HAPROXY_CHECK_PATH", "use --check"),
    gone("check-interval", "NODEGATE_HAPROXY_CHECK_INTERVAL", "use --check agent:interval=DURATION"),
    gone("agent-check-port", "NODEGATE_HAPROXY_AGENT_CHECK_PORT", "--check asks the agents"),
    gone("local-check", "NODEGATE_HAPROXY_LOCAL_CHECK", "use the annotation nodegate.io/haproxy-local-check"),
    gone("once", "NODEGATE_HAPROXY_ONCE", "it writes the file as soon as it knows the cluster"),
    gone("print", "NODEGATE_HAPROXY_PRINT", "use --explain, or read the file"),
    gone("diff", "NODEGATE_HAPROXY_DIFF", "use --explain, or read the file"),
];

const fn gone(flag: &'static str, variable: &'static str, instead: &'static str) -> Removed {
    Removed::flag(flag, variable, instead)
}
