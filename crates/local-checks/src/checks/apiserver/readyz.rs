//! The answer of an API server to `/readyz?verbose`.
//!
//! It has a line for each part, `[+]ping ok` or `[-]etcd failed: reason withheld`, whatever the status; a
//! line for the names in `exclude` that are no parts, and one for the whole
//! (`staging/src/k8s.io/apiserver/pkg/server/healthz/healthz.go`).

use nodegate_readiness::Reason;
use nodegate_readiness::reason::clean;

/// How many failed parts a reason names. A server that starts has a dozen.
const NAMED: usize = 4;

/// Returns the reason of an answer that is not 200, if its body names the parts that failed.
pub(super) fn failed_parts(body: &[u8]) -> Option<Reason> {
    let text = String::from_utf8_lossy(body);
    let failed = text.lines().filter_map(|line| line.strip_prefix("[-]"));
    let failed: Vec<&str> = failed.filter_map(|line| line.split(' ').next()).collect();
    let reason = Reason::new("ReadyzFailed");
    match failed.as_slice() {
        [] => None,
        [part] => Some(reason.name(part)),
        [named @ .., _] if named.len() < NAMED => Some(reason.detail(failed.join(", "))),
        all => {
            let named: Vec<&str> = all.iter().take(NAMED).copied().collect();
            Some(reason.detail(format_args!("{} and {} more", named.join(", "), all.len() - NAMED)))
        }
    }
}

/// Returns the line that names what can't be left out, if there is one.
pub(super) fn unknown_parts(body: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(body);
    let line = text.lines().find_map(|line| line.strip_prefix("warn: "))?;
    Some(clean(line.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reason(body: &str) -> Option<String> {
        failed_parts(body.as_bytes()).map(|reason| reason.to_string())
    }

    #[test]
    fn the_failed_parts_are_named() {
        let one = "[+]ping ok\n[-]etcd failed: reason withheld\n[+]informer-sync ok\nreadyz check failed\n";
        assert_eq!(reason(one).unwrap(), "ReadyzFailed: etcd");
        assert_eq!(failed_parts(one.as_bytes()).unwrap().label(), "ReadyzFailed: etcd");
        let two = "[-]etcd failed: reason withheld\n[-]etcd-readiness failed: reason withheld\n";
        assert_eq!(reason(two).unwrap(), "ReadyzFailed: etcd, etcd-readiness");
        let names: Vec<String> =
            (0..6).map(|n| format!("[-]poststarthook/{n} failed: not finished")).collect();
        let names = names.join("\n");
        let four = "ReadyzFailed: poststarthook/0, poststarthook/1, poststarthook/2, poststarthook/3";
        assert_eq!(reason(&names).unwrap(), format!("{four} and 2 more"));
        for other in
            ["", "ok", "[+]ping ok\nreadyz check passed\n", "Internal Server Error\n", "\u{0}[-]\n[-"]
        {
            assert_eq!(reason(other), None, "{other:?}");
        }
    }

    #[test]
    fn what_can_not_be_left_out_is_told() {
        let told = "some health checks cannot be excluded: no matches for \"etc\"";
        let body = format!("[+]ping ok\nwarn: {told}\nreadyz check passed\n");
        assert_eq!(unknown_parts(body.as_bytes()).as_deref(), Some(told));
        assert_eq!(unknown_parts(b"ok"), None);
    }

    proptest! {
        #[test]
        fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..200), parts in 0..9_usize) {
            let mut body = body;
            body.extend_from_slice(&b"\n[-]a b\n".repeat(parts));
            prop_assert!(parts == 0 || failed_parts(&body).is_some());
            let _ = unknown_parts(&body);
        }
    }
}
