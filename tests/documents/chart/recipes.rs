//! The documents show values of the chart beside overlays; both give the same objects.

use super::same_objects::are_the_same;
use super::{read, template};
use crate::docs::pages::Page;
use crate::manifests::{Json, Manifests, render, without_url};
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
fn documented_values_and_overlays_give_the_same_objects() {
    for page in ["docs/security.md", "docs/configuration.md"] {
        let blocks = blocks(page);
        let pairs = blocks.windows(2).filter(|pair| pair[0].starts_with("settings:"));
        let pairs: Vec<_> = pairs.collect();
        assert!(!pairs.is_empty(), "{page} shows no values with an overlay below");
        for pair in pairs {
            let mut values = values(&pair[0]);
            values["createNamespace"] = true.into();
            let kustomize = Manifests::parse(&render(&without_url(&pair[1])));
            are_the_same(page, &template(&values).unwrap(), &kustomize);
        }
    }
}

#[test]
fn the_chart_accepts_the_values_in_its_readme() {
    let blocks = blocks("charts/nodegate/README.md");
    assert!(!blocks.is_empty() && read("README.md").contains(&blocks[0]));
    for block in blocks {
        template(&values(&block)).unwrap_or_else(|error| panic!("{block}: {error}"));
    }
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
