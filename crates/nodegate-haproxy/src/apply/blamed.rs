//! The frontends that caused HAProxy to refuse a configuration.

use crate::haproxy::blame::{Words, blamed};
use crate::plan::desired::{Desired, Frontend};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Returns the frontends that HAProxy's error text names, by their backend.
pub(crate) fn blamed_of(
    words: &Words,
    text: &str,
    files: &[&Path],
    desired: &Desired,
) -> BTreeMap<String, String> {
    let mut owners = BTreeMap::new();
    for frontend in &desired.frontends {
        let own = frontend.local.is_some().then_some(frontend.last_resort.iter()).into_iter().flatten();
        for name in own.chain([&frontend.name, &frontend.backend]) {
            owners.insert(name.as_str(), frontend.backend.as_str());
        }
    }
    let files: Vec<_> = files.iter().map(|file| file.to_string_lossy()).collect();
    let files: Vec<&str> = files.iter().map(AsRef::as_ref).collect();
    blamed(words.all(), text, &files, &owners)
}

/// Returns the frontends that caused HAProxy to refuse a reload. HAProxy 2.6 does not report the cause on its
/// socket; then it is the Service with new listeners, if there is only one. Errors in another file, or in the
/// head, are not the fault of a Service.
pub(crate) fn blamed_by_reload(
    words: &Words,
    text: &str,
    file: &Path,
    (live, desired): (Option<&Desired>, &Desired),
) -> BTreeMap<String, String> {
    let named = blamed_of(words, text, &[file], desired);
    if named.is_empty() && !words.accuse() { only_new(live, desired) } else { named }
}

/// Returns the frontends with new listeners, if all belong to one Service. Of everything that is not
/// validated beforehand, only a listener can make a reload fail.
fn only_new(live: Option<&Desired>, desired: &Desired) -> BTreeMap<String, String> {
    let Some(live) = live else { return BTreeMap::new() };
    let listens =
        |frontend: &&Frontend| live.frontend(&frontend.backend).is_none_or(|old| old.binds != frontend.binds);
    let new: Vec<&Frontend> = desired.frontends.iter().filter(listens).collect();
    let services: BTreeSet<_> = new.iter().map(|f| (&f.namespace, &f.service)).collect();
    let why = "HAProxy does not say why, and only this Service listens anew";
    let of_one = if services.len() == 1 { new } else { Vec::new() };
    of_one.into_iter().map(|frontend| (frontend.backend.clone(), why.to_owned())).collect()
}
