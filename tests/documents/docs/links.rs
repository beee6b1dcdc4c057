//! All links have a target, and all named files and make targets exist.

use super::pages::{self, Page, files_below};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Returns GitHub's anchors of a page's headings, and those that it names itself.
fn anchors(page: &Page) -> BTreeSet<String> {
    let headings = page.prose.lines().filter(|line| line.starts_with('#'));
    let anchor = |line: &str| {
        let text = line.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        text.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect::<String>()
    };
    let named = page.prose.split("<a id=\"").skip(1).filter_map(|rest| rest.split('"').next());
    headings.map(anchor).chain(named.map(str::to_owned)).collect()
}

/// Returns the targets of `[text](target)`, except for other sites.
fn links(page: &Page) -> impl Iterator<Item = &str> {
    let targets = page.prose.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets.filter(|target| !target.contains("://"))
}

/// Returns the path from the top of the repository of a file that a page names; `None` if it is not there.
fn resolve(page: &Page, target: &str) -> Option<PathBuf> {
    let root = Path::new(pages::ROOT).canonicalize().unwrap();
    let path = root.join(&page.path).parent()?.join(target).canonicalize().ok()?;
    path.strip_prefix(root).ok().map(Path::to_owned)
}

#[test]
fn every_link_in_the_documents_has_a_target() {
    let pages = pages::all();
    let anchors: BTreeMap<&str, _> = pages.iter().map(|page| (page.path.as_str(), anchors(page))).collect();
    let mut broken = Vec::new();
    for page in &pages {
        for link in links(page) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = if file.is_empty() { Some(PathBuf::from(&page.path)) } else { resolve(page, file) };
            let known = |path: PathBuf| anchors.get(path.to_str()?).map(|known| known.contains(anchor));
            if !path.is_some_and(|path| anchor.is_empty() || known(path) == Some(true)) {
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
        .flat_map(|page| links(page).filter_map(|link| resolve(page, link)).collect::<Vec<_>>())
        .collect();
    let files = files_below(&Path::new(pages::ROOT).join("docs/load-balancers"));
    for file in files.iter().filter(|file| file.extension().is_none_or(|end| end != "md")) {
        assert!(linked.contains(file.strip_prefix(pages::ROOT).unwrap()), "no page names {}", file.display());
    }
}

/// Shows that the order of the site's pages has each document once, which `make generate WHAT=site` needs.
#[test]
fn every_document_is_a_page_of_the_site() {
    let summary = Page::read("packaging/site/SUMMARY.md");
    let mut listed: Vec<&str> = links(&summary).collect();
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
        let is_known = |layer: &&str| ["code", "simulation", "program", "real"].contains(layer);
        assert!(layers.iter().all(is_known), "{row:?}");
        assert_eq!(layers.contains(&"real"), real, "{row:?}");
    }
    assert!(found > 60, "only {found} were found");
}
