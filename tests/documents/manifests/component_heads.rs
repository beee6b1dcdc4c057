//! The overlays that the heads of manifests/components show are ones that kustomize takes.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const REPOSITORY: &str = concat!(env!("CARGO_PKG_REPOSITORY"), "//");
const REF: &str = concat!("?ref=v", env!("CARGO_PKG_VERSION"));

#[test]
fn each_overlay_can_be_rendered() {
    for component in fs::read_dir(format!("{ROOT}/manifests/components")).unwrap() {
        let name = component.unwrap().file_name().into_string().unwrap();
        let file =
            fs::read_to_string(format!("{ROOT}/manifests/components/{name}/kustomization.yaml")).unwrap();
        let overlays = overlays(&file);
        assert!(!overlays.is_empty(), "the head of {name} shows no overlay");
        for overlay in overlays {
            render(&name, &overlay);
        }
    }
}

/// Runs of comment lines that are indented and begin with a field of a kustomization.
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

fn render(component: &str, overlay: &str) {
    let mut lines = overlay.replace(REPOSITORY, "").replace(REF, "");
    assert!(!lines.contains("https:"), "{component}: not this repository's {REF}: {overlay}");
    for (field, value) in
        [("resources", "base".to_owned()), ("components", format!("components/{component}"))]
    {
        if !lines.contains(&format!("{field}: [")) {
            lines = format!("{field}: [manifests/{value}]\n{lines}");
        }
    }
    let directory = tempfile::tempdir().unwrap();
    // kustomize takes no absolute paths to other directories, but it follows links.
    symlink(format!("{ROOT}/manifests"), directory.path().join("manifests")).unwrap();
    fs::write(directory.path().join("kustomization.yaml"), &lines).unwrap();
    let output = Command::new("kubectl").arg("kustomize").arg(directory.path()).output().unwrap();
    assert!(output.status.success(), "{component}: {lines}\n{}", String::from_utf8_lossy(&output.stderr));
}
