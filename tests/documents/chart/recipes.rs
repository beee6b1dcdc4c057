//! The chart accepts the values that the documents show.

use super::template;
use crate::docs::pages::{self, Page};
use crate::manifests::Json;
use serde_json::Value;

/// Returns the bodies of a page's YAML blocks.
fn blocks(path: &str) -> Vec<String> {
    let blocks = Page::read(path).blocks.into_iter();
    blocks.filter(|block| block.language == "yaml").map(|block| block.body).collect()
}

fn values(yaml: &str) -> Value {
    serde_saphyr::from_str(&yaml.replace("sha256:…", &format!("sha256:{}", "7".repeat(64)))).unwrap()
}

#[test]
fn the_chart_accepts_all_values_in_the_documents() {
    let mut found = 0;
    for page in pages::all() {
        for block in blocks(&page.path).iter().filter(|block| block.lines().any(|line| line == "settings:")) {
            template(&values(block)).unwrap_or_else(|error| panic!("{}: {block}: {error}", page.path));
            found += 1;
        }
    }
    assert!(found >= 3, "only {found} were found");
}

#[test]
fn the_chart_accepts_the_values_of_the_first_page() {
    let blocks = blocks("docs/getting-started.md");
    let [first] = &blocks[..] else { panic!("{blocks:?}") };
    let mut values = values(first);
    values["evictionGate"]["enabled"] = true.into();
    let rendered = template(&values).unwrap();
    let image = |kind: &str, name: &str| {
        let object = rendered.the(kind, name);
        object.at("/spec/template/spec/containers/0/image").as_str().unwrap().to_owned()
    };
    let version = env!("CARGO_PKG_VERSION");
    assert_eq!(image("DaemonSet", "nodegate"), format!("registry.example.com/nodegate:{version}"));
    let gate = format!("registry.example.com/nodegate-eviction-gate:{version}");
    assert_eq!(image("Deployment", "nodegate-eviction-gate"), gate);
}
