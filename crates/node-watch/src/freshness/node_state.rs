//! A version of the Node, and the conclusion when etcd holds another one than the cache.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A state of the Node, identified by UID and resource version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum NodeVersion {
    /// It is not known yet.
    #[default]
    Unknown,
    /// There is no such Node. This has no version: a Node that was created and deleted again in the meantime
    /// is not noticed, so a Node that appears after a check has confirmed the absence causes another check.
    Absent,
    Present {
        uid: String,
        version: String,
    },
}

/// The meaning of etcd's answer for the cached state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The cache has the newest state.
    Current,
    /// The cache has had this state since the request, and the watch has delivered another one since.
    Overtaken,
    /// There is a newer state that the watch has not delivered.
    Behind,
    /// History went back, or there is another Node with this name: the cached state will never be current
    /// again.
    Rewound,
}

impl Finding {
    /// Returns true if the cache has the state in the answer, or has had it since the request.
    pub(crate) fn is_known(self) -> bool {
        matches!(self, Self::Current | Self::Overtaken)
    }
}

impl NodeVersion {
    pub(crate) fn present(meta: &ObjectMeta) -> Self {
        let (uid, version) = (meta.uid.clone(), meta.resource_version.clone());
        Self::Present { uid: uid.unwrap_or_default(), version: version.unwrap_or_default() }
    }

    /// Returns the Node's resource version, if there is one.
    pub(crate) fn version(&self) -> Option<&str> {
        match self {
            Self::Present { version, .. } => Some(version),
            Self::Unknown | Self::Absent => None,
        }
    }

    /// Returns true if it is an older state than `other`. Resource versions of one resource may be compared
    /// as numbers (KEP-5504), also those of two Nodes of one name.
    pub(crate) fn is_before(&self, other: &Self) -> bool {
        let number = |state: &Self| state.version().and_then(|version| version.parse::<u64>().ok());
        number(self).zip(number(other)).is_some_and(|(this, other)| this < other)
    }

    /// Judges the answer of a consistent read by the cached state, and by all states that the cache has had
    /// since the request. Versions alone can't tell: after etcd was restored from a copy, an answer of the
    /// new history may lie between two states that a watch of the old one has delivered.
    pub(crate) fn compare(&self, since_the_request: &[Self], answer: &Self) -> Finding {
        if answer == self {
            return Finding::Current;
        }
        if since_the_request.contains(answer) {
            return Finding::Overtaken;
        }
        let (Self::Present { uid, version }, Self::Present { uid: newest_uid, version: newest }) =
            (self, answer)
        else {
            return Finding::Behind;
        };
        // Resource versions of one resource may be compared as numbers (KEP-5504).
        let is_newer = match (version.parse::<u64>(), newest.parse::<u64>()) {
            (Ok(held), Ok(newest)) => newest > held,
            _ => true,
        };
        if uid == newest_uid && is_newer { Finding::Behind } else { Finding::Rewound }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(uid: &str, version: &str) -> NodeVersion {
        NodeVersion::Present { uid: uid.to_owned(), version: version.to_owned() }
    }

    /// Compares with a cache that has not changed since the request.
    fn compare(held: &NodeVersion, answer: &NodeVersion) -> Finding {
        held.compare(std::slice::from_ref(held), answer)
    }

    #[test]
    fn versions_are_compared_in_both_directions() {
        let (uid, resource_version) = (Some("a".to_owned()), Some("10".to_owned()));
        let meta = ObjectMeta { uid, resource_version, ..ObjectMeta::default() };
        assert_eq!(NodeVersion::present(&meta), node("a", "10"));
        let compare = |held: &str, newest: &str| compare(&node("a", held), &node("a", newest));
        assert_eq!(compare("10", "10"), Finding::Current);
        assert_eq!(compare("9", "10"), Finding::Behind);
        assert_eq!(compare("10", "9"), Finding::Rewound);
        assert_eq!(compare("a", "b"), Finding::Behind);
    }

    #[test]
    fn an_answer_that_the_watch_has_overtaken_is_no_history_that_went_back() {
        // The Node was changed, deleted, and created again while the answer was on its way.
        let since = [node("a", "5"), node("a", "7"), NodeVersion::Absent, node("b", "9")];
        let compare = |answer: &NodeVersion| since[3].compare(&since, answer);
        assert_eq!(compare(&since[3]), Finding::Current);
        for overtaken in &since[..3] {
            assert_eq!(compare(overtaken), Finding::Overtaken, "{overtaken:?}");
        }
        assert_eq!(compare(&node("b", "11")), Finding::Behind);
    }

    /// etcd was restored from a copy, and the watch has delivered states of the old history meanwhile.
    #[test]
    fn an_answer_that_the_watch_has_never_delivered_is_of_another_history() {
        let since = [node("a", "5"), node("a", "9")];
        for answer in [node("a", "4"), node("a", "7"), node("b", "7")] {
            assert_eq!(since[1].compare(&since, &answer), Finding::Rewound, "{answer:?}");
        }
        let created = [NodeVersion::Absent, node("a", "9")];
        assert_eq!(created[1].compare(&created, &node("a", "7")), Finding::Rewound);
    }

    #[test]
    fn what_is_older_is_told_by_its_version() {
        assert!(node("a", "9").is_before(&node("a", "10")) && node("a", "9").is_before(&node("b", "10")));
        for (this, other) in [("10", "10"), ("11", "10"), ("x", "10"), ("9", "x")] {
            assert!(!node("a", this).is_before(&node("a", other)), "{this} {other}");
        }
        assert!(
            !NodeVersion::Absent.is_before(&node("a", "10"))
                && !node("a", "1").is_before(&NodeVersion::Unknown)
        );
    }

    #[test]
    fn another_node_of_that_name_is_not_the_one_we_hold() {
        let held = node("a", "10");
        assert_eq!(compare(&held, &node("b", "10")), Finding::Rewound);
        assert_eq!(compare(&held, &node("b", "11")), Finding::Rewound);
        assert_eq!(compare(&held, &NodeVersion::Absent), Finding::Behind);
        assert_eq!(compare(&NodeVersion::Absent, &held), Finding::Behind);
        assert_eq!(compare(&NodeVersion::Absent, &NodeVersion::Absent), Finding::Current);
    }
}
