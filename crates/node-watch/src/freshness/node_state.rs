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
        match (self, answer) {
            (Self::Present { uid: cached, .. }, Self::Present { uid, .. })
                if cached != uid || answer.is_before(self) =>
            {
                Finding::Rewound
            }
            _ => Finding::Behind,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(uid: &str, version: &str) -> NodeVersion {
        NodeVersion::Present { uid: uid.to_owned(), version: version.to_owned() }
    }

    #[test]
    fn an_answer_is_current_overtaken_missed_or_of_another_history() {
        let (uid, resource_version) = (Some("a".to_owned()), Some("10".to_owned()));
        let meta = ObjectMeta { uid, resource_version, ..ObjectMeta::default() };
        assert_eq!(NodeVersion::present(&meta), node("a", "10"));
        let absent = || NodeVersion::Absent;
        for (since_the_request, answer, finding) in [
            (vec![node("a", "10")], node("a", "10"), Finding::Current),
            (vec![absent()], absent(), Finding::Current),
            // Numbers are compared as numbers.
            (vec![node("a", "9")], node("a", "10"), Finding::Behind),
            (vec![node("a", "a")], node("a", "b"), Finding::Behind),
            (vec![node("a", "10")], absent(), Finding::Behind),
            (vec![absent()], node("a", "10"), Finding::Behind),
            (vec![node("a", "10")], node("a", "9"), Finding::Rewound),
            (vec![node("a", "10")], node("b", "10"), Finding::Rewound),
            (vec![node("a", "10")], node("b", "11"), Finding::Rewound),
            // The Node was changed, deleted, and created again while the answer was on its way.
            (vec![node("a", "5"), absent(), node("b", "9")], node("a", "5"), Finding::Overtaken),
            (vec![node("a", "5"), absent(), node("b", "9")], absent(), Finding::Overtaken),
            (vec![node("a", "5"), absent(), node("b", "9")], node("b", "11"), Finding::Behind),
            // etcd was restored from a copy, and the watch has delivered states of the old history meanwhile.
            (vec![node("a", "5"), node("a", "9")], node("a", "4"), Finding::Rewound),
            (vec![node("a", "5"), node("a", "9")], node("a", "7"), Finding::Rewound),
            (vec![node("a", "5"), node("a", "9")], node("b", "7"), Finding::Rewound),
            (vec![absent(), node("a", "9")], node("a", "7"), Finding::Rewound),
        ] {
            let cached = since_the_request.last().unwrap();
            let found = cached.compare(&since_the_request, &answer);
            assert_eq!(found, finding, "{since_the_request:?}, answered {answer:?}");
        }
    }

    #[test]
    fn what_is_older_is_told_by_its_version() {
        for (this, other, is_before) in [
            (node("a", "9"), node("a", "10"), true),
            (node("a", "9"), node("b", "10"), true),
            (node("a", "10"), node("a", "10"), false),
            (node("a", "11"), node("a", "10"), false),
            (node("a", "x"), node("a", "10"), false),
            (node("a", "9"), node("a", "x"), false),
            (NodeVersion::Absent, node("a", "10"), false),
            (node("a", "1"), NodeVersion::Unknown, false),
        ] {
            assert_eq!(this.is_before(&other), is_before, "{this:?} {other:?}");
        }
    }
}
