//! The documented configurations are valid, and the documents show the tested files.

use crate::nginx;
use crate::site::{Site, documented};
use nodegate_testbed::haproxy;
use std::fs;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

#[test]
fn haproxy_accepts_the_documented_configurations() {
    let site = Site::new();
    for name in documented("haproxy") {
        haproxy::check(&site.configuration(&name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn nginx_accepts_the_documented_configurations() {
    let site = Site::new();
    for name in documented("nginx") {
        nginx::check(&site, &name).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

/// The language of the code blocks of each program.
const FENCES: [(&str, &str); 8] = [
    ("apache", "apache"),
    ("bgp", ""),
    ("caddy", "caddyfile"),
    ("envoy", "yaml"),
    ("haproxy", "haproxy"),
    ("keepalived", ""),
    ("nginx", "nginx"),
    ("traefik", "yaml"),
];

/// Shows that the document has each configuration file word for word; of `HAProxy`'s, one as a whole and the
/// others from the backend on.
#[test]
fn load_balancers_md_shows_the_tested_configurations() {
    let text = fs::read_to_string(format!("{ROOT}/docs/load-balancers.md")).unwrap();
    let known = |name: &str| FENCES.iter().any(|(program, _)| *program == name);
    let entries = fs::read_dir(format!("{ROOT}/docs/load-balancers")).unwrap().map(Result::unwrap);
    let directories = entries.filter(|entry| entry.path().is_dir());
    directories.for_each(|entry| assert!(known(&entry.file_name().to_string_lossy()), "{entry:?}"));
    let mut whole = 0;
    for (program, fence) in FENCES {
        for name in documented(program) {
            let file = fs::read_to_string(format!("{ROOT}/docs/load-balancers/{name}")).unwrap();
            let backend = file.find("\nbackend nodes\n").map_or(0, |start| start + 1);
            let shows = |part: &str| text.contains(&format!("\n```{fence}\n{}\n```\n", part.trim_end()));
            let shown = shows(&file) || shows(&file[backend..]);
            assert!(shown, "docs/load-balancers.md does not show {name} as it is: copy it there");
            assert!(
                text.contains(&format!("(load-balancers/{name})")),
                "docs/load-balancers.md has no link to {name}"
            );
            whole += usize::from(program == "haproxy" && shows(&file));
        }
    }
    assert!(whole > 0, "one is to be shown whole, to copy");
}
