//! `kubelet`: the kubelet of this node is healthy.

use crate::check::{Check, Context, KnownNode, Run};
use crate::dedicated_thread::DedicatedThread;
use crate::host_root::HostRoot;
use crate::http_get::{LocalPort, get_reason, status_reason};
use crate::settings::paths;
use crate::url::{host_and_port, http_url};
use http::uri::Scheme;
use http::{StatusCode, Uri};
use nodegate_kube_follow::{Peer, get};
use nodegate_readiness::{Outcome, Reason};
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

/// The kubelet's own certificate if it has signed it itself, as kubeadm's kubelets do.
const SELF_SIGNED: &str = "/var/lib/kubelet/pki/kubelet.crt";
/// The most bytes read of certificates, many times the size of one.
const MAX_CERTIFICATES: u64 = 64 * 1024;
/// The kubelet's default `healthzPort`. Its `healthzBindAddress` is 127.0.0.1 by default; k3s and RKE2 set `::1` on an
/// IPv6 node, and others set the node's own address.
const HEALTHZ_PORT: u16 = 10248;

/// Creates the check.
pub(crate) fn new(context: &mut Context<'_>) -> Arc<dyn Check> {
    let (url, address) = context.settings.take("url", url).unzip();
    Arc::new(Kubelet {
        port: LocalPort(url, HEALTHZ_PORT),
        address: address.flatten(),
        host: context.host.clone(),
        ca: context.settings.take("ca", paths).unwrap_or_else(|| vec![SELF_SIGNED.into()]),
        thread: DedicatedThread::new("kubelet"),
    })
}

struct Kubelet {
    port: LocalPort,
    /// The address of the kubelet's API, if that is asked.
    address: Option<IpAddr>,
    host: HostRoot,
    /// Files of the host with certificates that are trusted beside the cluster's CA.
    ca: Vec<PathBuf>,
    thread: DedicatedThread,
}

/// The URL of the kubelet's health endpoint. Its API (`https://`) asks for a token, which goes only to this address of
/// the host.
type KubeletUrl = (Uri, Option<IpAddr>);

fn url(text: &str) -> Result<KubeletUrl, &'static str> {
    const TAKES: &str = "takes a URL like http://127.0.0.1:10248/healthz, or https:// with an address of this node: \
         https://127.0.0.1:10250/healthz";
    let uri: Uri = text.parse().map_err(|_| TAKES)?;
    if uri.scheme() != Some(&Scheme::HTTPS) {
        return http_url(text).map(|uri| (uri, None));
    }
    let host = uri.authority().and_then(|authority| host_and_port(authority, Some(443)));
    let address = host.and_then(|(host, _)| host.parse().ok()).ok_or(TAKES)?;
    Ok((uri, Some(address)))
}

impl Check for Kubelet {
    fn run<'a>(&'a self, node: &'a KnownNode) -> Run<'a> {
        Box::pin(async move { self.status(node).await.map_or_else(Outcome::Fail, judge) })
    }
}

impl Kubelet {
    async fn status(&self, node: &KnownNode) -> Result<StatusCode, Reason> {
        let (Some(url), Some(address)) = (&self.port.0, self.address) else {
            return self.port.get(node, 0).await.map(|reply| reply.status()).map_err(get_reason);
        };
        let (host, ca) = (self.host.clone(), self.ca.clone());
        // Without any that the agent can read, the cluster's CA alone counts.
        let read =
            move || ca.iter().filter_map(|file| host.read(file, MAX_CERTIFICATES).ok()).flatten().collect();
        let trusted: Vec<u8> = self.thread.run(read).await?;
        let peer = Peer::Kubelet { address, name: &node.name, trusted: &trusted };
        get(url, peer, None, 0).await.map(|reply| reply.status()).map_err(get_reason)
    }
}

/// Returns the outcome of an answer.
fn judge(status: StatusCode) -> Outcome {
    let reason = status_reason(status);
    match status {
        // The kubelet answers exactly 200; another 2xx comes from another program on its port.
        StatusCode::OK => Outcome::Pass,
        StatusCode::UNAUTHORIZED => {
            Outcome::Fail(reason.detail("the kubelet does not accept the agent's token"))
        }
        StatusCode::FORBIDDEN => {
            Outcome::Fail(reason.detail("the agent lacks the right get on nodes/healthz"))
        }
        _ => Outcome::Fail(reason),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_to_an_address_and_never_to_a_name() {
        let parse = url;
        for text in [
            "https://127.0.0.1:10250/healthz",
            "https://[::1]:10250/healthz",
            "https://10.0.0.7:10250/healthz",
        ] {
            assert!(matches!(parse(text), Ok((uri, Some(_))) if uri.path() == "/healthz"), "{text}");
        }
        assert!(matches!(parse("http://localhost:10248/healthz"), Ok((_, None))));
        for text in [
            "",
            "https://",
            "https://localhost:10250/healthz",
            "https://worker-1/",
            "https://me@127.0.0.1/",
            "ftp://127.0.0.1/",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
