//! No files of a crate use each other in a circle: by what each file's own `use` names, because re-exports hide circles
//! from a look at the folders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The crates whose files may still use each other so.
const EXCEPT: [&str; 1] = ["nodegate-haproxy"];

/// The files that use each other, as modules by what they use.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Returns the Rust files below a directory, without tests.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_test = |path: &Path| path.file_stem().is_some_and(|name| name == "tests");
    let kept = entries.filter(|path| !is_test(path));
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    kept.flat_map(below).filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
}

/// Returns the module of a file below `src`.
fn module(file: &Path) -> String {
    let path = file.with_extension("");
    let parts = path.components().map(|part| part.as_os_str().to_str().unwrap().to_owned());
    parts.filter(|part| !matches!(part.as_str(), "mod" | "lib" | "main")).collect::<Vec<_>>().join("::")
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Returns the name that a line without indentation makes public.
fn public(line: &str) -> Option<&str> {
    const KINDS: [&str; 7] = ["fn", "struct", "enum", "trait", "type", "const", "static"];
    let rest = line.strip_prefix("pub")?;
    let rest = rest.strip_prefix('(').map_or(Some(rest), |rest| Some(rest.split_once(')')?.1))?;
    let mut words = words(rest).skip_while(|word| !KINDS.contains(word));
    words.by_ref().find(|word| !KINDS.contains(word) && *word != "async")
}

fn uses(crate_source: &Path) -> Uses {
    let sources: BTreeMap<String, String> = files(crate_source)
        .iter()
        .map(|file| {
            let text = fs::read_to_string(file).unwrap();
            let own = text.split("#[cfg(test)]").next().unwrap_or_default().to_owned();
            (module(file.strip_prefix(crate_source).unwrap()), own)
        })
        .collect();
    let mut places: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (module, text) in &sources {
        for name in text.lines().filter_map(public) {
            places.entry(name).or_default().insert(module);
        }
    }
    let of = |module: &str, text: &str| {
        let statements = text.split("\nuse ").skip(1).filter_map(|rest| rest.split(';').next());
        let own = statements.filter(|used| used.starts_with("crate::") || used.starts_with("super::"));
        let names = own.flat_map(words).filter_map(|name| places.get(name));
        let known = names.filter(|places| places.len() == 1).flatten();
        known.filter(|place| **place != module).map(|place| (*place).to_owned()).collect()
    };
    sources.iter().map(|(module, text)| (module.clone(), of(module, text))).collect()
}

/// Returns the files from which one comes back to them.
fn circle(uses: &Uses) -> BTreeSet<&str> {
    let comes_back = |from: &str| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
        while let Some(file) = next.pop() {
            let used = uses.get(file).into_iter().flatten().map(String::as_str);
            next.extend(used.filter(|used| seen.insert(*used)));
        }
        seen.contains(from)
    };
    uses.keys().map(String::as_str).filter(|file| comes_back(file)).collect()
}

#[test]
fn no_files_of_a_crate_use_each_other_in_a_circle() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = ["crates", "crates/testing"].map(|directory| fs::read_dir(root.join(directory)).unwrap());
    let mut circles = BTreeMap::new();
    for source in crates.into_iter().flatten().map(|entry| entry.unwrap().path().join("src")) {
        if source.is_dir() {
            let uses = uses(&source);
            circles.insert(source.clone(), circle(&uses).into_iter().map(str::to_owned).collect::<Vec<_>>());
        }
    }
    assert!(circles.len() > 15, "{circles:?}");
    let is_excepted = |source: &Path| EXCEPT.iter().any(|name| source.ends_with(Path::new(name).join("src")));
    circles.retain(|source, files| !files.is_empty() && !is_excepted(source));
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn a_circle_is_found() {
    let uses = |pairs: &[(&str, &str)]| -> Uses {
        pairs.iter().map(|(from, to)| ((*from).to_owned(), [(*to).to_owned()].into())).collect()
    };
    assert_eq!(circle(&uses(&[("a", "b"), ("b", "c"), ("c", "b")])), ["b", "c"].into());
    assert!(circle(&uses(&[("a", "b"), ("b", "c")])).is_empty());
    assert_eq!(public("pub(crate) async fn run("), Some("run"));
    assert_eq!(public("    pub fn method("), None);
}
