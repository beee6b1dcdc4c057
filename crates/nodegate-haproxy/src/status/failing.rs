//! Log lines about requests that fail.

use crate::lasting::Lasting;
use nodegate_kube_follow::ApiError;
use std::collections::BTreeMap;
use std::time::Duration;

/// The wait after a refusal that only an operator can end.
pub(crate) const FORBIDDEN: Duration = Duration::from_secs(30);
const NO_RIGHTS: &str =
    "the account lacks rights for --publish-status, which manifests/publish-status.yaml has: ";

/// The kinds of requests that have failed.
#[derive(Default)]
pub(crate) struct Failing(BTreeMap<&'static str, Lasting>);

impl Failing {
    pub(crate) fn failed(&mut self, kind: &'static str, error: &ApiError) {
        let new =
            || Lasting::new("can't write to the cluster; retrying", "writing to the cluster works again");
        let why = if error.code() == Some(403) { NO_RIGHTS } else { "" };
        let lasting = self.0.entry(kind).or_insert_with(new);
        lasting.tell_of(&format!("{:?}", error.code()), &format!("{why}{error}"));
    }

    pub(crate) fn succeeded(&mut self, kind: &'static str) {
        if let Some(mut lasting) = self.0.remove(kind) {
            lasting.end();
        }
    }
}
