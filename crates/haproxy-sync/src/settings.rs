//! Settings, parsed once and valid from there on.

use crate::args::Args;
use nodegate_haproxy_sync::applier::{Reloader, Tools};
use nodegate_haproxy_sync::config_file::ConfigFile;
use nodegate_haproxy_sync::master::Master;
use nodegate_haproxy_sync::names::is_dns_name;
use nodegate_haproxy_sync::policy::{Check, LocalCheck, MaxRemoval, Policy};
use nodegate_haproxy_sync::socket::Runtime;
use nodegate_haproxy_sync::sync::Setup;
use nodegate_haproxy_sync::watch::Scope;
use nodegate_logging::{LogFilter, LogFormat};
use nodegate_readiness::Policy as Rules;
use std::fmt::Display;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// Everything nodegate-haproxy can be told.
pub(crate) struct Settings {
    pub(crate) setup: Setup,
    pub(crate) listen: Option<SocketAddr>,
    pub(crate) print: bool,
    pub(crate) once: bool,
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
        value: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let env = format!("NODEGATE_HAPROXY_{}", flag.to_uppercase().replace('-', "_"));
        self.named(flag, &env, value, parse)
    }

    fn named<T, E: Display>(
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
        let settings = Self::parse_all(args, &mut wrong);
        settings.filter(|_| wrong.0.is_empty()).ok_or(wrong.0)
    }

    fn parse_all(args: &Args, wrong: &mut Mistakes) -> Option<Self> {
        // No `?` before every setting has been looked at.
        let policy = policy(args, wrong);
        let scope = scope(args, wrong);
        let listen = wrong.parse("listen", &args.listen, |value| match value {
            "none" => Ok(None),
            _ => value
                .parse()
                .map(Some)
                .map_err(|_| "takes an address and a port, e.g. 127.0.0.1:25003, or none"),
        });
        let patience = wrong.parse("reload-timeout", &args.reload_timeout, |value| {
            duration(value, Duration::from_secs(1), Duration::from_mins(2))
        });
        let config = wrong.parse("config", &args.config, |value| {
            // Nothing is written by --print.
            if args.print { Ok(PathBuf::from(value)) } else { existing_directory(value) }
        });
        let state_file = wrong.parse("state-file", &args.state_file, |value| match value {
            "none" => Ok(None),
            "" => {
                let absolute = config.as_ref().and_then(|config| std::path::absolute(config).ok());
                absolute.map(|config| plain_path(&format!("{}.servers", config.display()))).transpose()
            }
            _ => plain_path(value).and_then(|_| existing_directory(value)).map(Some),
        });
        let log_format = wrong.named("log-format", "NODEGATE_LOG_FORMAT", &args.log_format, str::parse);
        let log_filter = wrong.named("log", "RUST_LOG", &args.log, str::parse);
        if !args.master_socket.is_empty() && !args.reload_command.is_empty() {
            wrong
                .0
                .push("--master-socket and --reload-command: only one of them can do the reload".to_owned());
        }
        let tools = Tools {
            file: ConfigFile::new(config?),
            template: path(&args.template),
            state_file: state_file?,
            haproxy: PathBuf::from(&args.haproxy),
            before: args.before.iter().filter_map(|file| path(file)).collect(),
            reloader: reloader(args, patience?),
            runtime: runtime(args),
            policy: policy?,
        };
        Some(Self {
            setup: Setup { scope: scope?, tools },
            listen: listen?,
            print: args.print,
            once: args.once,
            log_format: log_format?,
            log_filter: log_filter?,
        })
    }
}

fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

fn reloader(args: &Args, patience: Duration) -> Reloader {
    match path(&args.master_socket) {
        Some(socket) => Reloader::Master(Master { socket, patience }),
        None if args.reload_command.trim().is_empty() => Reloader::Nobody,
        None => {
            Reloader::Command(args.reload_command.split_whitespace().map(str::to_owned).collect(), patience)
        }
    }
}

fn runtime(args: &Args) -> Option<Runtime> {
    let worker = path(&args.runtime_socket).map(Runtime::Worker);
    worker.or_else(|| path(&args.master_socket).map(Runtime::Master))
}

fn policy(args: &Args, wrong: &mut Mistakes) -> Option<Policy> {
    let mode = wrong.parse("mode", &args.mode, str::parse);
    let balance = wrong.parse("balance", &args.balance, str::parse);
    let bind = wrong.parse("bind", &args.bind, |value| list(value, "IP addresses, e.g. 10.0.0.5,fd00::5"));
    let reserved = wrong.parse("reserved-ports", &args.reserved_ports, |value| {
        list(value, "ports, e.g. 22,8404").map(|ports| ports.into_iter().collect())
    });
    let address_types = wrong.parse("address-types", &args.address_types, |value| {
        let types: Vec<String> = list(value, "types of node addresses")?;
        let known = |kind: &String| matches!(kind.as_str(), "InternalIP" | "ExternalIP");
        if types.is_empty() || !types.iter().all(known) {
            return Err("takes a list of InternalIP and ExternalIP".to_owned());
        }
        Ok(types)
    });
    let local_check = wrong.parse("local-check", &args.local_check, |value| match value {
        "auto" => Ok(LocalCheck::Auto),
        "nodegate" => Ok(LocalCheck::Nodegate),
        _ => Err("takes auto or nodegate"),
    });
    let max_removal =
        wrong.parse("max-removal", &args.max_removal, |value| match value.trim_end_matches('%').parse() {
            Ok(percent @ 0..=100) => Ok(MaxRemoval(percent)),
            _ => Err("takes a percentage from 0 to 100"),
        });
    let check = check(args, wrong);
    Some(Policy {
        mode: mode?,
        balance: balance?,
        address_types: address_types?,
        bind: bind?,
        reserved: reserved?,
        check: check?,
        local_check: local_check?,
        max_removal: max_removal?,
    })
}

fn check(args: &Args, wrong: &mut Mistakes) -> Option<Check> {
    let port = wrong.parse("check-port", &args.check_port, |value| match value.parse() {
        Ok(port @ 1..) => Ok(port),
        _ => Err("takes a port from 1 to 65535"),
    });
    let path = wrong.parse("check-path", &args.check_path, |value| {
        let plain =
            value.bytes().all(|c| c.is_ascii_graphic() && !matches!(c, b'"' | b'\'' | b'\\' | b'#' | b'$'));
        if value.starts_with('/') && plain && value.len() <= 1000 {
            Ok(value.to_owned())
        } else {
            Err("takes a path that begins with / and holds no space, quote, backslash, # or $")
        }
    });
    let inter_ms = wrong.parse("check-interval", &args.check_interval, |value| {
        duration(value, Duration::from_millis(100), Duration::from_mins(5))
            .map(|inter| u64::try_from(inter.as_millis()).unwrap_or(u64::MAX))
    });
    let agent_port = wrong.parse("agent-port", &args.agent_port, |value| match value.parse::<u16>() {
        Ok(0) => Ok(None),
        Ok(port) => Ok(Some(port)),
        Err(_) => Err("takes a port from 1 to 65535, or 0 for none"),
    });
    Some(Check { port: port?, path: path?, inter_ms: inter_ms?, rise: 1, fall: 2, agent_port: agent_port? })
}

fn scope(args: &Args, wrong: &mut Mistakes) -> Option<Scope> {
    let namespaces = wrong.parse("namespaces", &args.namespaces, |value| {
        let names: Vec<String> = list(value, "namespaces")?;
        if names.iter().all(|name| is_dns_name(name)) && names.len() <= 32 {
            Ok(names)
        } else {
            Err("takes at most 32 names of namespaces".to_owned())
        }
    });
    let selector = |value: &str| {
        if value.len() <= 1000 && !value.chars().any(char::is_control) {
            Ok(value.to_owned())
        } else {
            Err("takes a label selector, e.g. team=web,tier!=test")
        }
    };
    let service_selector = wrong.parse("service-selector", &args.service_selector, selector);
    let node_selector = wrong.parse("node-selector", &args.node_selector, selector);
    let drain_on = wrong.parse("drain-on", &args.drain_on, str::parse);
    Some(Scope {
        node_selector: node_selector?,
        service_selector: service_selector?,
        namespaces: namespaces?,
        rules: Rules { drain_on: drain_on?, ..Rules::default() },
        ..Scope::default()
    })
}

fn list<T: FromStr>(value: &str, of_what: &str) -> Result<Vec<T>, String> {
    let words = value.split(',').map(str::trim).filter(|word| !word.is_empty());
    words.map(str::parse).collect::<Result<_, _>>().map_err(|_| format!("takes a list of {of_what}"))
}

/// A file that is to be written, in a directory that is there.
fn existing_directory(value: &str) -> Result<PathBuf, &'static str> {
    let path = PathBuf::from(value);
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if path.file_name().is_some() && parent.is_none_or(std::path::Path::is_dir) {
        Ok(path)
    } else {
        Err("takes a file in a directory that exists")
    }
}

/// Its name stands in the configuration, so it must be one that HAProxy reads as one word.
fn plain_path(value: &str) -> Result<PathBuf, &'static str> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+' | ':' | '@');
    if value.starts_with('/') && value.chars().all(plain) {
        Ok(PathBuf::from(value))
    } else {
        Err("takes an absolute path of letters, digits and / . _ - + : @, or none")
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
