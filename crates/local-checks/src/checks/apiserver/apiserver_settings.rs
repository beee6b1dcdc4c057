//! The settings of the check: which API server, and which parts of its answer count.

use crate::url::host_and_port;
use http::Uri;
use http::uri::{PathAndQuery, Scheme};
use std::str::FromStr;

/// The most parts that may be left out, and the length of the longest name.
const MAX_PARTS: usize = 32;
const MAX_NAME: usize = 128;

/// The `https://` URL of an API server, without a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ApiServerUrl(Uri);

/// Names of parts of `/readyz`, such as `etcd`, separated by `:`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReadyzParts(Vec<String>);

impl ApiServerUrl {
    pub(super) fn uri(&self) -> &Uri {
        &self.0
    }
}

impl Default for ApiServerUrl {
    fn default() -> Self {
        Self(Uri::from_static("https://127.0.0.1:6443"))
    }
}

impl FromStr for ApiServerUrl {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const TAKES: &str = "takes the URL of an API server without a path, e.g. https://127.0.0.1:6443";
        let uri: Uri = text.parse().map_err(|_| TAKES)?;
        let authority = uri.authority().ok_or(TAKES)?;
        if uri.scheme() != Some(&Scheme::HTTPS)
            || uri.path_and_query().is_some_and(|path| path.as_str() != "/")
        {
            return Err(TAKES);
        }
        host_and_port(authority, 443).map_err(|_| TAKES)?;
        Ok(Self(uri))
    }
}

impl ReadyzParts {
    pub(super) fn contains(&self, part: &str) -> bool {
        self.0.iter().any(|excluded| excluded == part)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// Returns the request to `path` for all other parts, each with its name and its state.
    pub(super) fn request(&self, path: &'static str) -> PathAndQuery {
        let all = format!("{path}?verbose");
        let query = self.0.iter().fold(all, |query, part| query + "&exclude=" + part);
        // Names have no characters that a query can't hold.
        query.parse().unwrap_or_else(|_| PathAndQuery::from_static(path))
    }
}

impl FromStr for ReadyzParts {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        let parts = text.split(':').map(str::trim).filter(|part| !part.is_empty());
        let parts: Vec<String> = parts.map(str::to_owned).collect();
        let sound = |part: &String| part.len() <= MAX_NAME && part.chars().all(allowed);
        if parts.len() <= MAX_PARTS && parts.iter().all(sound) {
            Ok(Self(parts))
        } else {
            Err("takes up to 32 names of parts of /readyz, separated by a colon, e.g. etcd:etcd-readiness")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_without_a_path() {
        for text in
            ["https://10.0.0.1", "https://[::1]:6443", "https://api.example:8443", "https://10.0.0.1:6443/"]
        {
            assert_eq!(text.parse::<ApiServerUrl>().unwrap().uri(), text);
        }
    }

    #[test]
    fn other_urls_are_refused() {
        let refused = |text: &str| text.parse::<ApiServerUrl>().unwrap_err();
        let form = "takes the URL of an API server without a path, e.g. https://127.0.0.1:6443";
        for text in [
            "",
            "127.0.0.1:6443",
            "http://127.0.0.1:6443",
            "https://127.0.0.1:6443/readyz",
            "https://127.0.0.1:6443/?verbose",
            "https://me@127.0.0.1:6443",
            "https://:6443",
            "https://127.0.0.1:0",
            "https://127.0.0.1:65536",
        ] {
            assert_eq!(refused(text), form, "{text:?}");
        }
    }

    #[test]
    fn each_part_is_left_out_by_its_name() {
        let parts: ReadyzParts = " etcd: poststarthook/rbac_bootstrap.x-1 :".parse().unwrap();
        let request = "/readyz?verbose&exclude=etcd&exclude=poststarthook/rbac_bootstrap.x-1";
        assert_eq!(parts.request("/readyz").as_str(), request);
        assert_eq!(ReadyzParts::default().request("/livez").as_str(), "/livez?verbose");
        assert!(parts.contains("etcd") && !parts.contains("etcd-readiness"));
        assert_eq!("".parse::<ReadyzParts>().unwrap().names().count(), 0);
        let many = "a:".repeat(33);
        for text in ["a b", "a&b", "a=b", "a#b", "ä", "a%20", "a,b", &many, &"a".repeat(129)] {
            assert!(text.parse::<ReadyzParts>().is_err(), "{text:?}");
        }
    }
}
