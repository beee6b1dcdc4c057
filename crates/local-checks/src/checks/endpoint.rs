//! The checks of the status of a URL: `okd_router_1936`, `kubelet` and the operator's own `http:<name>`; and
//! `tcp:<name>`, an address that must accept connections.

use crate::check::{Check, Context, KnownNode, Run};
use crate::http_get::{Header, Url, get_reason, host_and_port, http_url, io_reason, status_reason};
use http::uri::Authority;
use http::{StatusCode, Uri};
use nodegate_kube_follow::resolve;
use nodegate_readiness::{Outcome, Reason};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;

/// The maximum length of a name. It is a label of metrics, and up to 32 names go into a query.
const MAX_NAME: usize = 63;

/// Creates the check of the `OpenShift` router on this node, by its `STATS_PORT`, which host networking makes the
/// host's.
pub(crate) fn okd_router_1936(context: &mut Context<'_>) -> Arc<dyn Check> {
    let usual = || Uri::from_static("http://127.0.0.1:1936/healthz/ready");
    let url = context.settings.take("url", http_url).unwrap_or_else(usual);
    Arc::new(Target::Http(Url::Set(url), None, StatusCode::is_success))
}

/// The kubelet's default `healthzPort`. Its `healthzBindAddress` is 127.0.0.1 by default; k3s and RKE2 set `::1` on an
/// IPv6 node, and others set the node's own address.
const KUBELET_PORT: u16 = 10248;

/// Creates the check of the kubelet, which answers exactly 200; another 2xx comes from another program on its port.
pub(crate) fn kubelet(context: &mut Context<'_>) -> Arc<dyn Check> {
    Arc::new(Target::Http(Url::of(context, KUBELET_PORT), None, |status| *status == StatusCode::OK))
}

fn header(text: &str) -> Result<Header, &'static str> {
    let parse = || {
        let (name, value) = text.split_once(':')?;
        Some((name.trim().parse().ok()?, value.trim().parse().ok()?))
    };
    parse().ok_or("takes a request header like Host: app.example")
}

/// A check of a URL or an address.
#[derive(Clone, Debug)]
enum Target {
    /// Passes if the status is as it should be. The body is not read, so a slow or endless one does no harm.
    Http(Url, Option<Header>, fn(&StatusCode) -> bool),
    /// Passes if a connection to the port of the host opens. It is closed at once, without a byte.
    Tcp(String, u16),
}

impl Check for Target {
    fn run<'a>(&'a self, node: &'a KnownNode) -> Run<'a> {
        Box::pin(async move {
            match self {
                Self::Tcp(host, port) => connect(host, *port).await.err().into(),
                Self::Http(url, header, is_right) => match url.get(node, header.clone(), 0).await {
                    Ok(reply) if is_right(&reply.status()) => Outcome::Pass,
                    Ok(reply) => Outcome::Fail(status_reason(reply.status())),
                    Err(error) => Outcome::Fail(get_reason(error)),
                },
            }
        })
    }
}

async fn connect(host: &str, port: u16) -> Result<TcpStream, Reason> {
    let unresolved = |why| Reason::new("NameNotResolved").detail(format_args!("{host} ({why})"));
    let found = resolve(host).await.map_err(unresolved)?;
    let addresses: Vec<_> = found.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
    TcpStream::connect(addresses.as_slice()).await.map_err(|error| io_reason(&error))
}

/// A check that the operator defines.
#[derive(Clone, Debug)]
pub struct OwnCheck {
    /// The name in requests, which begins with its kind (`http:nginx`).
    pub(crate) name: String,
    target: Target,
}

impl OwnCheck {
    /// Parses `<name>=<url>`, named `http:<name>` in requests. The error says what is accepted.
    pub fn http(text: &str) -> Result<Self, String> {
        let target =
            |url: &str| http_url(url).map(|url| Target::Http(Url::Set(url), None, StatusCode::is_success));
        Self::parse("http", text, "<name>=<url>, e.g. nginx=http://127.0.0.1:10254/healthz", target)
    }

    /// Parses `<name>=<host>:<port>`, named `tcp:<name>` in requests. The error says what is accepted.
    pub fn tcp(text: &str) -> Result<Self, String> {
        let target = |address: &str| {
            let authority = address.parse::<Authority>().ok();
            let parts = authority.as_ref().and_then(|authority| host_and_port(authority, None));
            let (host, port) = parts.ok_or("takes a host and a port")?;
            Ok(Target::Tcp(host.to_owned(), port))
        };
        Self::parse("tcp", text, "<name>=<host>:<port>, e.g. db=127.0.0.1:5432", target)
    }

    fn parse(
        kind: &str,
        text: &str,
        takes: &str,
        target: impl Fn(&str) -> Result<Target, &'static str>,
    ) -> Result<Self, String> {
        let parts = text.split_once('=').ok_or(format!("takes {takes}"))?;
        let (name, value) = (parts.0.trim(), parts.1.trim());
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(allowed) {
            return Err(format!(
                "takes a name of letters, digits, '-', '_' and '.', at most {MAX_NAME}, before the \"=\""
            ));
        }
        let target = target(value).map_err(|why| format!("takes {takes}; behind the \"=\", it {why}"))?;
        Ok(Self { name: format!("{kind}:{name}"), target })
    }

    /// Returns the check with its settings.
    pub(crate) fn check(&self, context: &mut Context<'_>) -> Arc<dyn Check> {
        let mut check = self.target.clone();
        if let Target::Http(_, of_check, _) = &mut check {
            *of_check = context.settings.take("header", header);
        }
        Arc::new(check)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_get_their_kind() {
        let name = |parsed: Result<OwnCheck, String>| parsed.unwrap().name;
        assert_eq!(name(OwnCheck::http("nginx=http://127.0.0.1:10254/healthz?a=b")), "http:nginx");
        assert_eq!(name(OwnCheck::tcp(" db = [::1]:5432 ")), "tcp:db");
    }
}
