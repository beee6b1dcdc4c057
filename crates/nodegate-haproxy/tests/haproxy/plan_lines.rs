//! Every line that the core can write, exact but for names, numbers and addresses.

use nodegate_haproxy::plan::names::is_dns_name;
use std::net::{IpAddr, SocketAddr};

const WHOLE: [&str; 6] = [
    "mode tcp",
    "mode http",
    "hash-type consistent",
    "http-check disable-on-404",
    "load-server-state-from-file local",
    "load-server-state-from-file none",
];

const COMMENTS: [&str; 6] = [
    "# Managed by nodegate-haproxy --prefix nodegate;",
    "# --- Generated",
    "# Each node",
    "# Drained nodes that pass",
    "# Any node, for when",
    "# HAProxy does not start without any frontend.",
];

/// Returns true if a line is one of these.
pub(crate) fn is_a_line_of_ours(line: &str) -> bool {
    let words: Vec<&str> = line.split(' ').collect();
    match words.as_slice() {
        _ if WHOLE.contains(&line) => true,
        ["#", ..] => COMMENTS.iter().any(|begins| line.starts_with(begins)) || names_a_port(&words),
        ["backend" | "default_backend", name] => is_backend(name),
        ["frontend", name] => {
            *name == "nodegate_idle" || name.strip_suffix("_frontend").is_some_and(is_backend)
        }
        ["balance", word] => word.bytes().all(|c| c.is_ascii_lowercase()),
        [""]
        | ["server-state-file-name", "/s"]
        | ["bind", "abns@nodegate_idle" | "abns@nodegate_idle/s"]
        | ["tcp-request", "connection", "reject"]
        | ["tcp-request", "connection", "reject", "unless", "nodegate_sources"] => true,
        ["bind", address, "v4v6"] => address.strip_prefix(":::").is_some_and(is_port),
        ["acl", "nodegate_sources", "src", ranges @ ..] => ranges.iter().all(|range| is_range(range)),
        ["tcp-request" | "use_backend", ..] => is_a_last_resort_rule(line),
        ["option", "httpchk", "GET", path] => path.starts_with('/'),
        ["server", name, address, rest @ ..] => {
            let plain = |word: &&str| word.bytes().all(|c| c.is_ascii_alphanumeric() || b"-._/".contains(&c));
            is_dns_name(name) && is_address(address) && rest.iter().all(plain)
        }
        _ => false,
    }
}

/// Returns true for a rule that leads to a last resort.
fn is_a_last_resort_rule(line: &str) -> bool {
    let between = |start: &str, end: &str| line.strip_prefix(start)?.strip_suffix(end);
    let chosen = " if { var(txn.nodegate_last_resort) -m bool }";
    let choice = "tcp-request content set-var(txn.nodegate_last_resort) bool(true) if { nbsrv(";
    if let Some(backend) = between(choice, ") eq 0 } !{ stopping }") {
        return is_backend(backend);
    }
    if let Some(port) = between("tcp-request content set-dst-port int(", &format!("){chosen}")) {
        return is_port(port);
    }
    let (name, rest) = line["use_backend ".len()..].split_once(chosen).unwrap_or(("", ""));
    is_backend(name) && (rest.is_empty() || rest == format!(" {{ nbsrv({name}) gt 0 }}"))
}

/// Returns true for a comment that names the Service of a port.
fn names_a_port(words: &[&str]) -> bool {
    let [_, key, "port", number] = words else { return false };
    key.split_once('/').is_some_and(|(namespace, name)| is_dns_name(namespace) && is_dns_name(name))
        && is_port(number)
}

fn is_backend(name: &str) -> bool {
    name == "nodegate_nodes" || name == "nodegate_passing" || is_last_resort(name) || is_of_service(name)
}

fn is_last_resort(name: &str) -> bool {
    let kind = name.strip_prefix("nodegate_last_resort_").or_else(|| name.strip_prefix("nodegate_any_node_"));
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'_';
    kind.is_some_and(|kind| names_a_service_port(kind) || kind.bytes().all(plain))
}

/// Returns true for `nodegate_<namespace>_<name>_<port>`.
fn is_of_service(name: &str) -> bool {
    name.strip_prefix("nodegate_").is_some_and(names_a_service_port)
}

fn names_a_service_port(words: &str) -> bool {
    words.split('_').count() == 3 && words.split('_').all(is_dns_name)
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

fn is_range(text: &str) -> bool {
    let (address, bits) = text.split_once('/').unwrap_or_default();
    address.parse::<IpAddr>().is_ok() && bits.parse::<u8>().is_ok()
}

fn is_address(text: &str) -> bool {
    text.parse::<SocketAddr>().is_ok() || text.trim_matches(['[', ']']).parse::<IpAddr>().is_ok()
}
