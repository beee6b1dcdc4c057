//! The frontends that HAProxy names in the error text of a refused configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// The maximum length of the text that is kept, in bytes.
const MAX_WORDS: usize = 256 << 10;
/// The maximum number of alerts that are read.
const MAX_ALERTS: usize = 1000;
/// The keywords that begin a section without servers and clients.
const SECTIONS: [&str; 8] =
    ["global", "defaults", "peers", "resolvers", "userlist", "cache", "program", "http-errors"];
/// The characters that end a word in an alert.
const BETWEEN: [char; 12] = [' ', '\t', '\'', '"', '/', ':', ',', ';', '(', ')', '[', ']'];

/// The text that HAProxy printed when it refused something. Its first alerts represent it in messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Words(String);

impl Words {
    /// Keeps the start of the text, up to the size limit.
    pub fn new(said: &[u8]) -> Self {
        Self(String::from_utf8_lossy(said.get(..MAX_WORDS).unwrap_or(said)).into_owned())
    }

    /// Returns the whole text.
    pub fn all(&self) -> &str {
        &self.0
    }

    /// Returns true if the text contains an alert.
    pub fn accuse(&self) -> bool {
        alerts(&self.0).next().is_some()
    }
}

impl fmt::Display for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let alerts: Vec<String> = alerts(&self.0).take(3).map(words_of).collect();
        let text = if alerts.is_empty() { self.0.trim().to_owned() } else { alerts.join("; ") };
        let text: String = text.chars().filter(|c| !c.is_control()).take(600).collect();
        f.write_str(if text.is_empty() { "see its log" } else { &text })
    }
}

fn alerts(said: &str) -> impl Iterator<Item = &str> {
    said.lines().filter(|line| line.contains("[ALERT]")).take(MAX_ALERTS)
}

/// Returns the owners of the sections of `config` that the alerts in `said` name, each with the text of an
/// alert. An alert names a section by a line of the file, whose name is one of `files`, or by the section's
/// own name. `owners` maps the section names that count to their owners.
pub fn blamed(
    said: &str,
    config: &str,
    files: &[&str],
    owners: &BTreeMap<&str, &str>,
) -> BTreeMap<String, String> {
    let mut named = BTreeMap::new();
    for alert in alerts(said) {
        let by_line = lines_named(alert, files).into_iter().filter_map(|line| section_at(config, line));
        let by_name = alert.split(BETWEEN);
        let meant: BTreeSet<&str> =
            by_line.chain(by_name).filter_map(|name| owners.get(name).copied()).collect();
        for owner in meant {
            named.entry(owner.to_owned()).or_insert_with(|| words_of(alert));
        }
    }
    named
}

/// Returns the lines of these files that an alert names, as in `[file:12]`.
fn lines_named(alert: &str, files: &[&str]) -> Vec<usize> {
    let at = |part: &str| {
        let (place, _) = part.split_once(']')?;
        let (file, line) = place.rsplit_once(':')?;
        files.contains(&file).then(|| line.parse().ok()).flatten()
    };
    alert.split('[').filter_map(at).collect()
}

/// Returns the name of the section that contains a line, counted from 1.
fn section_at(config: &str, line: usize) -> Option<&str> {
    let mut section = None;
    let mut lines = 0;
    for text in config.lines().take(line) {
        lines += 1;
        let mut words = text.split_whitespace();
        match words.next() {
            Some("frontend" | "backend" | "listen") => section = words.next(),
            Some(word) if SECTIONS.contains(&word) => section = None,
            _ => {}
        }
    }
    section.filter(|_| lines == line)
}

/// Returns the text of an alert in one line, without HAProxy's prefix.
fn words_of(alert: &str) -> String {
    let text = alert.split_once(" : ").map_or(alert, |(_, text)| text).trim();
    text.chars().filter(|c| !c.is_control()).take(300).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CONFIG: &str = "global\n  maxconn 9\nfrontend k8s_a_web_80_frontend\n  bind :::80 v4v6\n  default_backend k8s_a_web_80\n\n\
        backend k8s_a_web_80\n  server n1 10.0.0.1:1\nfrontend k8s_b_db_90_frontend\n  bind :::90\nfrontend stats\n  bind :8404\n";

    fn owners() -> BTreeMap<&'static str, &'static str> {
        [
            ("k8s_a_web_80", "a"),
            ("k8s_a_web_80_frontend", "a"),
            ("k8s_b_db_90", "b"),
            ("k8s_b_db_90_frontend", "b"),
        ]
        .into()
    }

    fn named(said: &str) -> Vec<String> {
        blamed(said, CONFIG, &["/etc/x.cfg", "x.new"], &owners()).into_keys().collect()
    }

    #[test]
    fn haproxys_own_words_name_a_section() {
        for (said, expected) in [
            // HAProxy 2.6 and 3.2: a port that can't be bound.
            (
                "[ALERT]    (18907) : Binding [b.cfg:14] for frontend k8s_a_web_80_frontend: cannot bind socket \
                 (Cannot assign requested address) for [192.0.2.1:443]",
                vec!["a"],
            ),
            (
                "[ALERT]    (1) : Starting frontend k8s_b_db_90_frontend: cannot bind socket [0.0.0.0:90]",
                vec!["b"],
            ),
            // A line of the validated file, and a line of the loaded file.
            (
                "[ALERT]    (9) : config : parsing [x.new:4] : 'bind :::80' in section 'frontend' : unable to load",
                vec!["a"],
            ),
            ("[ALERT]    (9) : config : parsing [/etc/x.cfg:8] : 'server n1' : unknown keyword", vec!["a"]),
            ("[ALERT]    (9) : config : [/etc/x.cfg:10] : 'bind :::90' : oops", vec!["b"]),
            // Two frontends at once.
            (
                "[ALERT] (9) : config : parsing [x.new:4] : x\n[NOTICE] k8s\n[ALERT] (9) : config : [x.new:10] : y\n",
                vec!["a", "b"],
            ),
            ("[ALERT]    (9) : config : 'server k8s_b_db_90/n1' : unable to track", vec!["b"]),
            // No owner: a line of another file, a hand-written section, the global section, and text that is
            // no alert.
            ("[ALERT]    (9) : config : parsing [/etc/other.cfg:4] : x", vec![]),
            ("[ALERT]    (9) : config : parsing [x.new:12] : x", vec![]),
            ("[ALERT]    (9) : config : parsing [x.new:2] : x", vec![]),
            ("[ALERT]    (9) : config : parsing [x.new:99] : x", vec![]),
            ("[ALERT]    (9) : config : Fatal errors found in configuration.", vec![]),
            ("[WARNING]  (9) : config : frontend 'k8s_a_web_80_frontend' : x", vec![]),
            ("[ALERT]    (9) : k8s_a_web_800 k8s_a_web", vec![]),
        ] {
            assert_eq!(named(said), expected, "{said}");
        }
        let said = "[ALERT]    (9) : config : parsing [x.new:4] : no such file";
        let why = blamed(said, CONFIG, &["x.new"], &owners());
        assert_eq!(why["a"], "config : parsing [x.new:4] : no such file");
    }

    proptest! {
        #[test]
        fn any_words_are_read(
            said in "(\\[ALERT\\]|x\\.new|k8s_a_web_80|[:/\\[\\] 0-9]|\n|\\PC){0,40}",
            config in "((frontend|backend|global|bind) ?[a-z0-9_]{0,5}\n){0,9}",
        ) {
            for (owner, why) in blamed(&said, &config, &["x.new"], &owners()) {
                prop_assert!(owners().values().any(|known| *known == owner));
                prop_assert!(!why.contains(char::is_control));
            }
        }
    }
}
