//! Settings that depend on each other, and the setup that they make.

use crate::apply::applier::Tools;
use crate::apply::config_file::ConfigFile;
use crate::haproxy::master::Master;
use crate::plan::ingress::Ingress;
use crate::plan::policy::PlanPolicy;
use crate::plan::render::Sections;
use crate::run::args::Args;
use crate::run::values::by_name;
use crate::status::lease::LeaseName;
use crate::watch::WatchScope;
use nodegate_program::Mistakes;
use nodegate_readiness::Policy as Rules;
use socket2::{Domain, Socket, Type};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// All settings.
#[derive(Debug)]
pub(crate) struct Setup {
    pub(crate) scope: WatchScope,
    pub(crate) policy: PlanPolicy,
    pub(crate) tools: Tools,
    pub(crate) reload_interval: Duration,
    /// The addresses of `--publish-status`. Empty if nothing is to be written to the cluster.
    pub(crate) publish_status: Vec<Ingress>,
    pub(crate) lease: LeaseName,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) explain: bool,
}

/// Makes a setup of the arguments. Records the mistakes that a single argument does not show.
pub(crate) fn setup(args: Args, wrong: &mut Mistakes) -> Setup {
    let config = std::path::absolute(&args.config).unwrap_or_else(|_| args.config.clone());
    wrong.sound("config", args.config.display(), usable(&config));
    let mut bind = by_name(args.bind.unwrap_or_default().0);
    // Without IPv6, no socket takes all addresses of both families.
    if bind.is_empty() && Socket::new(Domain::IPV6, Type::STREAM, None).is_err() {
        bind.push((String::new(), vec![Ipv4Addr::UNSPECIFIED.into()]));
    }
    for (at, forward) in args.forward.iter().enumerate() {
        if args.forward.iter().take(at).any(|other| other.name == forward.name) {
            wrong.setting("forward", format_args!("has two of the name {}", forward.name));
        }
    }
    let policy = PlanPolicy {
        class: args.load_balancer_class,
        networks: args.node_networks.unwrap_or_default().0,
        bind,
        ports: args.ports.unwrap_or_default().0.into_iter().map(|grant| (grant.0, grant.1)).collect(),
        forwards: args.forward,
        check: args.check.clone(),
        max_removal: args.max_removal,
        last_resort: args.last_resort,
    };
    let command = args.reload_command.unwrap_or_default();
    let tools = Tools {
        config: ConfigFile::new(config),
        template: args.template,
        haproxy: Some(args.haproxy).filter(|program| program != Path::new("none")),
        master: Master { socket: args.master_socket },
        reload_command: command.split_whitespace().map(str::to_owned).collect(),
        sections: Sections { check: args.check, timeouts: args.timeouts },
    };
    let scope = WatchScope {
        node_selector: args.node_selector.unwrap_or_default(),
        namespaces: args.namespaces.unwrap_or_default().0,
        rules: Rules { drain_on: args.drain_on, ..Rules::default() },
    };
    let Args { reload_interval, listen, lease, explain, .. } = args;
    let publish_status = args.publish_status.unwrap_or_default().0;
    Setup { scope, policy, tools, reload_interval, publish_status, lease, listen, explain }
}

/// Checks that the file is in a directory that exists, and that HAProxy reads its path as one word, because the
/// path of the state file is in the configuration.
fn usable(path: &Path) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ':' | '@');
    let is_plain = path.to_string_lossy().chars().all(plain);
    let is_usable = is_plain && path.file_name().is_some() && path.parent().is_some_and(Path::is_dir);
    let takes = "takes a path of letters, digits and / . _ - + : @ in a directory that exists";
    if is_usable { Ok(()) } else { Err(takes) }
}
