//! Log lines about requests that fail: one when it begins, and one when it ends.

use nodegate_kube_follow::ApiError;
use std::collections::BTreeMap;
use std::time::Duration;

/// The wait after a refusal that only an operator can end.
pub(crate) const FORBIDDEN: Duration = Duration::from_secs(30);

/// The kinds of requests that fail at present, with the HTTP status.
#[derive(Default)]
pub(crate) struct Failing(BTreeMap<&'static str, Option<u16>>);

impl Failing {
    pub(crate) fn failed(&mut self, kind: &'static str, error: &ApiError) {
        let code = error.code();
        if self.0.insert(kind, code) == Some(code) {
            tracing::debug!(kind, %error, "writing to the cluster failed again; retrying");
        } else if code == Some(403) {
            tracing::warn!(
                kind,
                %error,
                "the account lacks rights for --publish-status; going on without. \
                 manifests/publish-status.yaml has them"
            );
        } else {
            tracing::warn!(kind, %error, "can't write to the cluster; retrying");
        }
    }

    pub(crate) fn succeeded(&mut self, kind: &'static str) {
        if self.0.remove(kind).is_some() {
            tracing::info!(kind, "writing to the cluster works again");
        }
    }
}
