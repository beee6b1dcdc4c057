//! The address of the agent that `nodegate status`, `nodegate wait` and the handover query.

use crate::agent_ports::{LISTEN_ADDRESS, LISTEN_PORT, METRICS_ADDR};
use nodegate_program::{HTTP_PORT, Mistakes};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

const TAKES: &str =
    "takes HOST, HOST:PORT or http://HOST:PORT, e.g. 10.0.0.11, [fd00::7]:25001 or worker-1:25001";

/// A host, by name or address, and a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AgentAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Default for AgentAddress {
    fn default() -> Self {
        Self { host: Ipv4Addr::LOCALHOST.to_string(), port: HTTP_PORT }
    }
}

impl AgentAddress {
    /// Returns the address by the environment of this process, and adds a mistake to `wrong`.
    pub(crate) fn from_args(addr: Option<&str>, wrong: &mut Mistakes) -> Self {
        let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self::resolve(addr, env).unwrap_or_else(|line| {
            wrong.line(line);
            Self::default()
        })
    }

    /// Returns the given address, or else the address of the agent on this machine by the settings in the
    /// environment. The error is a line for the user.
    pub(crate) fn resolve(addr: Option<&str>, env: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let port = match env(LISTEN_PORT).map(|port| (port.parse(), port)) {
            None => Ok(HTTP_PORT),
            Some((Ok(port @ 1..), _)) => Ok(port),
            Some((_, port)) => {
                Err(format!("{LISTEN_PORT} {port:?}: is no port to ask; give --addr with a port"))
            }
        };
        if let Some(asked) = addr {
            return Self::parse(asked, port)
                .map_err(|error| error.unwrap_or(format!("--addr {asked:?}: {TAKES}")));
        }
        let named = [METRICS_ADDR, LISTEN_ADDRESS].into_iter().find_map(|name| {
            // `::` means all addresses of both families, and so includes the IPv4 loopback, even without
            // IPv6.
            env(name).filter(|value| value != "::").map(|value| (name, value))
        });
        let Some((name, value)) = named else {
            return Ok(Self { port: port?, ..Self::default() });
        };
        Self::parse(&value, port).map_err(|error| error.unwrap_or(format!("{name} {value:?}: {TAKES}")))
    }

    /// Parses an address. The error is `None` if the text is wrong, and the port's error if the text needs
    /// the default port.
    fn parse(text: &str, default_port: Result<u16, String>) -> Result<Self, Option<String>> {
        let text = text.strip_prefix("http://").unwrap_or(text);
        let text = text.strip_suffix('/').unwrap_or(text);
        if let Ok(address) = SocketAddr::from_str(text) {
            return if address.port() == 0 { Err(None) } else { Ok(Self::at(address.ip(), address.port())) };
        }
        let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = IpAddr::from_str(bare) {
            return Ok(Self::at(ip, default_port.map_err(Some)?));
        }
        let (host, port) = match text.rsplit_once(':') {
            Some((host, port)) => (host, port.parse().ok().filter(|port| *port != 0).ok_or(None)?),
            None => (text, default_port.map_err(Some)?),
        };
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if host.is_empty() || !host.chars().all(is_name) {
            return Err(None);
        }
        Ok(Self { host: host.to_owned(), port })
    }

    /// Returns the error of a query for the user, who gave the address with `--addr` if `is_asked`.
    pub(crate) fn failed(&self, is_asked: bool, error: impl fmt::Display) -> String {
        let (flag, hint) = if is_asked {
            ("--addr ", "")
        } else {
            ("", " (from the environment, or the default; set LISTEN_PORT, or give --addr)")
        };
        format!("{flag}http://{self}{hint}: {error}")
    }

    /// Returns an address to query for one to listen on: loopback if it means all addresses.
    pub(crate) fn at(ip: IpAddr, port: u16) -> Self {
        Self { host: loopback_for(ip).to_string(), port }
    }
}

/// Returns the address to query for one to listen on: loopback if it means all addresses.
pub(crate) fn loopback_for(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    }
}

impl fmt::Display for AgentAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(asked: Option<&str>, env: &[(&str, &str)]) -> Result<String, String> {
        let lookup =
            |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        AgentAddress::resolve(asked, lookup).map(|target| target.to_string())
    }

    #[test]
    fn addresses_are_taken_as_people_write_them() {
        for (asked, target) in [
            ("10.0.0.11", "10.0.0.11:25001"),
            ("10.0.0.11:9000", "10.0.0.11:9000"),
            ("http://10.0.0.11:9000/", "10.0.0.11:9000"),
            ("http://worker-1.example.com", "worker-1.example.com:25001"),
            ("worker_1:80", "worker_1:80"),
            ("fd00::7", "[fd00::7]:25001"),
            ("[fd00::7]", "[fd00::7]:25001"),
            ("http://[fd00::7]:9000", "[fd00::7]:9000"),
            ("0.0.0.0:9000", "127.0.0.1:9000"),
        ] {
            assert_eq!(resolve(Some(asked), &[]).as_deref(), Ok(target), "{asked}");
        }
        assert_eq!(resolve(Some("worker-1"), &[("LISTEN_PORT", "9")]).as_deref(), Ok("worker-1:9"));
        assert_eq!(resolve(Some("worker-1:8"), &[("LISTEN_PORT", "0")]).as_deref(), Ok("worker-1:8"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for asked in
            ["", "https://a", "a:b", "a:0", "a:70000", "a b", "a/b", "user@a", "a\r\nb", "[::1", "1.2.3.4:0"]
        {
            let error = resolve(Some(asked), &[]).unwrap_err();
            assert!(error.starts_with("--addr") && error.contains(TAKES), "{asked:?}: {error}");
        }
        let error = resolve(Some("worker-1"), &[("LISTEN_PORT", "http")]).unwrap_err();
        assert!(error.starts_with("LISTEN_PORT \"http\""), "{error}");
        let error = resolve(None, &[("NODEGATE_METRICS_ADDR", "x/y")]).unwrap_err();
        assert!(error.starts_with("NODEGATE_METRICS_ADDR"), "{error}");
    }

    #[test]
    fn the_agent_on_this_machine_is_where_its_settings_say() {
        for (env, target) in [
            (&[][..], "127.0.0.1:25001"),
            (&[("LISTEN_PORT", "9000")], "127.0.0.1:9000"),
            (&[("LISTEN_PORT", "9000"), ("NODEGATE_LISTEN_ADDRESS", "::")], "127.0.0.1:9000"),
            (&[("LISTEN_PORT", "9000"), ("NODEGATE_LISTEN_ADDRESS", "10.0.0.7")], "10.0.0.7:9000"),
            (&[("LISTEN_PORT", "9000"), ("NODEGATE_METRICS_ADDR", "127.0.0.1:9100")], "127.0.0.1:9100"),
            (&[("LISTEN_PORT", "0"), ("NODEGATE_METRICS_ADDR", "[::]:9100")], "[::1]:9100"),
        ] {
            assert_eq!(resolve(None, env).as_deref(), Ok(target), "{env:?}");
        }
    }
}
