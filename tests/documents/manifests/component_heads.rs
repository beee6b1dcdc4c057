//! kustomize accepts the overlays in the head comments of manifests/components.

use super::support::{ROOT, render};
use std::fs;

const REPOSITORY: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "//");
const REF: &str = concat!("?ref=v", env!("CARGO_PKG_VERSION"));

#[test]
fn each_overlay_in_the_head_of_a_component_can_be_rendered() {
    for component in fs::read_dir(format!("{ROOT}/manifests/components")).unwrap() {
        let name = component.unwrap().file_name().into_string().unwrap();
        let file =
            fs::read_to_string(format!("{ROOT}/manifests/components/{name}/kustomization.yaml")).unwrap();
        let overlays = overlays(&file);
        assert!(!overlays.is_empty(), "the head of {name} shows no overlay");
        for overlay in overlays {
            is_rendered(&name, &overlay);
        }
    }
}

/// Returns the runs of indented comment lines that begin with a field of a kustomization.
fn overlays(file: &str) -> Vec<String> {
    let head = file.lines().take_while(|line| line.starts_with('#'));
    let text: Vec<_> = head.map(|line| line.strip_prefix("#   ").unwrap_or_default()).collect();
    let blocks = text.split(|line| line.is_empty()).map(|block| block.join("\n"));
    blocks
        .filter(|block| {
            ["resources:", "components:", "patches:"].iter().any(|field| block.starts_with(field))
        })
        .collect()
}

/// Returns the overlay with this source tree in place of the URL.
pub(crate) fn without_url(overlay: &str) -> String {
    let lines = overlay.replace(REPOSITORY, "").replace(REF, "");
    assert!(!lines.contains("https:"), "not this repository's {REF}: {overlay}");
    lines
}

fn is_rendered(component: &str, overlay: &str) {
    let mut lines = without_url(overlay);
    for (field, value) in
        [("resources", "base".to_owned()), ("components", format!("components/{component}"))]
    {
        if !lines.contains(&format!("{field}: [")) {
            lines = format!("{field}: [manifests/{value}]\n{lines}");
        }
    }
    eprintln!("{component}: {lines}");
    render(&lines);
}
