//! Why a command stops, or a request to the API server failed.

use nodegate_agent_client::WaitEnd;
use nodegate_kubeconfig::Found;
use nodegate_program::{UNKNOWN, last_cause, with_causes};

/// The reason, and the exit code of the command.
#[derive(Debug)]
pub(crate) struct Error {
    pub(crate) why: String,
    pub(crate) code: u8,
    /// The HTTP status with which the API server has rejected the request.
    pub(crate) rejected: Option<u16>,
}

/// Converts the reason why it is unknown whether a command could do its work.
impl From<String> for Error {
    fn from(why: String) -> Self {
        Self { why, code: UNKNOWN, rejected: None }
    }
}

impl Error {
    /// Returns the error for a drain that was refused, timed out, was interrupted or failed.
    pub(crate) fn failed(why: impl Into<String>) -> Self {
        Self::from(why.into()).into_failure()
    }

    /// Returns the error of a command that a signal ends.
    pub(crate) fn interrupted(signal: &str) -> Self {
        Self::failed(format!("interrupted by {signal}"))
    }

    pub(crate) fn into_failure(self) -> Self {
        Self { code: WaitEnd::TimedOut.exit_code(), ..self }
    }

    /// Returns the error of a request to this cluster.
    pub(crate) fn of_request(what: &str, cluster: &str, found: &Found, error: &kube::Error) -> Self {
        let (why, rejected) = match error {
            kube::Error::Service(_) => (found.unreachable(explained(error)), None),
            kube::Error::Api(status) => {
                let refused = found.refused(status.code, &status.message);
                let why = refused.map_or_else(|| explained(error), |refused| format!("{cluster}: {refused}"));
                (why, Some(status.code).filter(|code| *code < 500))
            }
            error => (explained(error), None),
        };
        Self { rejected, ..Self::from(format!("{what}: {why}")) }
    }
}

/// Returns the text of an error for the user. A `Status` has its own message.
pub(crate) fn explained(error: &kube::Error) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 && status.message.contains(" cannot ") => {
            format!("{}; manifests/plugin-users.yaml has the rights that the plugin needs", status.message)
        }
        kube::Error::Api(status) if status.message.starts_with('<') => {
            format!("HTTP {} with a web page: this is not a Kubernetes API server", status.code)
        }
        kube::Error::SerdeError(_) => {
            "the answer is not one of the Kubernetes API: is this an API server?".to_owned()
        }
        kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
        kube::Error::Api(status) => format!("HTTP {} {}", status.code, status.reason),
        // The layers before the last name the parts of a library.
        kube::Error::Service(error) => last_cause(&**error),
        error => with_causes(error),
    }
}
