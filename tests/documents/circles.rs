//! No files of a crate use each other in a circle: by the paths in each file, followed through re-exports, which hide
//! circles from a look at the folders.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use syn::visit::{Visit, visit_item_impl, visit_path};
use syn::{Attribute, ItemImpl, ItemMod, ItemUse, UseTree, Visibility};

/// A module or an item, by the names from the crate's root.
type Names = Vec<String>;

/// The files that use each other, as modules by what they use.
type Uses = BTreeMap<Names, BTreeSet<Names>>;

/// A file of a crate.
#[derive(Default)]
struct Module {
    /// The paths in it. Its own re-exports are no use.
    paths: Vec<Names>,
    /// What it re-exports, by the name.
    reexports: BTreeMap<String, Names>,
}

impl Visit<'_> for Module {
    /// A module within a file is for tests or fuzzing.
    fn visit_item_mod(&mut self, _: &ItemMod) {}

    fn visit_item_impl(&mut self, item: &ItemImpl) {
        if !is_for_tests(&item.attrs) {
            visit_item_impl(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &ItemUse) {
        let mut paths = Vec::new();
        expand(&item.tree, &[], &mut paths);
        match item.vis {
            Visibility::Inherited => self.paths.extend(paths),
            _ => {
                self.reexports
                    .extend(paths.into_iter().filter_map(|path| Some((path.last()?.clone(), path))));
            }
        }
    }

    fn visit_path(&mut self, path: &syn::Path) {
        if path.segments.len() > 1 {
            self.paths.push(path.segments.iter().map(|segment| segment.ident.to_string()).collect());
        }
        visit_path(self, path);
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|of| of.is_ident("test"))
    })
}

/// Adds the paths of a `use`.
fn expand(tree: &UseTree, before: &[String], paths: &mut Vec<Names>) {
    let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
    match tree {
        UseTree::Path(path) => expand(&path.tree, &with(&path.ident), paths),
        UseTree::Group(group) => group.items.iter().for_each(|tree| expand(tree, before, paths)),
        UseTree::Name(name) if name.ident == "self" => paths.push(before.to_vec()),
        UseTree::Name(name) => paths.push(with(&name.ident)),
        UseTree::Rename(name) => paths.push(with(&name.ident)),
        UseTree::Glob(_) => paths.push(before.to_vec()),
    }
}

/// Returns the Rust files below a directory, without tests.
fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let is_test = |path: &Path| path.file_stem().is_some_and(|name| name == "tests");
    let kept = entries.filter(|path| !is_test(path));
    let below = |path: PathBuf| if path.is_dir() { files(&path) } else { vec![path] };
    kept.flat_map(below).filter(|path| path.extension().is_some_and(|end| end == "rs")).collect()
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
    for file in files(crate_source) {
        let text = fs::read_to_string(&file).unwrap();
        modules
            .entry(module(file.strip_prefix(crate_source).unwrap()))
            .or_default()
            .visit_file(&syn::parse_file(&text).unwrap());
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
    let sources: Vec<_> = sources.filter(|source| source.is_dir()).collect();
    assert!(sources.len() > 15, "{sources:?}");
    let mut circles: BTreeMap<_, _> = sources.iter().map(|source| (source, circle(&uses(source)))).collect();
    circles.retain(|_, files| !files.is_empty());
    assert!(circles.is_empty(), "{circles:#?}");
}

#[test]
fn a_circle_is_found_through_re_exports_and_parents() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("b")).unwrap();
    let found = |c: &str| {
        for (name, text) in [
            ("lib.rs", "mod a; mod b; pub use b::B;"),
            ("a.rs", "use crate::B; pub struct A;"),
            ("b/mod.rs", "mod c; pub use c::C; pub struct B(c::C);"),
            ("b/c.rs", c),
        ] {
            fs::write(directory.path().join(name), text).unwrap();
        }
        circle(&uses(directory.path())).into_iter().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(found("use super::super::a::A; pub struct C(A);"), "a b b::c");
    assert_eq!(found("pub struct C(super::B);"), "b b::c");
    assert_eq!(found("pub struct C; #[cfg(test)] mod tests { use super::super::B; }"), "");
}
