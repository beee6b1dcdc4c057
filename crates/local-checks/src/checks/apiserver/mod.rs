//! `apiserver`: the API server of this node is ready, for the balancer in front of the API servers.

mod readyz;
mod settings;

pub use settings::{ApiServerSettings, ApiServerUrl, ReadyzParts};

use crate::check::{Check, Run};
use crate::definition::Definition;
use crate::http::{HttpError, HttpReply, MAX_BODY, exchange, get, status_reason};
use crate::timing::{DEFAULT_TIMEOUT, Timing};
use http::uri::PathAndQuery;
use http::{StatusCode, header};
use nodegate_kube_follow::{Caller, OpenError, open_verified};
use nodegate_readiness::{AddressFamilies, Outcome, Reason};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A server that shuts down says so for `--shutdown-delay-duration`, which may be as short as some seconds.
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) const DEFINITION: Definition = Definition {
    name: "apiserver",
    options: &[],
    // An API server that has lost etcd answers after twice 2 s, and then names it.
    timing: Timing::new(INTERVAL, DEFAULT_TIMEOUT),
    new: |context| Arc::new(ApiServer::new(context.apiserver.clone())),
};

struct ApiServer {
    settings: ApiServerSettings,
    request: PathAndQuery,
    /// The last caller that was not refused was the agent; the next run asks as the same caller first.
    as_agent: AtomicBool,
    /// The log has the names that can't be left out.
    warned: AtomicBool,
}

/// Why a request had no answer.
enum Failure {
    Open(OpenError),
    Http(HttpError),
}

impl Check for ApiServer {
    fn run(&self, _: AddressFamilies) -> Run<'_> {
        Box::pin(async {
            match self.reply().await {
                Ok(reply) => self.judge(&reply),
                Err(failure) => Outcome::Fail(failure.into()),
            }
        })
    }
}

impl ApiServer {
    fn new(settings: ApiServerSettings) -> Self {
        let request = settings.exclude.request();
        Self { settings, request, as_agent: AtomicBool::default(), warned: AtomicBool::default() }
    }

    /// Asks as the caller who was last admitted, and as the other one if that is refused: a cluster may
    /// forbid anonymous requests, and a token may have no right to `/readyz`.
    async fn reply(&self) -> Result<HttpReply, Failure> {
        let as_agent = self.as_agent.load(Ordering::Relaxed);
        let (first, second) =
            if as_agent { (Caller::Agent, Caller::Anonymous) } else { (Caller::Anonymous, Caller::Agent) };
        let reply = self.ask(first).await?;
        if !is_refusal(reply.status) {
            return Ok(reply);
        }
        let reply = self.ask(second).await?;
        if !is_refusal(reply.status) {
            self.as_agent.store(!as_agent, Ordering::Relaxed);
        }
        Ok(reply)
    }

    async fn ask(&self, caller: Caller) -> Result<HttpReply, Failure> {
        let url = self.settings.url.uri();
        let verified = open_verified(url.clone(), caller).await?;
        let authority = url.authority().map_or("", http::uri::Authority::as_str);
        let mut request = get(&self.request, authority)?;
        if let Some(authorization) = verified.authorization {
            request.headers_mut().insert(header::AUTHORIZATION, authorization);
        }
        Ok(exchange(Box::new(verified.stream), request, MAX_BODY).await?)
    }

    fn judge(&self, reply: &HttpReply) -> Outcome {
        self.warn_of_unknown_parts(reply);
        if reply.status == StatusCode::OK {
            return Outcome::Pass;
        }
        let reason = status_reason(reply.status);
        Outcome::Fail(if is_refusal(reply.status) {
            reason.detail("refused without credentials and with the agent's")
        } else {
            readyz::failed_parts(&reply.body).unwrap_or(reason)
        })
    }

    /// Warns once: a name with a mistake leaves nothing out, and no answer of the check would show it.
    fn warn_of_unknown_parts(&self, reply: &HttpReply) {
        if self.settings.exclude.is_empty() || self.warned.load(Ordering::Relaxed) {
            return;
        }
        if let Some(unknown) = readyz::unknown_parts(&reply.body) {
            self.warned.store(true, Ordering::Relaxed);
            tracing::warn!(
                answer = unknown,
                "--apiserver-exclude names parts that the API server does not have"
            );
        }
    }
}

fn is_refusal(status: StatusCode) -> bool {
    matches!(status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)
}

// === impl Failure ===

impl From<OpenError> for Failure {
    fn from(error: OpenError) -> Self {
        Self::Open(error)
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        Self::Http(error)
    }
}

impl From<Failure> for Reason {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Http(error) => error.into(),
            Failure::Open(OpenError::Io(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Self::new("ConnectionRefused")
            }
            Failure::Open(OpenError::Io(error)) => HttpError::from(error).into(),
            Failure::Open(OpenError::Certificate { kind, detail }) => {
                let reason = Self::new("Certificate").name(kind);
                // Some kinds have no more to say.
                if detail == kind { reason } else { reason.detail(detail) }
            }
            Failure::Open(OpenError::Tls(error)) => Self::new("TLS").detail(error),
            Failure::Open(error @ (OpenError::Credentials(_) | OpenError::NoAuthority)) => {
                Self::new("NoCredentials").detail(error)
            }
        }
    }
}
