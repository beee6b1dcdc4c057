//! Settings that depend on each other, and the setup that they make.

use crate::apply::config_file::ConfigFile;
use crate::apply::notes::Notes;
use crate::apply::reloader::Reloader;
use crate::apply::tools::Tools;
use crate::haproxy::master::Master;
use crate::haproxy::socket::Runtime;
use crate::plan::names::Names;
use crate::plan::policy::{HealthCheck, PlanPolicy};
use crate::run::args::Args;
use crate::run::exposure::{BindGrant, by_bind, by_name};
use crate::run::pause::Pause;
use crate::run::shared::Setup;
use crate::status::StatusSettings;
use crate::watch::WatchScope;
use nodegate_program::{List, Mistakes};
use nodegate_readiness::Policy as Rules;
use socket2::{Domain, Socket, Type};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// The directory of HAProxy's configuration.
const DIRECTORY: &str = "/etc/haproxy";

/// Makes a setup of the arguments. Records the mistakes that a single argument does not show.
pub(crate) fn setup(args: Args, wrong: &mut Mistakes) -> Setup {
    let names = Names::new(&args.prefix);
    let config = args.config.clone().unwrap_or_else(|| format!("{DIRECTORY}/{}.cfg", args.prefix).into());
    let before = before(&args, &config, wrong);
    let state_dir = std::path::absolute(&args.state_dir).unwrap_or_else(|_| args.state_dir.clone());
    let notes = Notes::new(state_dir, &args.prefix);
    // The options that only show something write nothing.
    if !(args.print || args.diff || args.explain) {
        wrong.sound("config", config.display(), in_a_directory(&config));
        let made = notes.make_directory().map_err(|error| format!("can't be made: {error}"));
        wrong.sound("state-dir", args.state_dir.display(), made);
    }
    let state_file = match args.state_file.as_deref() {
        Some("none") => None,
        Some(path) => {
            wrong.sound("state-file", path, plain_path(path).and_then(|()| in_a_directory(Path::new(path))));
            Some(PathBuf::from(path))
        }
        None => {
            let path = notes.path("servers");
            wrong.sound("state-dir", path.display(), plain_path(&path.to_string_lossy()));
            Some(path)
        }
    };
    if args.master_socket.is_some() && args.reload_command.is_some() {
        wrong.line("--master-socket and --reload-command: only one of them can do the reload");
    }
    let (bind, named) = match &args.bind {
        Some(List(binds)) if !binds.is_empty() => by_name(binds),
        _ => (everywhere(), Vec::new()),
    };
    for BindGrant(_, name) in args.bind_allow.iter().flat_map(|list| &list.0) {
        if name != "*" && !named.iter().any(|(known, _)| known == name) {
            wrong.line(format!("--bind-allow: no address of --bind has the name {name}"));
        }
    }
    let publish_status = publish_status(&args, &bind, &named, wrong);
    let tools = Tools {
        reloader: reloader(&args),
        runtime: runtime(&args),
        file: ConfigFile::new(config),
        notes,
        template: args.template,
        state_file,
        haproxy: args.haproxy,
        before,
        policy: PlanPolicy {
            names,
            publish: args.publish,
            class: args.load_balancer_class,
            mode: args.mode,
            balance: args.balance,
            address_types: args.address_types.0,
            bind,
            named,
            bind_allow: args.bind_allow.unwrap_or_default().0.into_iter().map(|b| (b.0, b.1)).collect(),
            ports: args.ports.unwrap_or_default().0.into_iter().map(|p| (p.0, p.1)).collect(),
            reserved: args.reserved_ports.0.into_iter().collect(),
            check: HealthCheck {
                port: args.check_port,
                path: args.check_path,
                inter_ms: u64::try_from(args.check_interval.as_millis()).unwrap_or(u64::MAX),
                agent_port: Some(args.agent_check_port).filter(|port| *port != 0),
                ..PlanPolicy::default().check
            },
            local_check: args.local_check,
            max_removal: args.max_removal,
            last_resort: args.last_resort,
        },
    };
    let scope = WatchScope {
        node_selector: args.node_selector.unwrap_or_default(),
        service_selector: args.service_selector.unwrap_or_default(),
        namespaces: args.namespaces.unwrap_or_default().0,
        rules: Rules { drain_on: args.drain_on, ..Rules::default() },
        ..WatchScope::default()
    };
    Setup { scope, tools, pause: Pause::new(args.pause_file), publish_status }
}

/// Returns the settings of `--publish-status`. A Service must not be left without an address.
fn publish_status(
    args: &Args,
    bind: &[IpAddr],
    named: &[(String, Vec<IpAddr>)],
    wrong: &mut Mistakes,
) -> Option<StatusSettings> {
    let List(given) = args.publish_status.as_ref().filter(|given| !given.0.is_empty())?;
    let addresses = by_bind(given);
    for (name, _) in &addresses.named {
        if !named.iter().any(|(known, _)| known == name) {
            wrong.setting("publish-status", format_args!("{name:?}: no address of --bind has this name"));
        }
    }
    let everywhere: &[IpAddr] = &[Ipv6Addr::UNSPECIFIED.into()];
    let plain = match (bind, named) {
        // All Services listen on named addresses.
        ([], [_, ..]) => None,
        ([], []) => Some(everywhere),
        (bind, _) => Some(bind),
    };
    for listens_on in plain.into_iter().chain(named.iter().map(|(_, addresses)| addresses.as_slice())) {
        if addresses.of(listens_on, named).is_empty() {
            let name = named.iter().find(|(_, addresses)| addresses == listens_on);
            let which = name.map_or("without a name".to_owned(), |(name, _)| format!("for {name}="));
            let what = "that stands for all addresses of this host, and --bind has no other";
            wrong.setting("publish-status", format_args!("has no address {which}, {what}"));
        }
    }
    Some(StatusSettings { addresses, lease: args.lease.clone() })
}

/// Returns the default addresses to listen on. On a host with both families the list is empty, for all of
/// both.
fn everywhere() -> Vec<IpAddr> {
    let has_ipv6 = Socket::new(Domain::IPV6, Type::STREAM, None).is_ok();
    if has_ipv6 { Vec::new() } else { vec![Ipv4Addr::UNSPECIFIED.into()] }
}

fn reloader(args: &Args) -> Reloader {
    let patience = args.reload_timeout;
    let command: Vec<String> = args
        .reload_command
        .iter()
        .flat_map(|command| command.split_whitespace())
        .map(str::to_owned)
        .collect();
    match &args.master_socket {
        Some(socket) => Reloader::Master(Master { socket: socket.clone(), patience }),
        None if command.is_empty() => Reloader::Nobody,
        None => Reloader::Command(command, patience),
    }
}

fn runtime(args: &Args) -> Option<Runtime> {
    let worker = args.runtime_socket.clone().map(Runtime::Worker);
    worker.or_else(|| args.master_socket.clone().map(Runtime::Master))
}

/// Returns the files that HAProxy loads before the generated one. nodegate-haproxy must not write any of
/// them.
fn before(args: &Args, config: &Path, wrong: &mut Mistakes) -> Vec<PathBuf> {
    if args.before.as_slice() == [Path::new("none")] {
        return Vec::new();
    }
    for path in &args.before {
        let there = path.exists().then_some(()).ok_or("takes files or directories that exist, or none");
        wrong.sound("before", path.display(), there);
        if std::fs::canonicalize(path)
            .is_ok_and(|path| std::fs::canonicalize(config).is_ok_and(|ours| ours == path))
        {
            let text = "is the operator's own (--before) and is never written; --before none if all of it is to be written";
            wrong.value("config", config.display(), text);
        }
    }
    args.before.clone()
}

/// Checks that a file that is to be written is in a directory that exists.
fn in_a_directory(path: &Path) -> Result<(), &'static str> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if path.file_name().is_some() && parent.is_none_or(Path::is_dir) {
        Ok(())
    } else {
        Err("takes a file in a directory that exists")
    }
}

/// Checks that HAProxy reads a path as one word, because the path is in the configuration.
fn plain_path(path: &str) -> Result<(), &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ':' | '@');
    if path.starts_with('/') && path.chars().all(plain) {
        Ok(())
    } else {
        Err("takes an absolute path of letters, digits and / . _ - + : @, or none")
    }
}
