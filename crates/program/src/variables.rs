//! The variables of the environment that look like settings.

use clap::Command;
use std::ffi::OsStr;

/// The prefixes of the programs' variables. The first that fits is that of the variable.
const PREFIXES: [&str; 3] = ["NODEGATE_GATE_", "NODEGATE_HAPROXY_", "NODEGATE_"];

/// Returns the variables that have the program's prefix and that no setting reads. The kubelet's variables of a Service
/// (`<SERVICE>_SERVICE_HOST`, `<SERVICE>_PORT_…`) are none of them.
pub(crate) fn unread(command: &Command, mut variables: Vec<String>) -> Vec<String> {
    let settings = settings(command);
    let prefix = |name: &str| PREFIXES.into_iter().find(|prefix| name.starts_with(prefix));
    let own = PREFIXES.into_iter().find(|prefix| settings.iter().any(|name| name.starts_with(prefix)));
    let services = variables.iter().filter_map(|name| name.strip_suffix("_SERVICE_HOST"));
    let services: Vec<_> =
        services.flat_map(|name| [format!("{name}_SERVICE_"), format!("{name}_PORT")]).collect();
    variables.retain(|name| {
        own.is_some()
            && prefix(name) == own
            && !settings.contains(&name.as_str())
            && !services.iter().any(|service| name.starts_with(service))
    });
    variables.sort();
    variables
}

/// Returns what to do about a variable that no setting reads.
pub(crate) fn remedy(command: &Command, name: &str) -> String {
    let meant = settings(command).into_iter().find(|known| strsim::osa_distance(name, known) <= 2);
    meant.map_or("unset it; --help lists all".to_owned(), |meant| format!("did you mean {meant}?"))
}

/// Returns the variables of the command's settings, and of its commands' settings.
fn settings(command: &Command) -> Vec<&str> {
    let own = command.get_arguments().filter_map(|arg| arg.get_env().and_then(OsStr::to_str));
    own.chain(command.get_subcommands().flat_map(settings)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    fn named(own: &'static str, variables: &[&str]) -> Vec<String> {
        let setting = Arg::new("a").long("a").env(own);
        let shared = Arg::new("b").long("b").env("NODEGATE_LOG_FORMAT");
        let command = Command::new("program").arg(shared).subcommand(Command::new("below").arg(setting));
        unread(&command, variables.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_variable_that_no_setting_reads_is_named() {
        let agent = |variables: &[&str]| named("NODEGATE_ON_STALE", variables);
        assert_eq!(agent(&["NODEGATE_ON_STAEL", "NODEGATE_LOG_FORMAT"]), ["NODEGATE_ON_STAEL"]);
        let others = ["NODEGATE_ON_STALE", "NODEGATE_HAPROXY_BIND", "NODEGATE_GATE_HOLD", "NODE"];
        assert_eq!(agent(&others), [""; 0]);
        let gate = |variables: &[&str]| named("NODEGATE_GATE_HOLD", variables);
        assert_eq!(gate(&["NODEGATE_GATE_HODL", "NODEGATE_ON_STAEL"]), ["NODEGATE_GATE_HODL"]);
        let of_service =
            ["NODEGATE_SERVICE_HOST", "NODEGATE_SERVICE_PORT", "NODEGATE_PORT_80_TCP", "NODEGATE_PORT"];
        assert_eq!(agent(&of_service), [""; 0]);
        assert_eq!(agent(&["NODEGATE_PORT"]), ["NODEGATE_PORT"], "there is no such Service");
        let command = Command::new("program").arg(Arg::new("a").env("NODEGATE_ON_STALE"));
        assert_eq!(remedy(&command, "NODEGATE_ON_STAEL"), "did you mean NODEGATE_ON_STALE?");
        assert_eq!(remedy(&command, "NODEGATE_PORT"), "unset it; --help lists all");
    }
}
