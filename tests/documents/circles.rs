//! No files of a crate use each other in a circle: by the paths in each file, followed through re-exports, which hide
//! circles from a look at the folders.

use crate::docs::pages::files_below;
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

type Names = Vec<String>;

/// The files that use each other, as modules by what they use.
type Uses = BTreeMap<Names, BTreeSet<Names>>;

#[derive(Default)]
struct Module {
    /// The paths in it. Its own re-exports are no use.
    paths: Vec<Names>,
    /// What it re-exports, by the name.
    reexports: BTreeMap<String, Names>,
}

/// A comment, and the tests at the end of a file.
static SKIPPED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?m)^\s*//.*$|#\[cfg\(test\)\]\s+mod \w+ \{[\s\S]*").unwrap());
/// A `use`: its visibility, its path, and the names of its group. Groups have no groups.
static USE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(\bpub\S*\s+)?\buse\s+([\w:]+?)(?:::)?(?:\{([^{}]*)\}|\*)?(?:\s+as\s+\w+)?;").unwrap()
});
static PATH: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\b[a-z]\w*(?:::\w+)+").unwrap());

impl Module {
    fn read(&mut self, text: &str) {
        let code = SKIPPED.replace_all(text, "");
        let names = |path: &str| path.split("::").map(str::to_owned).collect::<Names>();
        for found in USE.captures_iter(&code) {
            let group = found.get(3).map_or("self", |group| group.as_str());
            for name in group.split(',').map(str::trim).filter(|name| !name.is_empty()) {
                let name = name.split(" as ").next().unwrap_or(name);
                let path =
                    names(&found[2]).into_iter().chain(names(name).into_iter().filter(|name| name != "self"));
                let path: Names = path.collect();
                if found.get(1).is_some() {
                    self.reexports.insert(path[path.len() - 1].clone(), path);
                } else {
                    self.paths.push(path);
                }
            }
        }
        let others = USE.replace_all(&code, "");
        self.paths.extend(PATH.find_iter(&others).map(|path| names(path.as_str())));
    }
}

/// Returns the module of a file below `src`; that of `lib.rs` has no name.
fn module(file: &Path) -> Names {
    let path = file.with_extension("");
    let parts = path.components().map(|part| part.as_os_str().to_str().unwrap().to_owned());
    parts.filter(|part| !matches!(part.as_str(), "mod" | "lib" | "main")).collect()
}

/// Returns a path in a module from the crate's root; `None` for one of another crate.
fn absolute(module: &[String], path: &[String], modules: &BTreeMap<Names, Module>) -> Option<Names> {
    let above = path.iter().take_while(|name| *name == "super").count();
    match path.first()?.as_str() {
        "crate" => Some(path[1..].to_vec()),
        "self" => Some([module, &path[1..]].concat()),
        "super" => Some([&module[..module.len().saturating_sub(above)], &path[above..]].concat()),
        _ => Some([module, path].concat()).filter(|_| modules.contains_key(&[module, &path[..1]].concat())),
    }
}

/// Returns the file that has what a path from the crate's root names.
fn place(path: &[String], modules: &BTreeMap<Names, Module>) -> Names {
    let end = (0..=path.len()).rev().find(|end| modules.contains_key(&path[..*end])).unwrap_or_default();
    let (file, rest) = path.split_at(end);
    let reexport = rest.first().and_then(|name| modules.get(file)?.reexports.get(name));
    match reexport.and_then(|path| absolute(file, path, modules)) {
        Some(other) if other[..] != *path => place(&[&other, &rest[1..]].concat(), modules),
        _ => file.to_vec(),
    }
}

fn uses(crate_source: &Path) -> Uses {
    let mut modules: BTreeMap<Names, Module> = BTreeMap::new();
    for file in files_below(crate_source) {
        let path = file.strip_prefix(crate_source).unwrap();
        let is_test = path.ancestors().any(|part| part.file_stem().is_some_and(|name| name == "tests"));
        if !is_test && path.extension().is_some_and(|end| end == "rs") {
            modules.entry(module(path)).or_default().read(&fs::read_to_string(&file).unwrap());
        }
    }
    let of = |(name, module): (&Names, &Module)| {
        let paths = module.paths.iter().filter_map(|path| absolute(name, path, &modules));
        let files = paths.map(|path| place(&path, &modules)).filter(|file| file != name);
        (name.clone(), files.collect())
    };
    modules.iter().map(of).collect()
}

/// Returns the files from which one comes back to them.
fn circle(uses: &Uses) -> BTreeSet<String> {
    let comes_back = |from: &Names| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            next.extend(uses.get(file).into_iter().flatten().filter(|used| seen.insert(*used)));
        }
        seen.contains(from)
    };
    uses.keys().filter(|file| comes_back(file)).map(|file| file.join("::")).collect()
}

#[test]
fn no_files_of_a_crate_use_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = ["crates", "crates/testing"].map(|directory| fs::read_dir(root.join(directory)).unwrap());
    let sources = crates.into_iter().flatten().map(|entry| entry.unwrap().path().join("src"));
    let uses: BTreeMap<_, _> =
        sources.filter(|source| source.is_dir()).map(|source| (source.clone(), uses(&source))).collect();
    let count = uses.values().flat_map(Uses::values).map(BTreeSet::len).sum::<usize>();
    assert!(count > 500, "only {count} uses were found");
    let circles: BTreeMap<_, _> = uses.iter().map(|(source, uses)| (source, circle(uses))).collect();
    assert!(circles.values().all(BTreeSet::is_empty), "{circles:#?}");
}
