//! The files: where they are, and what the first of several means.

use crate::fields::Object;
use nodegate_program::os_words;
use serde_json::Value;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The maximum size of a file, in bytes: 8 MiB hold thousands of clusters.
const MAX_FILE_BYTES: u64 = 8 << 20;

pub(crate) struct Files(Vec<ParsedFile>);

struct ParsedFile {
    path: PathBuf,
    root: Value,
}

impl Files {
    /// Reads the named file, which must exist, or those of the environment that exist.
    pub(crate) fn read(named: Option<&Path>) -> Result<Self, String> {
        let (paths, named_by) = match named {
            Some(path) => (vec![path.to_owned()], "--kubeconfig"),
            None if variable("KUBECONFIG").is_some() => (paths(), "KUBECONFIG"),
            None => (paths(), "the kubeconfig"),
        };
        let files = paths.into_iter().filter(|path| named.is_some() || path.exists());
        let files = files.map(|path| ParsedFile::read(path, named_by));
        files.collect::<Result<_, _>>().map(Self)
    }

    /// Returns true if no file has any cluster, context or user: for kubectl, such files are none.
    pub(crate) fn are_empty(&self) -> bool {
        let is_empty = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
        let lists = |file: &ParsedFile| {
            ["clusters", "contexts", "users"].iter().all(|list| file.root.get(list).is_none_or(is_empty))
        };
        self.0.iter().all(lists)
    }

    pub(crate) fn place(&self) -> String {
        let paths: Vec<_> = self.0.iter().map(|file| file.path.display().to_string()).collect();
        format!("the kubeconfig {}", paths.join(", "))
    }

    /// Returns the first current context.
    pub(crate) fn current_context(&self) -> Result<String, String> {
        for file in &self.0 {
            if let Some(name) = file.object()?.text("current-context")? {
                return Ok(name);
            }
        }
        let todo = "set it with kubectl config use-context";
        Err(format!("{} has no current-context: {todo}{}", self.place(), self.contexts()))
    }

    pub(crate) fn no_context(&self, named_by: &str, name: &str) -> String {
        format!("{named_by} {name:?}: {} has no such context{}", self.place(), self.contexts())
    }

    fn contexts(&self) -> String {
        let contexts = self.0.iter().filter_map(|file| file.root.get("contexts")?.as_array()).flatten();
        let names: Vec<&str> = contexts.filter_map(|context| context.get("name")?.as_str()).collect();
        if names.is_empty() {
            return "; it has no contexts: kubectl config set-context makes one".to_owned();
        }
        format!("; it has {}", names.join(", "))
    }

    /// Returns what the first file with such an entry says, whole, and the directory of that file.
    pub(crate) fn entry<'a>(
        &'a self,
        list: &str,
        kind: &str,
        name: &str,
    ) -> Result<Option<(Object<'a>, &'a Path)>, String> {
        for file in &self.0 {
            let is_wanted =
                |entry: &Object<'_>| entry.text("name").is_ok_and(|of| of.unwrap_or_default() == name);
            let mut entries = file.object()?.objects(list)?.into_iter().filter(is_wanted);
            let Some(entry) = entries.next() else { continue };
            let path = file.path.display();
            if entries.next().is_some() {
                return Err(format!("the kubeconfig {path}: {list} has two entries with the name {name:?}"));
            }
            let place = format!("the kubeconfig {path}, {kind} {name:?}");
            let fields = Object::new(entry.value(kind), place)?;
            return Ok(Some((fields, file.path.parent().unwrap_or(Path::new("")))));
        }
        Ok(None)
    }
}

impl ParsedFile {
    /// Reads a file that this flag or variable names.
    fn read(path: PathBuf, named_by: &str) -> Result<Self, String> {
        let unusable = |why: String| {
            format!("{named_by} \"{}\": {why}; correct it, or name another kubeconfig", path.display())
        };
        let length = std::fs::metadata(&path).map_err(|error| unusable(os_words(&error)))?.len();
        if length > MAX_FILE_BYTES {
            return Err(unusable(format!("it has more than {MAX_FILE_BYTES} bytes")));
        }
        let bytes = std::fs::read(&path).map_err(|error| unusable(os_words(&error)))?;
        let root = parse(&bytes).map_err(unusable)?;
        let file = Self { path, root };
        let object = file.object()?;
        for (field, takes) in [("kind", "Config"), ("apiVersion", "v1")] {
            if let Some(given) = object.text(field)?.filter(|given| given != takes) {
                return Err(object.wrong(field, format_args!("is {given}, and takes {takes}")));
            }
        }
        Ok(file)
    }

    fn object(&self) -> Result<Object<'_>, String> {
        Object::new(Some(&self.root), format!("the kubeconfig {}", self.path.display()))
    }
}

/// Parses the first document of a file: JSON or YAML 1.1, in which the last of two equal keys counts.
fn parse(bytes: &[u8]) -> Result<Value, String> {
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins };
    let documents = serde_saphyr::from_slice_multiple_with_options::<Value>(bytes, options);
    // The first line says where; the others quote the file, which has secrets.
    let documents = documents.map_err(|error| {
        let error = error.to_string();
        let first = error.lines().next().unwrap_or_default();
        format!("it is not YAML: {}", first.trim_start_matches("error: "))
    })?;
    Ok(documents.into_iter().next().unwrap_or_default())
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the files to look for: those of `KUBECONFIG`, else that of the home directory.
fn paths() -> Vec<PathBuf> {
    if let Some(list) = variable("KUBECONFIG") {
        return std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect();
    }
    // On Windows, kubectl takes the first that exists.
    let homes = ["HOME", "USERPROFILE"].into_iter().filter_map(variable);
    let in_homes: Vec<_> = homes.map(|home| PathBuf::from(home).join(".kube").join("config")).collect();
    let there = in_homes.iter().find(|file| file.exists()).cloned();
    there.map_or(in_homes, |there| vec![there])
}

/// Returns what is wrong with the files that were looked for, and what to do.
pub(crate) fn looked_for(named: Option<&Path>) -> String {
    if let Some(named) = named {
        return format!("--kubeconfig {} has no cluster; name another kubeconfig", named.display());
    }
    let is_set = variable("KUBECONFIG").is_some();
    let (by, todo) = if is_set { ("KUBECONFIG: ", "correct") } else { ("", "set") };
    let state = |file: &PathBuf| if file.exists() { "has no cluster" } else { "does not exist" };
    let files: Vec<_> = paths().iter().map(|file| format!("{} {}", file.display(), state(file))).collect();
    match files.as_slice() {
        [] => "neither KUBECONFIG nor HOME names a file; set KUBECONFIG".to_owned(),
        files => format!("{by}{}; {todo} KUBECONFIG", files.join(", ")),
    }
}
