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

/// The frontends that listen where none did before, if they are of one Service alone. HAProxy 2.6 does not say on its
/// socket why it refuses a reload, and nothing else of what is checked beforehand can keep it from one.
pub(crate) fn only_new(live: Option<&Desired>, desired: &Desired) -> BTreeMap<String, String> {
    let Some(live) = live else { return BTreeMap::new() };
    let listens =
        |frontend: &&Frontend| live.frontend(&frontend.backend).is_none_or(|old| old.binds != frontend.binds);
    let new: Vec<&Frontend> = desired.frontends.iter().filter(listens).collect();
    let services: BTreeSet<_> = new.iter().map(|f| (&f.namespace, &f.service)).collect();
    let why = "HAProxy does not say why, and only this Service listens anew";
    let of_one = if services.len() == 1 { new } else { Vec::new() };
    of_one.into_iter().map(|frontend| (frontend.backend.clone(), why.to_owned())).collect()
}
