//! Settings that depend on each other, and the settings for the parts of the agent.

use crate::args::Args;
use crate::assembly::AgentSettings;
use crate::memory::StateFile;
use crate::ports::PortSettings;
use nodegate_local_checks::{ApiServerSettings, CheckSettings, LocalChecks, OwnChecks};
use nodegate_program::Mistakes;
use nodegate_readiness::check::KUBE_PROXY;
use nodegate_readiness::probers::ToldSettings;
use nodegate_readiness::{Catalog, CheckId, Policy, ServiceName};
use nodegate_server::{Networks, ProberSettings};
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU16;

/// The maximum number of Services: each costs the API server a watch from every node.
const MAX_SERVICES: usize = 16;

/// All settings of the agent.
pub(crate) struct Settings {
    pub(crate) agent: AgentSettings,
    pub(crate) ports: PortSettings,
    pub(crate) state_file: Option<StateFile>,
    pub(crate) local_checks: LocalChecks,
    pub(crate) traffic_ports: Vec<u16>,
}

impl Settings {
    /// Derives the settings from the arguments, and adds mistakes to `wrong`.
    pub(crate) fn new(args: Args, wrong: &mut Mistakes) -> Self {
        let ports = ports(&args, wrong);
        let own = own_checks(&args, wrong);
        let set = CheckSettings::parse_with(&args.check_settings, &own).unwrap_or_else(|bad| {
            bad.0.iter().for_each(|error| wrong.setting("check-settings", error));
            CheckSettings::default()
        });
        let apiserver = ApiServerSettings { url: args.apiserver, exclude: args.apiserver_exclude };
        let local_checks = LocalChecks::new(&set, &args.host_root, &apiserver).with_own(&own, &set);
        let services = services(args.watch_service, wrong);
        let catalog = Catalog::new(local_checks.for_catalog()).with_services(services);
        let default_checks = checks(&args.default_checks, &catalog, |_| true).and_then(at_least_one);
        let default_checks = wrong.sound("default-checks", &args.default_checks, default_checks);
        let named = args.background_checks.unwrap_or_default();
        let at_start = wrong.sound("background-checks", &named, local_checks_of(&named, &catalog));
        let on_demand = wrong.sound("on-demand", &args.on_demand, on_demand(&args.on_demand, &catalog));
        let catalog = beginning(catalog, at_start, &default_checks, &on_demand);
        let policy = Policy {
            stale_after: args.stale_after,
            on_stale: args.on_stale,
            on_unknown: args.on_unknown,
            unknown_after: args.unknown_after,
            drain_on: args.drain_on,
            conditions: args.conditions,
        };
        let told = ToldSettings {
            fall: args.told_fall,
            rise: args.told_rise,
            interval_ms: args
                .told_interval
                .map(|interval| u64::try_from(interval.as_millis()).unwrap_or(u64::MAX)),
            probers: args.told_probers,
        };
        let balancers = args.balancers.unwrap_or(Networks::EVERYBODY);
        Self {
            agent: AgentSettings {
                // `None` is not an error here: the agent starts, and every answer reports it.
                node_name: args.node_name,
                policy,
                catalog,
                default_checks,
                probers: ProberSettings { balancers, told, traffic: None },
                startup_grace: args.startup_grace,
            },
            ports,
            state_file: args.state_dir.as_deref().map(StateFile::in_directory),
            local_checks,
            traffic_ports: args.traffic_port.0,
        }
    }
}

/// Marks the checks that run from the start: the given ones and those that every plain request needs.
fn beginning(
    catalog: Catalog,
    mut at_start: Vec<CheckId>,
    default_checks: &[CheckId],
    on_demand: &[CheckId],
) -> Catalog {
    at_start.extend(default_checks);
    // A Service's answer reports the health of kube-proxy.
    if catalog.services().next().is_some() {
        at_start.extend(catalog.find(KUBE_PROXY));
    }
    catalog.beginning(&at_start, on_demand)
}

/// Returns the settings of the ports. Two listeners of this agent must not have one port: ports are shared so
/// that a new agent can take over, so half of the requests would reach the wrong listener.
fn ports(args: &Args, wrong: &mut Mistakes) -> PortSettings {
    let agent_check_port = NonZeroU16::new(args.agent_check_port);
    if agent_check_port.is_some() && args.agent_check_port == args.listen_port {
        wrong.value("agent-check-port", args.agent_check_port, "takes another port than --listen-port");
    }
    if let Some(address) = args.metrics_addr
        && address.port() != 0
        && [args.listen_port, args.agent_check_port].contains(&address.port())
    {
        wrong.value("metrics-addr", address, "takes another port than --listen-port and --agent-check-port");
    }
    PortSettings {
        // All addresses of IPv6 mean those of both families.
        listen_address: Some(args.listen_address)
            .filter(|address| *address != IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        listen_port: args.listen_port,
        agent_check_port,
        allow_from: args.allow_from.clone().unwrap_or(Networks::EVERYBODY),
        accept_proxy: args.accept_proxy,
        metrics_addr: args.metrics_addr,
        max_connections: args.max_connections,
        shutdown_grace: args.shutdown_grace,
    }
}

/// Returns the Services to watch, each once.
fn services(given: Vec<ServiceName>, wrong: &mut Mistakes) -> Vec<ServiceName> {
    let mut names = Vec::new();
    for name in given {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.len() > MAX_SERVICES {
        let what = format_args!("names {} Services: takes at most {MAX_SERVICES}", names.len());
        wrong.setting("watch-service", what);
    }
    names
}

fn own_checks(args: &Args, wrong: &mut Mistakes) -> OwnChecks {
    let mut own = OwnChecks::default();
    for text in &args.http_check {
        wrong.sound("http-check", text, own.add_http(text));
    }
    for text in &args.tcp_check {
        wrong.sound("tcp-check", text, own.add_tcp(text));
    }
    own
}

/// Parses the checks that a request may start.
fn on_demand(text: &str, catalog: &Catalog) -> Result<Vec<CheckId>, String> {
    match text.trim() {
        "all" => Ok(catalog.local_ids().collect()),
        "none" => Ok(Vec::new()),
        list => local_checks_of(list, catalog)
            .map_err(|bad| format!("takes all, none or a list of checks; {bad}")),
    }
}

fn local_checks_of(list: &str, catalog: &Catalog) -> Result<Vec<CheckId>, String> {
    checks(list, catalog, |id| catalog.local(id).is_some())
}

/// Parses a list of checks that exist and are of the right kind.
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

fn at_least_one(checks: Vec<CheckId>) -> Result<Vec<CheckId>, String> {
    if checks.is_empty() { Err("takes at least one check".to_owned()) } else { Ok(checks) }
}
