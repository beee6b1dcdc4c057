//! The settings that the operator's head gives to all servers by `default-server`. HAProxy applies them to
//! the servers in the file, but not to servers that are added at run time.

/// The keywords that begin a section other than `defaults`. Some of these have a `default-server`, too.
const SECTIONS: [&str; 19] = [
    "acme",
    "backend",
    "cache",
    "crt-store",
    "fcgi-app",
    "frontend",
    "global",
    "healthcheck",
    "http-errors",
    "listen",
    "log-forward",
    "log-profile",
    "mailers",
    "peers",
    "program",
    "resolvers",
    "ring",
    "traces",
    "userlist",
];

/// Returns the settings that servers inherit in a backend that begins where `config` ends. The last
/// `defaults` section counts. Returns `None` if that takes more than splitting words, or if a server can't
/// get the settings at run time.
pub(crate) fn default_server(config: &str) -> Option<String> {
    let (mut within, mut readable) = (false, true);
    let mut inherited: Vec<&str> = Vec::new();
    for line in config.lines() {
        let mut words = line.split_whitespace().take_while(|word| !word.starts_with('#'));
        match words.next() {
            Some("defaults") => {
                inherited.clear();
                // One section may inherit from another.
                (within, readable) = (true, words.all(|word| word != "from"));
            }
            Some(section) if SECTIONS.contains(&section) => within = false,
            Some("default-server") if within => inherited.extend(words),
            // A condition of the preprocessor.
            Some(word) if word.starts_with('.') => readable = false,
            _ => {}
        }
    }
    let quoted = |word: &&str| word.contains(['"', '\'', '\\', '$']);
    (readable && !inherited.iter().any(quoted)).then(|| inherited.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_defaults_section_counts() {
        let of = |config: &str| default_server(config);
        assert_eq!(of("").as_deref(), Some(""));
        let two = "defaults\n  default-server inter 1s\ndefaults web\n  mode http\n  default-server check inter 2s # fast\n\
            default-server fall 5\npeers p\n  default-server ssl\nbackend b\n  default-server weight 7\n";
        assert_eq!(of(two).as_deref(), Some("check inter 2s fall 5"));
        assert_eq!(of("defaults a\ndefaults b from a\n"), None);
        assert_eq!(of("defaults\n  default-server source \"$ADDRESS\"\n"), None);
        assert_eq!(of(".if feature(OPENSSL)\ndefaults\n  default-server ssl\n.endif\n"), None);
    }
}
