//! The label value that the reason of a flip becomes.

/// The names that a reason begins with. Parts of reasons end with a colon; those of one word are names, and the first one
/// that is a text is left out with all that follows, since texts count, and have addresses and identifiers. A reason that
/// is nothing but a text stays, up to its first number.
pub(super) fn of(reason: &str) -> String {
    let mut parts = reason.split(": ");
    let mut label = without_count(parts.next().unwrap_or_default());
    for name in parts.take_while(|part| !part.contains(' ') && !begins_with_digit(part)) {
        label.push_str(": ");
        label.push_str(name);
    }
    label
}

/// The status of `HTTP 503` counts nothing.
fn without_count(text: &str) -> String {
    let after = |space: usize| text.get(space + 1..).is_some_and(begins_with_digit);
    let count = text.match_indices(' ').map(|(space, _)| space).find(|space| after(*space));
    match count.and_then(|space| text.get(..space)) {
        Some(text) if text != "HTTP" => format!("{text} …"),
        _ => text.to_owned(),
    }
}

fn begins_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Those of README.md and docs/checks.md.
    #[test]
    fn names_stay_as_they_are() {
        for reason in [
            "Recovered",
            "CacheStale",
            "KubeletNotReady",
            "NodeStatusUnknown",
            "Ready=False",
            "Ready=Unknown",
            "ReadyConditionMissing",
            "Unschedulable",
            "Deleting",
            "Taint:ToBeDeletedByClusterAutoscaler",
            "Taint:node.kubernetes.io/out-of-service",
            "Taint:example.com/1st",
            "Label:example.com/out",
            "ExcludedFromLoadBalancers",
            "NodeNotFound",
            "NoRecentResult",
            "Panicked",
            "DiskPressure: KubeletHasDiskPressure",
            "ConnectionRefused",
            "HTTP 503",
            "ConnectionReset",
            "ConnectionClosed",
            "MalformedResponse",
            "HeadersTooLarge",
            "NodeNotEligible",
            "NotSynced",
            "MalformedJSON",
            "RuntimeReady=False",
            "NotAccepting: /run/containerd/containerd.sock",
            "ConnectionRefused: /run/crio/crio.sock",
            "PermissionDenied: /run/k3s/containerd/containerd.sock",
            "NotCRIv1: /run/containerd/containerd.sock",
            "MalformedAnswer",
            "AnswerTooLarge",
            "NoLocalEndpoints",
        ] {
            assert_eq!(of(reason), reason);
        }
    }

    #[test]
    fn counts_and_texts_go() {
        for (reason, label) in [
            ("Timeout after 5s", "Timeout after …"),
            ("Timeout after 3s 750ms", "Timeout after …"),
            ("Hung for 35s", "Hung for …"),
            ("NotSynced: IPv6 for 73s", "NotSynced"),
            ("NotSynced for 73s", "NotSynced for …"),
            ("Stale: last updated 300s ago", "Stale"),
            ("NameNotResolved: a.example (no such host)", "NameNotResolved"),
            ("ConnectionFailed: No route to host (os error 113)", "ConnectionFailed"),
            (
                "NetworkReady: NetworkPluginNotReady: Network plugin returns error: cni plugin not initialized",
                "NetworkReady: NetworkPluginNotReady",
            ),
            ("RuntimeReady: not reported", "RuntimeReady"),
            ("NoSocket: none of /run/crio/crio.sock, /run/cri-dockerd.sock", "NoSocket"),
            ("gRPC Unavailable: task 0af1 is gone", "gRPC Unavailable"),
            ("FilesystemError: /var (ext4 /dev/sdb1): see dmesg", "FilesystemError"),
            ("NothingToWatch: no disk under the watched paths", "NothingToWatch"),
            ("/var/lib/kubelet: 4 % of bytes free, needs 10 %", "/var/lib/kubelet"),
            ("/data: Timeout after 3s 750ms; /: 2 % of inodes free, needs 5 %", "/data"),
            ("DNS: 10.0.0.2 no answer", "DNS"),
            ("Gateway: 10.0.0.1 on eth0: stopped answering; DNS: 10.0.0.2 SERVFAIL", "Gateway"),
            ("Some: 35s", "Some"),
        ] {
            assert_eq!(of(reason), label, "{reason}");
        }
    }

    proptest! {
        #[test]
        fn a_reason_that_only_counts_is_one_label(before in "[A-Za-z]{1,9}( [a-z]{1,9}){0,3}", counts: [u32; 2]) {
            prop_assume!(before != "HTTP");
            let [one, other] = counts.map(|count| of(&format!("{before} {count}s ago")));
            prop_assert_eq!(one, other);
        }

        #[test]
        fn no_reason_panics_or_grows(reason in any::<String>()) {
            prop_assert!(of(&reason).len() <= reason.len() + " …".len());
        }
    }
}
