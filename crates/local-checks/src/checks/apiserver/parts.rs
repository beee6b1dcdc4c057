//! The answer of an API server to `/readyz?verbose` or `/livez?verbose`.

// It has a line for each part, `[+]ping ok` or `[-]etcd failed: reason withheld`, whatever the status, and a
// line for the names in `exclude` that the server does not know
// (`staging/src/k8s.io/apiserver/pkg/server/healthz/healthz.go`).

use http::uri::PathAndQuery;
use nodegate_readiness::Reason;

/// The maximum number of excluded parts, and the maximum length of a name.
const MAX_PARTS: usize = 32;
const MAX_NAME: usize = 128;

/// The part that asks etcd. `/livez` has it, too.
pub(super) const ETCD: &str = "etcd";
/// The other part that asks etcd, in `/readyz` alone.
const ETCD_READINESS: &str = "etcd-readiness";

/// How many failed parts a reason names. A server that is starting up has a dozen failed ones.
const NAMED: usize = 4;

/// Names of parts of `/readyz`, such as `etcd`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadyzParts(pub(super) Vec<String>);

impl ReadyzParts {
    /// Parses names that are separated by `:`.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        let parts = text.split(':').map(str::trim).filter(|part| !part.is_empty());
        let parts: Vec<String> = parts.map(str::to_owned).collect();
        let sound = |part: &String| part.len() <= MAX_NAME && part.chars().all(allowed);
        let takes =
            "takes up to 32 names of parts of /readyz, separated by a colon, e.g. etcd:etcd-readiness";
        let fits = parts.len() <= MAX_PARTS && parts.iter().all(sound);
        fits.then_some(Self(parts)).ok_or(takes.to_owned())
    }

    /// Returns the request to `path` for all other parts, each with its name and its state.
    pub(super) fn request(&self, path: &'static str) -> PathAndQuery {
        let all = format!("{path}?verbose");
        let query = self.0.iter().fold(all, |query, part| query + "&exclude=" + part);
        // Names have no characters that a query can't hold.
        query.parse().unwrap_or_else(|_| PathAndQuery::from_static(path))
    }
}

/// Returns the reason, which begins with `code`, if the body names the parts that failed.
pub(super) fn failed_parts(code: &'static str, body: &[u8]) -> Option<Reason> {
    let text = String::from_utf8_lossy(body);
    let failed: Vec<&str> = names(&text, "[-]").collect();
    let reason = Reason::new(code);
    match failed.as_slice() {
        [] => None,
        // A name becomes part of the metric's label; a detail does not.
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

/// Returns the excluded names that the server does not know. Those of etcd are left out, because `/readyz` of some
/// servers lacks them.
pub(super) fn unknown_parts<'a>(exclude: &'a ReadyzParts, body: &[u8]) -> Vec<&'a str> {
    let text = String::from_utf8_lossy(body);
    let Some(line) = text.lines().find(|line| line.starts_with("warn: ")) else { return Vec::new() };
    let names = exclude.0.iter().map(String::as_str);
    names.filter(|name| !is_etcd(name) && line.contains(&format!("\"{name}\""))).collect()
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
    fn excluded_names_that_the_server_does_not_know_are_reported() {
        let exclude = ReadyzParts::parse("etcd:ping:etc:etcd-readiness").unwrap();
        let warning =
            r#"some health checks cannot be excluded: no matches for "etc","etcd","etcd-readiness""#;
        let body = format!("[+]ping excluded: ok\nwarn: {warning}\nreadyz check passed\n");
        assert_eq!(unknown_parts(&exclude, body.as_bytes()), ["etc"]);
        assert!(unknown_parts(&exclude, b"ok").is_empty());
    }

    #[test]
    fn each_part_is_left_out_by_its_name() {
        let parts = ReadyzParts::parse(" etcd: poststarthook/rbac_bootstrap.x-1 :").unwrap();
        let request = "/readyz?verbose&exclude=etcd&exclude=poststarthook/rbac_bootstrap.x-1";
        assert_eq!(parts.request("/readyz").as_str(), request);
        assert_eq!(ReadyzParts::parse("").unwrap().request("/livez").as_str(), "/livez?verbose");
        let many = "a:".repeat(33);
        for text in ["a b", "a&b", "a=b", "a#b", "ä", "a%20", "a,b", &many, &"a".repeat(129)] {
            assert!(ReadyzParts::parse(text).is_err(), "{text:?}");
        }
    }
}
