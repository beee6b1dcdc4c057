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
        let lists = ["clusters", "contexts", "users"];
        let is_empty = |value: Option<&Value>| {
            value.is_none_or(|value| value.is_null() || value == &Value::Array(Vec::new()))
        };
        self.0.iter().all(|file| lists.iter().all(|list| is_empty(file.root.get(list))))
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
        let mut first = None;
        for file in &self.0 {
            let mut of_file = None;
            for entry in file.object()?.objects(list)? {
                if entry.text("name")?.unwrap_or_default() != name {
                    continue;
                }
                if of_file.is_some() {
                    let at = file.path.display();
                    return Err(format!(
                        "the kubeconfig {at}: {list} has two entries with the name {name:?}"
                    ));
                }
                of_file = Some(entry);
            }
            if first.is_none()
                && let Some(entry) = of_file
            {
                let place = format!("the kubeconfig {}, {kind} {name:?}", file.path.display());
                let fields = entry.object(kind)?;
                let fields = fields.map_or_else(|| Object::empty(&place), |fields| fields.at(place.clone()));
                first = Some((fields, file.path.parent().unwrap_or(Path::new(""))));
            }
        }
        Ok(first)
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
        let root = parse(bytes).map_err(unusable)?;
        let file = Self { path, root };
        let object = file.object()?;
        match object.text("kind")?.as_deref() {
            None | Some("Config") => {}
            Some(kind) => return Err(object.wrong("kind", format_args!("is {kind}, and takes Config"))),
        }
        match object.text("apiVersion")?.as_deref() {
            None | Some("v1") => Ok(()),
            Some(version) => Err(object.wrong("apiVersion", format_args!("is {version}, and takes v1"))),
        }?;
        Ok(file)
    }

    fn object(&self) -> Result<Object<'_>, String> {
        Object::new(Some(&self.root), format!("the kubeconfig {}", self.path.display()))
    }
}

/// Parses the first document of a file: JSON or YAML 1.1, in which the last of two equal keys counts.
fn parse(bytes: Vec<u8>) -> Result<Value, String> {
    let text = decode(bytes).ok_or("it is neither UTF-8 nor UTF-16 text")?;
    let options = serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins };
    let documents = serde_saphyr::from_multiple_with_options::<Value>(&text, options);
    // The first line says where; the others quote the file, which has secrets.
    let documents = documents.map_err(|error| {
        let error = error.to_string();
        let first = error.lines().next().unwrap_or_default();
        format!("it is not YAML: {}", first.trim_start_matches("error: "))
    })?;
    Ok(documents.into_iter().next().unwrap_or_default())
}

fn decode(bytes: Vec<u8>) -> Option<String> {
    let wide = |unit: fn([u8; 2]) -> u16| {
        let units: Vec<u16> = bytes.get(2..)?.as_chunks::<2>().0.iter().copied().map(unit).collect();
        String::from_utf16(&units).ok()
    };
    match bytes.as_slice() {
        [0xFF, 0xFE, ..] => wide(u16::from_le_bytes),
        [0xFE, 0xFF, ..] => wide(u16::from_be_bytes),
        [0xEF, 0xBB, 0xBF, rest @ ..] => String::from_utf8(rest.to_vec()).ok(),
        _ => String::from_utf8(bytes).ok(),
    }
}

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the files to look for: those of `KUBECONFIG`, else that of the home directory.
fn paths() -> Vec<PathBuf> {
    if let Some(list) = variable("KUBECONFIG") {
        return std::env::split_paths(&list).filter(|path| !path.as_os_str().is_empty()).collect();
    }
    let in_homes: Vec<_> = homes().into_iter().map(|home| home.join(".kube").join("config")).collect();
    match in_homes.iter().find(|file| file.exists()) {
        Some(there) => vec![there.clone()],
        None => in_homes,
    }
}

/// Returns the home directories, in kubectl's order. On Linux and macOS it uses `HOME` alone.
fn homes() -> Vec<PathBuf> {
    let on_drive = variable("HOMEDRIVE").zip(variable("HOMEPATH")).map(|(mut drive, path)| {
        drive.push(path);
        drive
    });
    let of_windows = [on_drive, variable("USERPROFILE")].into_iter().filter(|_| cfg!(windows));
    [variable("HOME")].into_iter().chain(of_windows).flatten().map(PathBuf::from).collect()
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
