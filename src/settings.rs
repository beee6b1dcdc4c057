//! Settings, parsed once and valid from there on.

use crate::args::Args;
use crate::ports::PortSettings;
use nodegate_local_checks::{HostRoot, OwnChecks, Probes, Settings as ProbeSettings};
use nodegate_logging::{LogFilter, LogFormat};
use nodegate_readiness::check::KUBE_PROXY;
use nodegate_readiness::{Catalog, CheckId, Policy, ServiceName};
use std::fmt::Display;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::time::Duration;

/// The most Services: each costs the API server a watch from every node.
const MAX_SERVICES: usize = 16;

/// Everything nodegate can be told.
pub(crate) struct Settings {
    /// `None` if `NODE_NAME` is not set: not an error, but every answer says so.
    pub(crate) node_name: Option<String>,
    pub(crate) ports: PortSettings,
    pub(crate) startup_grace: Duration,
    pub(crate) policy: Policy,
    pub(crate) probes: Probes,
    pub(crate) catalog: Catalog,
    pub(crate) default_checks: Vec<CheckId>,
    pub(crate) eager_checks: Vec<CheckId>,
    pub(crate) log_format: LogFormat,
    pub(crate) log_filter: LogFilter,
}

/// Collects one line for each setting that is wrong.
#[derive(Default)]
struct Mistakes(Vec<String>);

impl Mistakes {
    /// Parses one setting; a mistake is noted and the parse goes on with the next.
    fn parse<T, E: Display>(
        &mut self,
        flag: &str,
        env: &str,
        value: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        parse(value).map_err(|takes| self.0.push(format!("--{flag} ({env}) {value:?}: {takes}"))).ok()
    }
}

impl Settings {
    /// Gives the arguments meaning, or a line for each mistake in them.
    pub(crate) fn parse(args: &Args) -> Result<Self, Vec<String>> {
        let mut wrong = Mistakes::default();
        let own = own_checks(args, &mut wrong);
        let probe_settings = ProbeSettings::parse_with(&given(&args.check), &own).unwrap_or_else(|bad| {
            wrong.0.extend(bad.0.iter().map(|error| format!("--check (NODEGATE_CHECK) {error}")));
            ProbeSettings::default()
        });
        let host_root =
            wrong.parse("host-root", "NODEGATE_HOST_ROOT", &args.host_root, |value| HostRoot::new(value));
        let probes = Probes::new(&probe_settings, &host_root.unwrap_or_default());
        let probes = probes.with_own(&own, &probe_settings);
        let services = services(&args.watch_service).unwrap_or_else(|takes| {
            wrong.0.push(format!("--watch-service (NODEGATE_WATCH_SERVICE) {takes}"));
            Vec::new()
        });
        let catalog = Catalog::new(probes.local_checks()).with_services(services);
        let settings = Self::parse_all(args, &mut wrong, probes, catalog);
        settings.filter(|_| wrong.0.is_empty()).ok_or(wrong.0)
    }

    fn parse_all(args: &Args, wrong: &mut Mistakes, probes: Probes, catalog: Catalog) -> Option<Self> {
        // No `?` before every setting has been looked at.
        let node_name = wrong.parse("node-name", "NODE_NAME", &args.node_name, node_name);
        let ports = ports(args, wrong);
        let startup_grace =
            wrong.parse("startup-grace", "NODEGATE_STARTUP_GRACE", &args.startup_grace, |value| {
                duration(value, Duration::ZERO, Duration::from_mins(5))
            });
        let policy = policy(args, wrong);
        let default_checks =
            wrong.parse("default-checks", "NODEGATE_DEFAULT_CHECKS", &args.default_checks, |value| {
                match checks(value, &catalog, |_| true) {
                    Ok(ids) if ids.is_empty() => Err("takes at least one check".to_owned()),
                    result => result,
                }
            });
        let eager_checks = wrong.parse("checks", "NODEGATE_CHECKS", &args.checks, |value| {
            checks(value, &catalog, |id| catalog.local(id).is_some())
        });
        let log_format = wrong.parse("log-format", "NODEGATE_LOG_FORMAT", &args.log_format, str::parse);
        let log_filter = wrong.parse("log", "RUST_LOG", &args.log, str::parse);
        Some(Self {
            node_name: node_name?,
            ports: ports?,
            startup_grace: startup_grace?,
            policy: policy?,
            probes,
            default_checks: default_checks?,
            eager_checks: eager_checks?,
            log_format: log_format?,
            log_filter: log_filter?,
            catalog,
        })
    }

    /// The local checks that run from the start: those asked for, and those that every plain request needs.
    pub(crate) fn always_running(&self) -> Vec<CheckId> {
        let mut ids: Vec<CheckId> = self.eager_checks.clone();
        ids.extend(self.default_checks.iter().filter(|id| self.catalog.local(**id).is_some()));
        // A Service's answer says whether kube-proxy works.
        if self.catalog.services().next().is_some() {
            ids.extend(self.catalog.find(KUBE_PROXY));
        }
        ids.sort_unstable();
        ids.dedup();
        ids
    }
}

fn ports(args: &Args, wrong: &mut Mistakes) -> Option<PortSettings> {
    let listen_address =
        wrong.parse("listen-address", "NODEGATE_LISTEN_ADDRESS", &args.listen_address, |value| match value {
            "::" => Ok(None),
            _ => value.parse().map(Some).map_err(|_| "takes an IP address, e.g. ::, 0.0.0.0 or 10.0.0.7"),
        });
    let listen_port = wrong.parse("listen-port", "LISTEN_PORT", &args.listen_port, |value| {
        value.parse().map_err(|_| "takes a port from 1 to 65535, or 0 for any free one")
    });
    let agent_port = wrong.parse("agent-port", "NODEGATE_AGENT_PORT", &args.agent_port, |value| {
        match value.parse() {
            // Ports are shared so that a new agent can take over: half of the probes would get the wrong protocol.
            Ok(port) if port != 0 && Some(port) == listen_port => {
                Err("takes another port than --listen-port")
            }
            Ok(port) => Ok(NonZeroU16::new(port)),
            Err(_) => Err("takes a port from 1 to 65535, or 0 for none"),
        }
    });
    let allow_from = wrong.parse("allow-from", "NODEGATE_ALLOW_FROM", &args.allow_from, str::parse);
    let metrics_addr = wrong.parse("metrics-addr", "NODEGATE_METRICS_ADDR", &args.metrics_addr, |value| {
        metrics_addr(value, [listen_port, agent_port.flatten().map(NonZeroU16::get)])
    });
    let max_connections = wrong.parse(
        "max-connections",
        "NODEGATE_MAX_CONNECTIONS",
        &args.max_connections,
        |value| match value.parse() {
            Ok(count @ 1..=100_000) => Ok(count),
            _ => Err("takes a number from 1 to 100000"),
        },
    );
    let shutdown_grace =
        wrong.parse("shutdown-grace", "NODEGATE_SHUTDOWN_GRACE", &args.shutdown_grace, |value| {
            duration(value, Duration::ZERO, Duration::from_mins(5))
        });
    Some(PortSettings {
        listen_address: listen_address?,
        listen_port: listen_port?,
        agent_port: agent_port?,
        allow_from: allow_from?,
        metrics_addr: metrics_addr?,
        max_connections: max_connections?,
        shutdown_grace: shutdown_grace?,
    })
}

/// What a list really holds: an empty variable is one that is not set, and a separator may end it.
fn given(texts: &[String]) -> Vec<&str> {
    texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty()).collect()
}

/// The Services to watch, each once.
fn services(texts: &[String]) -> Result<Vec<ServiceName>, String> {
    let mut names = Vec::new();
    for text in given(texts) {
        let name: ServiceName = text.parse().map_err(|takes| format!("{text:?}: {takes}"))?;
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.len() > MAX_SERVICES {
        return Err(format!("names {} Services: takes at most {MAX_SERVICES}", names.len()));
    }
    Ok(names)
}

fn policy(args: &Args, wrong: &mut Mistakes) -> Option<Policy> {
    // Less than 2 s would leave no time to ask the API server before giving up on it.
    let stale_after = wrong.parse("stale-after", "NODEGATE_STALE_AFTER", &args.stale_after, |value| {
        duration(value, Duration::from_secs(2), Duration::from_hours(1))
    });
    let on_stale = wrong.parse("on-stale", "NODEGATE_ON_STALE", &args.on_stale, str::parse);
    let drain_on = wrong.parse("drain-on", "NODEGATE_DRAIN_ON", &args.drain_on, str::parse);
    let conditions = wrong.parse("conditions", "NODEGATE_CONDITIONS", &args.conditions, str::parse);
    Some(Policy {
        stale_after: stale_after?,
        on_stale: on_stale?,
        drain_on: drain_on?,
        conditions: conditions?,
    })
}

fn own_checks(args: &Args, wrong: &mut Mistakes) -> OwnChecks {
    let mut own = OwnChecks::default();
    for text in given(&args.http_check) {
        wrong.parse("http-check", "NODEGATE_HTTP_CHECK", text, |text| own.add_http(text));
    }
    for text in given(&args.tcp_check) {
        wrong.parse("tcp-check", "NODEGATE_TCP_CHECK", text, |text| own.add_tcp(text));
    }
    own
}

/// A Node's name is a DNS subdomain (RFC 1123); anything else would change the meaning of the field selector.
fn node_name(value: &str) -> Result<Option<String>, &'static str> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let ends_well = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    if value.is_empty() {
        return Ok(None);
    }
    let valid = value.len() <= 253
        && value.chars().all(allowed)
        && ends_well(value.chars().next())
        && ends_well(value.chars().last());
    if valid {
        Ok(Some(value.to_owned()))
    } else {
        Err("takes the name of a Node: lower-case letters, digits, '-' and '.', at most 253")
    }
}

/// An address whose port is not one of those in use: ports are shared so that a new agent can take over, so half of the
/// requests would come to the wrong listener.
fn metrics_addr(value: &str, taken: [Option<u16>; 2]) -> Result<Option<SocketAddr>, &'static str> {
    if value.is_empty() {
        return Ok(None);
    }
    match value.parse::<SocketAddr>() {
        Ok(address) if address.port() != 0 && taken.contains(&Some(address.port())) => {
            Err("takes another port than --listen-port and --agent-port")
        }
        Ok(address) => Ok(Some(address)),
        Err(_) => Err("takes an IP address and a port, e.g. 127.0.0.1:25004 or [::]:25004"),
    }
}

fn duration(value: &str, least: Duration, most: Duration) -> Result<Duration, String> {
    match humantime::parse_duration(value) {
        Ok(duration) if (least..=most).contains(&duration) => Ok(duration),
        _ => Err(format!(
            "takes a duration from {} to {}, e.g. 500ms, 15s or 2m",
            humantime::format_duration(least),
            humantime::format_duration(most)
        )),
    }
}

/// A list of checks that exist and are of the right kind.
fn checks(list: &str, catalog: &Catalog, fits: impl Fn(CheckId) -> bool) -> Result<Vec<CheckId>, String> {
    let mut ids = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        match catalog.find(name) {
            Some(id) if !fits(id) => {
                return Err(format!("{name} needs no background run: it answers from memory"));
            }
            Some(id) if !ids.contains(&id) => ids.push(id),
            Some(_) => {}
            None => {
                let known: Vec<&str> =
                    catalog.ids().filter(|id| fits(*id)).map(|id| catalog.name(id)).collect();
                return Err(format!("there is no check {name:?}; takes a list of {}", known.join(", ")));
            }
        }
    }
    Ok(ids)
}
