//! Tests every block of configuration in the documents: it is part of a tested file, or it names its source.

// - a block that is, line by line, in a file of `TRIED`, which the tests run;
// - a kustomization, which is built here;
// - values of the chart, which `tests/documents/chart` renders;
// - ```` ```text tried-by: tests/… ````: a test that runs the same configuration;
// - ```` ```text not-tried: https://… ````: the source; the section says "not tried" to the reader.

use super::pages::{self, Block, Page, files_below, read};
use nodegate_testbed::programs::try_run;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The directories of files that tests run completely.
const TRIED: [&str; 3] = ["docs/load-balancers", "examples/haproxy", "manifests"];

/// The languages of configurations. Blocks in other languages are output or commands.
const LANGUAGES: [&str; 5] = ["haproxy", "nginx", "apache", "caddyfile", "yaml"];

/// The pages whose blocks without a language are all configurations.
const COOKBOOK: &str = "docs/load-balancers";

/// The URLs from which kustomizations take the manifests: the directory, and a file.
const PUBLISHED: &str = "https://github.com/nodegate/nodegate//";
const RELEASE: &str = concat!("?ref=v", env!("CARGO_PKG_VERSION"));
const FILE: &str =
    concat!("https://raw.githubusercontent.com/nodegate/nodegate/v", env!("CARGO_PKG_VERSION"), "/");

fn is_configuration(page: &Page, block: &Block) -> bool {
    let of_chart = block.body.lines().any(|line| line.starts_with("settings:"));
    let unnamed = block.language.is_empty() || block.language == "text";
    (LANGUAGES.contains(&block.language.as_str()) && !of_chart)
        || (page.path.starts_with(COOKBOOK) && unnamed)
}

/// Normalises the text, so that indentation and empty lines do not matter.
fn lines(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.fold("\n".to_owned(), |all, line| all + line + "\n")
}

/// Returns the text of the section from its heading to this block.
fn before(page: &Page, block: &Block) -> String {
    let text = read(&page.path);
    let lines: Vec<&str> = text.lines().take(block.line).collect();
    let heading = lines.iter().rposition(|line| line.starts_with("## ")).unwrap_or_default();
    lines[heading..].join(" ")
}

fn wrong(page: &Page, block: &Block, tried: &[String]) -> Option<String> {
    let (is_right, why) = if let Some(source) = block.note.strip_prefix("not-tried:") {
        let says = before(page, block).to_lowercase().contains("not tried");
        let has_both = says && source.trim().starts_with("https://");
        (has_both, "names no source, or its section does not say \"not tried\"")
    } else if let Some(test) = block.note.strip_prefix("tried-by:") {
        (Path::new(pages::ROOT).join(test.trim()).is_file(), "names a test that there is not")
    } else if block.body.lines().any(|line| line.starts_with("resources:")) {
        (kustomize(&block.body), "is refused by kubectl kustomize")
    } else {
        let shown = lines(&block.body);
        let is_tried = tried.iter().any(|file| file.contains(&shown));
        (is_tried, "is in no file that is tried, and names no test and no source")
    };
    (!is_right).then(|| format!("{}:{}: this block {why}", page.path, block.line))
}

/// Returns true if kubectl can build it, with this repository in place of the published one.
fn kustomize(text: &str) -> bool {
    let directory = tempfile::tempdir().unwrap();
    let up = "../".repeat(directory.path().components().count() - 1);
    let here = format!("{up}{}/", pages::ROOT.trim_start_matches('/'));
    let text = text.replace(PUBLISHED, &here).replace(RELEASE, "").replace(FILE, &here);
    assert!(!text.contains("https://"), "neither this release's directory nor its file: {text}");
    fs::write(directory.path().join("kustomization.yaml"), text).unwrap();
    // A file of another directory is refused otherwise; from a URL it is not.
    let mut kubectl = Command::new("kubectl");
    kubectl.args(["kustomize", "--load-restrictor=LoadRestrictionsNone"]).arg(directory.path());
    try_run(&mut kubectl).inspect_err(|error| println!("{error}")).is_ok()
}

#[test]
fn every_documented_configuration_is_tested_or_marked() {
    let files = TRIED.iter().flat_map(|directory| files_below(&Path::new(pages::ROOT).join(directory)));
    let tried: Vec<_> = files.filter_map(|file| Some(lines(&fs::read_to_string(file).ok()?))).collect();
    let pages = pages::all();
    let blocks = pages.iter().flat_map(|page| page.blocks.iter().map(move |block| (page, block)));
    let (mut found, mut mistakes) = (0, Vec::new());
    for (page, block) in blocks.filter(|(page, block)| is_configuration(page, block)) {
        found += 1;
        mistakes.extend(wrong(page, block, &tried));
    }
    assert!(found > 8, "only {found} were found");
    assert!(mistakes.is_empty(), "{}", mistakes.join("\n"));
}
