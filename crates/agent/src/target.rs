//! The agent that `nodegate status`, `nodegate wait` and the handover query: its address, and one GET to it.

use crate::agent_ports::{LISTEN_ADDRESS, LISTEN_PORT, METRICS_ADDR};
use nodegate_agent_client::{AgentReply, AskError, get};
use nodegate_local_checks::resolve;
use nodegate_program::{HTTP_PORT, Mistakes};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::time::timeout;

const TAKES: &str =
    "takes HOST, HOST:PORT or http://HOST:PORT, e.g. 10.0.0.11, [fd00::7]:25001 or worker-1:25001";

/// The flag that names the agent to query.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AddrArg {
    /// Agent to query: HOST, HOST:PORT or http://HOST:PORT, where HOST is a name or an address. Without a
    /// port: that of the agent on this machine
    #[arg(long, value_name = "ADDRESS")]
    addr: Option<String>,
}

impl AddrArg {
    /// Returns the address by this flag and the environment of this process, and adds a mistake to `wrong`.
    pub(crate) fn target(&self, wrong: &mut Mistakes) -> AgentAddress {
        let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        AgentAddress::resolve(self.addr.as_deref(), env).unwrap_or_else(|line| {
            wrong.line(line);
            AgentAddress::default()
        })
    }
}

/// A host, by name or address, and a port.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct AgentAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// True if `--addr` gave it.
    pub(crate) is_given: bool,
}

impl AgentAddress {
    /// Returns the given address, or else the address of the agent on this machine by the settings in the
    /// environment. The error is a line for the user.
    pub(crate) fn resolve(addr: Option<&str>, env: impl Fn(&str) -> Option<String>) -> Result<Self, String> {
        let (name, text) = if let Some(addr) = addr {
            ("--addr", addr.to_owned())
        } else {
            // `::` means all addresses of both families, and so includes the IPv4 loopback, even without IPv6.
            let named = |name| Some((name, env(name).filter(|value| value != "::")?));
            let everywhere = || (LISTEN_ADDRESS, Ipv4Addr::UNSPECIFIED.to_string());
            named(METRICS_ADDR).or_else(|| named(LISTEN_ADDRESS)).unwrap_or_else(everywhere)
        };
        let (host, port) = parse(&text).ok_or_else(|| format!("{name} {text:?}: {TAKES}"))?;
        let port = match (port, env(LISTEN_PORT)) {
            (Some(port), _) => port,
            (None, None) => HTTP_PORT,
            (None, Some(port)) => port.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
                format!("{LISTEN_PORT} {port:?}: is no port to ask; give --addr with a port")
            })?,
        };
        Ok(Self { host, port, is_given: addr.is_some() })
    }

    /// Gets a path, bounded in time from the name lookup to the last byte. Must not be called on a thread that already
    /// runs a runtime.
    pub(crate) fn get(&self, path: &str, within: Duration) -> Result<AgentReply, AskError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| AskError::Lookup(error.to_string()))?;
        let got = async {
            let found = resolve(&self.host).await.map_err(AskError::Lookup)?;
            let addresses: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, self.port)).collect();
            get(&addresses, path, within).await
        };
        let got = runtime.block_on(async { timeout(within, got).await });
        got.unwrap_or(Err(AskError::Late(within)))
    }

    /// Returns the error of a query for the user.
    pub(crate) fn failed(&self, error: impl fmt::Display) -> String {
        let (flag, hint) = if self.is_given {
            ("--addr ", "")
        } else {
            ("", " (from the environment, or the default; set LISTEN_PORT, or give --addr)")
        };
        format!("{flag}http://{self}{hint}: {error}")
    }
}

/// Returns the host that a text names, to query, and its port if it has one; `None` if it is no address.
fn parse(text: &str) -> Option<(String, Option<u16>)> {
    let text = text.strip_prefix("http://").unwrap_or(text);
    let text = text.strip_suffix('/').unwrap_or(text);
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(ip) = bare.parse() {
        return Some((loopback_for(ip).to_string(), None));
    }
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) => (host, Some(port.parse().ok().filter(|port| *port != 0)?)),
        None => (text, None),
    };
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Some((loopback_for(address.ip()).to_string(), port));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    (!host.is_empty() && host.chars().all(is_name)).then(|| (host.to_owned(), port))
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
        let Self { host, port, .. } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_testbed::stub::{StubServer, hang};
    use std::io::Write;
    use std::net::TcpStream;
    use std::thread;

    #[test]
    fn a_query_ends_with_its_deadline_whatever_the_server_does() {
        let drip = |stream: &mut TcpStream| {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(b"H").is_ok() {
                thread::sleep(Duration::from_millis(10));
            }
        };
        for server in [StubServer::start(drip), StubServer::start(hang)] {
            let target = AgentAddress::resolve(Some(&server.address().to_string()), |_| None).unwrap();
            let error = target.get("/", Duration::from_millis(300)).unwrap_err();
            assert_eq!(error.to_string(), "no whole answer within 300ms");
        }
    }

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
