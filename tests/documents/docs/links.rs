//! All links have a target, and all named files and make targets exist.

use super::pages::{self, Page};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Returns GitHub's anchors of a page's headings, and those that it names itself.
fn anchors(page: &Page) -> BTreeSet<String> {
    let mut seen = BTreeMap::<String, usize>::new();
    let headings = page.prose.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let text = line.trim_start_matches('#').trim().to_lowercase();
        let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
        kept.map(|c| if c == ' ' { '-' } else { c }).collect::<String>()
    };
    let named = page.prose.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next());
    let named: Vec<String> = named.map(str::to_owned).collect();
    let unique = |name: String| {
        let count = seen.entry(name.clone()).and_modify(|count| *count += 1).or_default();
        if *count == 0 { name } else { format!("{name}-{count}") }
    };
    headings.map(anchor).map(unique).chain(named).collect()
}

/// Returns the targets of `[text](target)`, except for other sites.
fn links(page: &Page) -> impl Iterator<Item = &str> {
    let targets = page.prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://"))
}

/// Resolves a path relative to a page into one from the top of the repository.
fn resolve(page: &Page, target: &str) -> PathBuf {
    let mut path = Path::new(&page.path).parent().unwrap().to_owned();
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => assert!(path.pop(), "{}: {target} leaves the repository", page.path),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

#[test]
fn every_link_in_the_documents_has_a_target() {
    let pages = pages::all();
    let anchors: BTreeMap<&str, _> = pages.iter().map(|page| (page.path.as_str(), anchors(page))).collect();
    let mut broken = Vec::new();
    for page in &pages {
        for link in links(page) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = if file.is_empty() { PathBuf::from(&page.path) } else { resolve(page, file) };
            let there = Path::new(pages::ROOT).join(&path).exists();
            let known = anchors.get(path.to_str().unwrap());
            if !there || !(anchor.is_empty() || known.is_some_and(|known| known.contains(anchor))) {
                broken.push(format!("{}: {link}", page.path));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Shows that a page leads to each configuration of a load balancer, which `tests/balancers` runs.
#[test]
fn every_configuration_of_a_load_balancer_is_on_a_page() {
    let linked: BTreeSet<PathBuf> = pages::all()
        .iter()
        .flat_map(|page| links(page).map(|link| resolve(page, link)).collect::<Vec<_>>())
        .collect();
    let directory = Path::new(pages::ROOT).join("docs/load-balancers");
    let programs = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let files = programs.filter(|path| path.is_dir()).flat_map(|path| std::fs::read_dir(path).unwrap());
    for file in files.map(|entry| entry.unwrap().path()) {
        assert!(linked.contains(file.strip_prefix(pages::ROOT).unwrap()), "no page names {}", file.display());
    }
}

/// Shows that the order of the site's pages has each document once, which `make generate WHAT=site` needs.
#[test]
fn every_document_is_a_page_of_the_site() {
    let summary = pages::read("packaging/site/SUMMARY.md");
    let mut listed: Vec<&str> =
        summary.split("](").skip(1).filter_map(|rest| rest.split(')').next()).collect();
    listed.sort_unstable();
    let pages = pages::all();
    assert_eq!(listed, pages.iter().map(|page| page.path.as_str()).collect::<Vec<_>>());
}

#[test]
fn every_file_that_the_documents_name_exists() {
    let tops =
        ["benches/", "crates/", "docs/", "examples/", "hack/", "manifests/", "packaging/", "src/", "tests/"];
    let mut found = 0;
    for page in pages::all() {
        // Names with a placeholder are no files.
        let files = page.code_spans().filter(|code| !code.contains(['<', '*', ' ', '…']));
        for file in files.filter(|code| tops.iter().any(|top| code.starts_with(top))) {
            assert!(Path::new(pages::ROOT).join(file).exists(), "{}: there is no {file}", page.path);
            found += 1;
        }
    }
    assert!(found > 10, "only {found} were found");
}

#[test]
fn every_make_target_that_the_documents_name_exists() {
    let makefile = pages::read("Makefile");
    for page in pages::all() {
        let code = page.code_spans().chain(page.blocks.iter().map(|block| block.body.as_str()));
        let targets = code.flat_map(|code| code.split("make ").skip(1));
        for target in targets.filter_map(|rest| rest.split([' ', '\n', '`']).next()) {
            // `make -n demo` and the like have an option before the target.
            let known = target.starts_with('-') || makefile.contains(&format!("\n{target}:"));
            assert!(known, "{}: there is no make {target}", page.path);
        }
    }
}

/// Shows that each test that the table of promises names exists, on a layer that it has. A name without a folder is
/// in that of the name before it.
#[test]
fn every_test_of_the_table_of_promises_exists() {
    let text = pages::read("docs/architecture.md");
    let section =
        text.split("\n## Promises and their tests\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().map(|line| line.trim_matches('|').split(" | ").collect::<Vec<_>>());
    let mut found = 0;
    for row in rows.filter(|row| matches!(row[..], [_, test, _] if test.contains('`'))) {
        let (mut folder, mut real) = (PathBuf::new(), false);
        for name in row[1].split('`').skip(1).step_by(2).filter(|name| !name.starts_with("make ")) {
            let path = if name.contains('/') { PathBuf::from(name) } else { folder.join(name) };
            assert!(Path::new(pages::ROOT).join(&path).exists(), "{row:?}: there is no {}", path.display());
            real |= path.starts_with("tests/real");
            folder = path.parent().unwrap().to_owned();
            found += 1;
        }
        let layers: Vec<&str> = row[2].trim().split(", ").collect();
        assert!(
            layers.iter().all(|layer| ["code", "simulation", "program", "real"].contains(layer)),
            "{row:?}"
        );
        assert_eq!(layers.contains(&"real"), real, "{row:?}");
    }
    assert!(found > 60, "only {found} were found");
}
