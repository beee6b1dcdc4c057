//! Whose frontend a refusal of HAProxy's is about.

use crate::haproxy::blame::{Words, blamed};
use crate::plan::desired::{Desired, Frontend};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Whom HAProxy's words name, by the backend.
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

/// Returns the frontends that a refused reload is about. HAProxy 2.6 does not say on its socket what it refuses; then
/// it is the only Service that listens anew. What HAProxy says of another file, or of the head, is no Service's fault.
pub(crate) fn blamed_by_reload(
    words: &Words,
    text: &str,
    file: &Path,
    (live, desired): (Option<&Desired>, &Desired),
) -> BTreeMap<String, String> {
    let named = blamed_of(words, text, &[file], desired);
    if named.is_empty() && !words.accuse() { only_new(live, desired) } else { named }
}

/// The frontends that listen where none did before, if they are of one Service alone. Nothing else of what is not
/// checked beforehand can keep HAProxy from a reload.
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
