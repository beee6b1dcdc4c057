//! Every combination of components renders, has no field that Kubernetes does not know, and is accepted by
//! kubectl; the base works by its URL.

use super::support::{Json, Manifests, ROOT, install, knows_every_field, kustomize, overlay, render};
use nodegate_testbed::Cluster;
use nodegate_testbed::programs::run;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Returns the names of the components.
fn components() -> Vec<String> {
    let entries = fs::read_dir(format!("{ROOT}/manifests/components")).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert!(names.len() >= 3, "{names:?}");
    names
}

/// Returns every subset of the components, as lines of an overlay.
fn combinations() -> Vec<String> {
    let all = components();
    let subset = |bits: usize| {
        let chosen = all.iter().enumerate().filter(|(n, _)| bits >> n & 1 == 1);
        let paths: Vec<String> = chosen.map(|(_, name)| format!("manifests/components/{name}")).collect();
        format!("components: [{}]", paths.join(", "))
    };
    (0..1 << all.len()).map(subset).collect()
}

#[test]
fn every_combination_of_components_renders_to_known_objects() {
    for lines in combinations() {
        let manifests = overlay(&lines);
        for object in &manifests.0 {
            knows_every_field(object);
        }
        let names: BTreeSet<_> = manifests.names().into_iter().collect();
        assert_eq!(names.len(), manifests.0.len(), "{lines}: no object twice");
        let base: BTreeSet<_> = install().names().into_iter().collect();
        assert!(names.is_superset(&base), "{lines}: a component adds and changes, and takes nothing away");
        let pods = manifests.0.iter().filter(|object| object.at("/kind") == "DaemonSet");
        assert_eq!(pods.count(), 1, "{lines}");
    }
}

/// Shows that kubectl accepts the objects. It needs an API server, from which it reads the kinds and fields.
#[test]
fn kubectl_accepts_every_combination_of_components() {
    let cluster = Cluster::start();
    let file = cluster.dir.path().join("rendered.yaml");
    let paths: Vec<String> = components().iter().map(|name| format!("manifests/components/{name}")).collect();
    // Without components, each alone, and all of them, because kubectl is slow.
    let chosen = [&[][..]].into_iter().chain(paths.chunks(1)).chain([&paths[..]]);
    for lines in chosen.map(|paths| format!("components: [{}]", paths.join(", "))) {
        let manifests = overlay(&lines);
        // kubectl takes a file that begins with a brace for JSON as a whole.
        let documents: Vec<String> = manifests.0.iter().map(|object| format!("---\n{object}\n")).collect();
        fs::write(&file, documents.concat()).unwrap();
        let args = ["apply", "--dry-run=client", "--output=name", "--filename", file.to_str().unwrap()];
        let taken = cluster.admin().run(&args).unwrap_or_else(|error| panic!("{lines}: {error}"));
        assert_eq!(taken.lines().count(), manifests.0.len(), "{lines}");
    }
}

/// Shows what `kubectl apply -k 'https://github.com/nodegate/nodegate//manifests/base?ref=v0.1.0'` does, with
/// a local repository instead: kustomize fetches it with git and builds the directory behind `//`.
#[test]
fn the_base_and_its_components_can_be_used_by_url() {
    let directory = tempfile::tempdir().unwrap();
    let repository = directory.path().join("nodegate");
    let path = repository.to_str().unwrap();
    run(&format!("git init --quiet --initial-branch=main {path}"));
    let copied = Command::new("cp").arg("-r").arg(format!("{ROOT}/manifests")).arg(path).status().unwrap();
    assert!(copied.success());
    run(&format!("git -C {path} add manifests"));
    let who = "-c user.name=test -c user.email=test@example.com -c commit.gpgsign=false";
    run(&format!("git -C {path} {who} commit --quiet --message=manifests"));
    run(&format!("git -C {path} tag v0.1.0"));
    let url = |what: &str| format!("file://{path}//manifests/{what}?ref=v0.1.0");

    assert_eq!(Manifests::parse(&kustomize(Path::new(&url("base")))).0, install().0);

    let overlay_directory = directory.path().join("overlay");
    fs::create_dir(&overlay_directory).unwrap();
    let in_lb = |base: &str, services: &str, stay: &str| {
        format!(
            "namespace: lb\nresources: ['{base}']\ncomponents: ['{services}']\ntransformers: ['{stay}']\n"
        )
    };
    let lines = in_lb(&url("base"), &url("components/services"), &url("leases-stay"));
    fs::write(overlay_directory.join("kustomization.yaml"), lines).unwrap();
    let by_url = Manifests::parse(&kustomize(&overlay_directory));
    let lines = in_lb("manifests/base", "manifests/components/services", "manifests/leases-stay");
    assert_eq!(by_url.0, Manifests::parse(&render(&lines)).0);
}
