//! Settings that depend on each other, and the setup that they make.

use crate::apply::applier::Tools;
use crate::apply::config_file::ConfigFile;
use crate::haproxy::master::Master;
use crate::plan::policy::{MaxRemoval, PlanPolicy};
use crate::plan::render::Sections;
use crate::plan::status::StatusAddresses;
use crate::run::args::Args;
use crate::run::values::{by_name, is_everywhere};
use crate::status::StatusSettings;
use crate::watch::WatchScope;
use nodegate_program::{List, Mistakes};
use nodegate_readiness::Policy as Rules;
use socket2::{Domain, Socket, Type};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// All settings.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) scope: WatchScope,
    pub(crate) policy: PlanPolicy,
    pub(crate) tools: Tools,
    pub(crate) reload_interval: Duration,
    pub(crate) publish_status: Option<StatusSettings>,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) explain: bool,
}

/// Makes a setup of the arguments. Records the mistakes that a single argument does not show.
pub(crate) fn setup(args: Args, wrong: &mut Mistakes) -> Setup {
    let config = std::path::absolute(&args.config).unwrap_or_else(|_| args.config.clone());
    wrong.sound("config", args.config.display(), usable(&config));
    let (bind, named) = match &args.bind {
        Some(List(binds)) if !binds.is_empty() => by_name(binds),
        _ => (everywhere(), Vec::new()),
    };
    for (at, forward) in args.forward.iter().enumerate() {
        if args.forward.iter().take(at).any(|other| other.name == forward.name) {
            wrong.setting("forward", format_args!("has two of the name {}", forward.name));
        }
    }
    let policy = PlanPolicy {
        class: args.load_balancer_class,
        networks: args.node_networks.unwrap_or_default().0,
        bind,
        named,
        ports: args.ports.unwrap_or_default().0.into_iter().map(|grant| (grant.0, grant.1)).collect(),
        forwards: args.forward,
        check: args.check.clone(),
        max_removal: MaxRemoval(args.max_removal),
        last_resort: args.last_resort,
    };
    let publish_status = args.publish_status.filter(|given| !given.0.is_empty()).map(|List(given)| {
        let (plain, named) = by_name(&given);
        let settings = StatusSettings { addresses: StatusAddresses { plain, named }, lease: args.lease };
        ensure_addresses(&settings, &policy, wrong);
        settings
    });
    let command = args.reload_command.unwrap_or_default();
    let tools = Tools {
        config: ConfigFile::new(config),
        template: args.template,
        haproxy: Some(args.haproxy).filter(|program| program != Path::new("none")),
        master: Master { socket: args.master_socket },
        reload_command: command.split_whitespace().map(str::to_owned).collect(),
        sections: Sections { check: args.check, timeouts: args.timeouts.0 },
    };
    let scope = WatchScope {
        node_selector: args.node_selector.unwrap_or_default(),
        namespaces: args.namespaces.unwrap_or_default().0,
        rules: Rules { drain_on: args.drain_on, ..Rules::default() },
        ..WatchScope::default()
    };
    let Args { reload_interval, listen, explain, .. } = args;
    Setup { scope, policy, tools, reload_interval, publish_status, listen, explain }
}

/// Checks that no Service would be left without an address in its status.
fn ensure_addresses(settings: &StatusSettings, policy: &PlanPolicy, wrong: &mut Mistakes) {
    let PlanPolicy { bind, named, .. } = policy;
    for (name, _) in &settings.addresses.named {
        if !named.iter().any(|(known, _)| known == name) {
            wrong.setting("publish-status", format_args!("{name:?}: no address of --bind has this name"));
        }
    }
    let everywhere: &[IpAddr] = &[Ipv6Addr::UNSPECIFIED.into()];
    let plain = match (bind.as_slice(), named.as_slice()) {
        // All Services listen on named addresses.
        ([], [_, ..]) => None,
        ([], []) => Some(everywhere),
        (bind, _) => Some(bind),
    };
    for listens_on in plain.into_iter().chain(named.iter().map(|(_, addresses)| addresses.as_slice())) {
        if is_everywhere(listens_on) && settings.addresses.of(listens_on, policy).is_empty() {
            let name = named.iter().find(|(_, addresses)| addresses == listens_on);
            let which = name.map_or("without a name".to_owned(), |(name, _)| format!("for {name}="));
            let what = "that stands for all addresses of this host, and --bind has no other";
            wrong.setting("publish-status", format_args!("has no address {which}, {what}"));
        }
    }
}

/// Returns the default addresses to listen on. On a host with both families the list is empty, for all of
/// both.
fn everywhere() -> Vec<IpAddr> {
    let has_ipv6 = Socket::new(Domain::IPV6, Type::STREAM, None).is_ok();
    if has_ipv6 { Vec::new() } else { vec![Ipv4Addr::UNSPECIFIED.into()] }
}

/// Checks that the file is in a directory that exists, and that HAProxy reads its path as one word, because the
/// path of the state file is in the configuration.
fn usable(path: &Path) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ':' | '@');
    if !path.to_string_lossy().chars().all(plain) {
        return Err("takes a path of letters, digits and / . _ - + : @");
    }
    if path.file_name().is_some() && path.parent().is_some_and(Path::is_dir) {
        Ok(())
    } else {
        Err("takes a file in a directory that exists")
    }
}
