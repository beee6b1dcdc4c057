//! The answer of an API server to `/readyz?verbose` or `/livez?verbose`.

// It has a line for each part, `[+]ping ok` or `[-]etcd failed: reason withheld`, whatever the status; a
// line for the names in `exclude` that are no parts, and one for the whole
// (`staging/src/k8s.io/apiserver/pkg/server/healthz/healthz.go`).

use super::apiserver_settings::ReadyzParts;
use nodegate_readiness::Reason;

/// The part that asks etcd. `/livez` has it, too.
pub(super) const ETCD: &str = "etcd";
/// The other part that asks etcd, in `/readyz` alone.
const ETCD_READINESS: &str = "etcd-readiness";

/// How many failed parts a reason names. A server that starts has a dozen.
const NAMED: usize = 4;

/// Returns the reason of an answer that is not 200, if its body names the parts that failed; `code` is the
/// reason's word.
pub(super) fn failed_parts(code: &'static str, body: &[u8]) -> Option<Reason> {
    let text = String::from_utf8_lossy(body);
    let failed: Vec<&str> = names(&text, "[-]").collect();
    let reason = Reason::new(code);
    match failed.as_slice() {
        [] => None,
        [part] => Some(reason.name(part)),
        all => {
            let named: Vec<&str> = all.iter().take(NAMED).copied().collect();
            let more = all.len().checked_sub(NAMED).filter(|more| *more > 0);
            let more = more.map_or_else(String::new, |more| format!(" and {more} more"));
            Some(reason.detail(format_args!("{}{more}", named.join(", "))))
        }
    }
}

/// Returns true if one of the parts asks etcd.
pub(super) fn ask_etcd(body: &[u8]) -> bool {
    let text = String::from_utf8_lossy(body);
    ["[+]", "[-]"].into_iter().flat_map(|mark| names(&text, mark)).any(is_etcd)
}

/// Returns the names of `exclude` that are no parts. The parts that ask etcd are not among them, since
/// `/livez` has etcd where `/readyz` has not.
pub(super) fn unknown_parts<'a>(exclude: &'a ReadyzParts, body: &[u8]) -> Vec<&'a str> {
    let text = String::from_utf8_lossy(body);
    let Some(line) = text.lines().find(|line| line.starts_with("warn: ")) else { return Vec::new() };
    exclude.names().filter(|name| !is_etcd(name) && line.contains(&format!("\"{name}\""))).collect()
}

/// Returns the names of the parts with this mark.
fn names<'a>(text: &'a str, mark: &'static str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| line.strip_prefix(mark)?.split(' ').next())
}

fn is_etcd(part: &str) -> bool {
    matches!(part, ETCD | ETCD_READINESS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reason(body: &str) -> Option<String> {
        failed_parts("ReadyzFailed", body.as_bytes()).map(|reason| reason.to_string())
    }

    #[test]
    fn the_failed_parts_are_named() {
        let one = "[+]ping ok\n[-]etcd failed: reason withheld\n[+]informer-sync ok\nreadyz check failed\n";
        assert_eq!(reason(one).unwrap(), "ReadyzFailed: etcd");
        assert_eq!(failed_parts("LivezFailed", one.as_bytes()).unwrap().label(), "LivezFailed: etcd");
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
    fn etcd_is_found_in_any_state() {
        for body in ["[+]ping ok\n[+]etcd ok\n", "[+]etcd excluded: ok\n", "[-]etcd-readiness failed: no\n"] {
            assert!(ask_etcd(body.as_bytes()), "{body}");
        }
        let others = "[+]ping ok\n[+]etcd-override-0 ok\n[+]poststarthook/etcd ok\nreadyz check passed\n";
        for body in ["", "ok", "etcd", others] {
            assert!(!ask_etcd(body.as_bytes()), "{body}");
        }
    }

    #[test]
    fn what_can_not_be_left_out_is_told() {
        let exclude: ReadyzParts = "etcd:ping:etc:etcd-readiness".parse().unwrap();
        let told = r#"some health checks cannot be excluded: no matches for "etc","etcd","etcd-readiness""#;
        let body = format!("[+]ping excluded: ok\nwarn: {told}\nreadyz check passed\n");
        assert_eq!(unknown_parts(&exclude, body.as_bytes()), ["etc"]);
        assert!(unknown_parts(&exclude, b"ok").is_empty());
    }

    proptest! {
        #[test]
        fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..200), parts in 0..9_usize) {
            let mut body = body;
            body.extend_from_slice(&b"\n[-]a b\n".repeat(parts));
            prop_assert!(parts == 0 || failed_parts("ReadyzFailed", &body).is_some());
            let _ = (ask_etcd(&body), unknown_parts(&ReadyzParts::default(), &body));
        }
    }
}
