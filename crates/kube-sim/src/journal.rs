//! The optional state file: every change as one line of JSON, so that a simulator that was killed
//! with SIGKILL starts again where it was.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::store::Change;
use crate::store::object::{Key, Obj};
use crate::store::resource::{self, Resource};

/// Beyond this size the file is rewritten with the living objects only.
const REWRITE_AT: u64 = 64 << 20;

/// An open state file.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    written: u64,
}

/// What a state file held.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Living objects with their versions.
    pub objects: Vec<(&'static Resource, Key, u64, Value)>,
    /// The highest version seen.
    pub version: u64,
}

impl Journal {
    /// Opens the file, made if it is missing.
    pub fn open(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).read(true).open(path)?;
        Ok(Journal { path: path.to_owned(), file, written: 0 })
    }

    /// Reads all changes. A last line that the kill cut short is left out.
    pub fn load(&mut self) -> io::Result<Loaded> {
        let mut loaded = Loaded::default();
        let mut alive = std::collections::BTreeMap::new();
        // As bytes: the cut may be inside a character.
        for line in BufReader::new(File::open(&self.path)?).split(b'\n') {
            let Ok(entry) = serde_json::from_slice::<Value>(&line?) else { continue };
            let version = entry.get("v").and_then(Value::as_u64).unwrap_or_default();
            loaded.version = loaded.version.max(version);
            let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            if text("r").is_empty() || !resource::known_plural(&text("r")) {
                continue;
            }
            let id = (text("r"), text("ns"), text("n"));
            match entry.get("o") {
                Some(object) => alive.insert(id, (version, object.clone())),
                None => alive.remove(&id),
            };
        }
        for ((plural, namespace, name), (version, value)) in alive {
            loaded.objects.push((resource::by_plural(&plural), Key::new(namespace, name), version, value));
        }
        Ok(loaded)
    }

    /// Writes one change. A disk that is full loses persistence, not the simulator.
    pub fn append(&mut self, change: &Change) {
        let line = line(&change.object, change.version, change.deleted);
        self.written += line.len() as u64;
        if let Err(error) = self.file.write_all(&line) {
            tracing::warn!(%error, path = %self.path.display(), "could not write the state file");
        }
    }

    /// Replaces the file by the living objects when it has grown, or at start.
    pub fn rewrite(&mut self, alive: &[Obj], version: u64) -> io::Result<()> {
        let temporary = self.path.with_extension("new");
        let mut file = File::create(&temporary)?;
        for object in alive {
            file.write_all(&line(object, object.version, false))?;
        }
        file.write_all(format!("{{\"v\":{version}}}\n").as_bytes())?;
        std::fs::rename(&temporary, &self.path)?;
        self.file = OpenOptions::new().append(true).read(true).open(&self.path)?;
        self.written = 0;
        Ok(())
    }

    /// Whether it is time for [`Journal::rewrite`].
    pub fn is_long(&self) -> bool {
        self.written > REWRITE_AT
    }
}

fn line(object: &Obj, version: u64, deleted: bool) -> Vec<u8> {
    let mut entry =
        json!({"v": version, "r": object.resource.plural, "ns": object.key.namespace, "n": object.key.name});
    if let (Some(map), false) = (entry.as_object_mut(), deleted) {
        map.insert("o".to_owned(), object.value.clone());
    }
    let mut line = entry.to_string().into_bytes();
    line.push(b'\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_was_cut_inside_a_character_is_left_out() {
        let home = tempfile::tempdir().expect("a directory");
        let path = home.path().join("state");
        let line = |version: u64, label: &str| {
            json!({"v": version, "r": "nodes", "ns": "", "n": "a", "o": {"label": label}}).to_string()
        };
        let (whole, second) = (line(1, "x"), line(2, "\u{fc}"));
        let cut = second.find('\u{fc}').expect("it is in there") + 1;
        let text = [whole.as_bytes(), b"\n", second.as_bytes().get(..cut).expect("half of it")].concat();
        std::fs::write(&path, text).expect("written");
        let loaded = Journal::open(&path).and_then(|mut journal| journal.load()).expect("loads");
        assert_eq!((loaded.version, loaded.objects.len()), (1, 1));
        assert_eq!(loaded.objects[0].3, json!({"label": "x"}));
    }
}
