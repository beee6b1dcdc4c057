//! `kubelet`: the kubelet of this node is healthy.

use crate::dedicated_thread::DedicatedThread;
use crate::definition::{Context, Definition};
use crate::host_root::{HostRoot, by_descriptor};
use crate::http_get::{get_verified, status_reason};
use crate::interface::{Check, KnownNode, Run};
use crate::local_port::LocalPort;
use crate::options::OptionKey;
use crate::paths::Paths;
use crate::timing::Timing;
use crate::url::{HttpUrl, host_and_port};
use http::uri::{PathAndQuery, Scheme};
use http::{StatusCode, Uri};
use nodegate_kube_follow::{Caller, Peer};
use nodegate_readiness::{Outcome, Reason};
use std::fs::File;
use std::io::{self, Read};
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

/// The kubelet's own certificate if it has signed it itself, as kubeadm's kubelets do.
const SELF_SIGNED: &str = "/var/lib/kubelet/pki/kubelet.crt";
/// The most bytes read of certificates, many times the size of one.
const MAX_CERTIFICATES: u64 = 64 * 1024;

const URL: OptionKey = OptionKey::new::<KubeletUrl>("url");
/// Files of the host with certificates that are trusted beside the cluster's CA.
const CA: OptionKey = OptionKey::new::<Paths>("ca");

/// The definition of the check, with the kubelet's default `healthzPort`, without TLS or authentication. Its
/// `healthzBindAddress` is 127.0.0.1 by default; k3s and RKE2 set `::1` on a node whose first address is of
/// IPv6, and others set the node's own address.
pub(crate) const DEFINITION: Definition = Definition {
    name: "kubelet",
    options: &[URL, CA],
    timing: Timing::USUAL,
    new: |context| match context.options.get(URL) {
        Some(KubeletUrl::Authenticated(url)) => Arc::new(AuthenticatedKubelet::new(context, url)),
        Some(KubeletUrl::Plain(_)) | None => Arc::new(Kubelet(LocalPort::new(context, 10248, "/healthz"))),
    },
};

/// The URL of the kubelet's health endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
enum KubeletUrl {
    Plain(HttpUrl),
    /// The kubelet's API, which asks for a token. The token goes only to an address of this host.
    Authenticated(OwnUrl),
}

/// An `https://` URL with an address instead of a name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct OwnUrl {
    uri: Uri,
    address: IpAddr,
    path: PathAndQuery,
}

struct Kubelet(LocalPort);

/// The kubelet's API on port 10250.
struct AuthenticatedKubelet {
    url: OwnUrl,
    host: HostRoot,
    ca: Vec<PathBuf>,
    thread: DedicatedThread,
}

impl FromStr for KubeletUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const TAKES: &str = "takes a URL like http://127.0.0.1:10248/healthz, or https:// with an address of this node: \
             https://127.0.0.1:10250/healthz";
        let uri: Uri = text.parse().map_err(|_| TAKES)?;
        if uri.scheme() != Some(&Scheme::HTTPS) {
            return text.parse().map(Self::Plain);
        }
        let to = host_and_port(uri.authority().ok_or(TAKES)?, 443)?;
        let address = to.host.parse().map_err(|_| TAKES)?;
        let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
        Ok(Self::Authenticated(OwnUrl { uri, address, path }))
    }
}

impl Check for Kubelet {
    fn run<'a>(&'a self, node: &'a KnownNode) -> Run<'a> {
        Box::pin(async move {
            match self.0.status(node).await {
                Ok(status) => judge(status),
                Err(error) => Outcome::Fail(error.into()),
            }
        })
    }
}

impl Check for AuthenticatedKubelet {
    fn run<'a>(&'a self, node: &'a KnownNode) -> Run<'a> {
        Box::pin(async move { self.status(node).await.map_or_else(Outcome::Fail, judge) })
    }
}

impl AuthenticatedKubelet {
    fn new(context: &Context<'_>, url: OwnUrl) -> Self {
        let ca =
            context.options.get::<Paths>(CA).map_or_else(|| vec![SELF_SIGNED.into()], |Paths(files)| files);
        Self { url, host: context.host.clone(), ca, thread: DedicatedThread::new("kubelet") }
    }

    async fn status(&self, node: &KnownNode) -> Result<StatusCode, Reason> {
        let (host, ca) = (self.host.clone(), self.ca.clone());
        let trusted = self.thread.run(move || certificates(&host, &ca)).await?;
        let OwnUrl { uri, address, path } = &self.url;
        let peer = Peer::Own { address: *address, name: &node.name, trusted: &trusted };
        get_verified(uri, peer, Caller::Agent, path, 0).await.map(|reply| reply.status)
    }
}

/// Returns the content of those files that the agent can read. Without any, the cluster's CA alone counts.
fn certificates(host: &HostRoot, files: &[PathBuf]) -> Vec<u8> {
    let read = |file: &PathBuf| -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(by_descriptor(&host.locate(file)?))?;
        file.take(MAX_CERTIFICATES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    files.iter().filter_map(|file| read(file).ok()).flatten().collect()
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
        let parse = |text: &str| text.parse::<KubeletUrl>();
        for text in [
            "https://127.0.0.1:10250/healthz",
            "https://[::1]:10250/healthz",
            "https://10.0.0.7:10250/healthz",
        ] {
            assert!(
                matches!(parse(text), Ok(KubeletUrl::Authenticated(url)) if url.path == "/healthz"),
                "{text}"
            );
        }
        assert!(matches!(parse("http://localhost:10248/healthz"), Ok(KubeletUrl::Plain(_))));
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
