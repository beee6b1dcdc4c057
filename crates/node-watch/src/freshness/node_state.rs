//! A version of the Node, and the conclusion when etcd holds another one than the cache.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A state of the Node, identified by UID and resource version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum NodeVersion {
    /// It is not known yet.
    #[default]
    Unknown,
    /// There is no such Node.
    Absent,
    Present {
        uid: String,
        version: String,
    },
}

/// The meaning of etcd's answer for the cached state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The cache has the newest state, or had it at the time of the request.
    Current,
    /// There is a newer state that the watch has not delivered.
    Behind,
    /// History went back, or there is another Node with this name: the cached state will never be current
    /// again.
    Rewound,
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

    /// Compares the answer of a consistent read with the cached state, and with the state cached before the
    /// request.
    pub(crate) fn compare(&self, before: &Self, answer: &Self) -> Finding {
        if answer == self || answer == before {
            return Finding::Current;
        }
        let (Self::Present { uid, version }, Self::Present { uid: newest_uid, version: newest }) =
            (self, answer)
        else {
            return Finding::Behind;
        };
        // Resource versions of one resource may be compared as numbers (KEP-5504).
        let (Ok(held), Ok(newest)) = (version.parse::<u64>(), newest.parse::<u64>()) else {
            return if uid == newest_uid { Finding::Behind } else { Finding::Rewound };
        };
        if uid == newest_uid && newest > held {
            return Finding::Behind;
        }
        // The watch was quicker than the answer, which is nevertheless from after the request.
        let after_the_question = match before {
            Self::Present { version, .. } => version.parse::<u64>().is_ok_and(|before| newest >= before),
            // There was no Node, so the answer is a state from its creation on.
            Self::Absent => true,
            Self::Unknown => false,
        };
        if newest <= held && after_the_question && self != before {
            Finding::Current
        } else {
            Finding::Rewound
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
    fn versions_are_compared_in_both_directions() {
        let compare =
            |held: &str, newest: &str| node("a", held).compare(&node("a", held), &node("a", newest));
        assert_eq!(compare("10", "10"), Finding::Current);
        assert_eq!(compare("9", "10"), Finding::Behind);
        assert_eq!(compare("10", "9"), Finding::Rewound);
        assert_eq!(compare("a", "b"), Finding::Behind);
    }

    #[test]
    fn a_watch_that_is_quicker_than_the_answer_is_current() {
        let compare = |before: &str, now: &str, newest: &str| {
            node("a", now).compare(&node("a", before), &node("a", newest))
        };
        assert_eq!(compare("5", "9", "5"), Finding::Current);
        assert_eq!(compare("5", "9", "7"), Finding::Current);
        assert_eq!(compare("5", "9", "4"), Finding::Rewound);
        assert_eq!(compare("5", "9", "11"), Finding::Behind);
        assert_eq!(NodeVersion::Absent.compare(&node("a", "5"), &node("a", "5")), Finding::Current);
    }

    #[test]
    fn a_node_that_is_created_while_we_ask_is_current() {
        let (made, changed) = (node("a", "5"), node("a", "9"));
        assert_eq!(changed.compare(&NodeVersion::Absent, &made), Finding::Current);
        assert_eq!(changed.compare(&NodeVersion::Absent, &node("a", "11")), Finding::Behind);
        assert_eq!(changed.compare(&NodeVersion::Unknown, &made), Finding::Rewound, "nobody knows");
        // The Node was deleted and created again meanwhile: the answer is the old one, as it was after the
        // request.
        let (before, again) = (node("a", "5"), node("b", "9"));
        assert_eq!(again.compare(&before, &node("a", "7")), Finding::Current);
        assert_eq!(again.compare(&before, &node("a", "4")), Finding::Rewound);
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
        assert_eq!(held.compare(&held, &node("b", "10")), Finding::Rewound);
        assert_eq!(held.compare(&held, &node("b", "11")), Finding::Rewound);
        assert_eq!(held.compare(&held, &NodeVersion::Absent), Finding::Behind);
        assert_eq!(NodeVersion::Absent.compare(&NodeVersion::Absent, &held), Finding::Behind);
        assert_eq!(NodeVersion::Absent.compare(&NodeVersion::Absent, &NodeVersion::Absent), Finding::Current);
    }
}
