//! The way in which HAProxy's master was started: `haproxy -c` has to see what it sees.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Options with one argument that change what a configuration means.
const KEPT: [&str; 4] = ["-L", "-m", "-n", "-N"];
/// Options with one argument that concern only a running process.
const DROPPED: [&str; 3] = ["-S", "-p", "-x"];
/// Variables with which a master speaks to itself over its re-execution, and to systemd.
const OWN_VARIABLES: [&str; 4] =
    ["HAPROXY_MWORKER", "HAPROXY_PROCESSES", "HAPROXY_LOAD_SUCCESS", "NOTIFY_SOCKET"];

/// The arguments, the environment and the directory of a master, as far as its configuration depends on them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Launch {
    /// Options other than files.
    pub options: Vec<OsString>,
    /// The files of `-f`, absolute.
    pub files: Vec<PathBuf>,
    /// The environment. `None` if it can't be read.
    pub environment: Option<Vec<(OsString, OsString)>>,
    /// The directory for relative paths.
    pub directory: PathBuf,
}

impl Launch {
    /// Reads the launch of a running process. `None` if it can't be read, as that of a process in another
    /// container.
    pub fn of(pid: u32) -> Option<Self> {
        let at = |name: &str| format!("/proc/{pid}/{name}");
        let words = split(&std::fs::read(at("cmdline")).ok()?);
        let directory = std::fs::read_link(at("cwd")).unwrap_or_else(|_| PathBuf::from("/"));
        let mut launch = Self::parse(words.get(1..)?, directory);
        launch.environment = std::fs::read(at("environ")).ok().map(|bytes| variables(&bytes));
        Some(launch)
    }

    fn parse(words: &[OsString], directory: PathBuf) -> Self {
        let (mut options, mut files) = (Vec::new(), Vec::new());
        let mut base = directory.clone();
        let mut words = words.iter().peekable();
        while let Some(word) = words.next() {
            match word.to_string_lossy().as_ref() {
                "-f" | "--" => {
                    // Each may be followed by several files.
                    while let Some(file) = words.next_if(|word| word.as_bytes().first() != Some(&b'-')) {
                        files.push(PathBuf::from(file));
                    }
                }
                "-C" => {
                    if let Some(to) = words.next() {
                        base = base.join(to);
                        options.extend([word.clone(), to.clone()]);
                    }
                }
                option if KEPT.contains(&option) => {
                    options.push(word.clone());
                    options.extend(words.next().cloned());
                }
                option if DROPPED.contains(&option) => drop(words.next()),
                "-db" | "-dC" => {}
                option if option.starts_with("-d") => options.push(word.clone()),
                // All others concern only a running process; the numbers behind -sf and -st fall here, too.
                _ => {}
            }
        }
        let files = files.into_iter().map(|file| base.join(file)).collect();
        Self { options, files, environment: None, directory }
    }

    /// Returns true if the process loads this file, by itself or with its directory.
    pub fn loads(&self, file: &Path) -> bool {
        self.files
            .iter()
            .any(|loaded| is_same(loaded, file) || file.parent().is_some_and(|dir| is_same(loaded, dir)))
    }

    /// Returns the files that it loads, with another one in the place of `file`.
    pub fn files_with(&self, file: &Path, other: &Path) -> Vec<PathBuf> {
        let mut files = Vec::new();
        for loaded in &self.files {
            match std::fs::read_dir(loaded) {
                Ok(entries) => {
                    let mut names: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
                    names.retain(|path| path.extension() == Some(OsStr::new("cfg")) && !is_hidden(path));
                    names.sort();
                    files.extend(names);
                }
                Err(_) => files.push(loaded.clone()),
            }
        }
        for loaded in &mut files {
            if is_same(loaded, file) {
                other.clone_into(loaded);
            }
        }
        if !files.iter().any(|loaded| loaded == other) {
            files.push(other.to_owned());
        }
        files
    }

    /// Returns the value of a variable.
    pub fn variable(&self, name: &str) -> Option<&OsStr> {
        self.environment.as_ref()?.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_os_str())
    }
}

fn is_hidden(path: &Path) -> bool {
    path.file_name().is_none_or(|name| name.as_bytes().starts_with(b"."))
}

fn is_same(one: &Path, two: &Path) -> bool {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    real(one) == real(two)
}

fn split(bytes: &[u8]) -> Vec<OsString> {
    bytes
        .split(|byte| *byte == 0)
        .filter(|word| !word.is_empty())
        .map(|word| OsString::from_vec(word.to_vec()))
        .collect()
}

fn variables(bytes: &[u8]) -> Vec<(OsString, OsString)> {
    let own = |name: &OsString| OWN_VARIABLES.iter().any(|own| name.as_bytes().starts_with(own.as_bytes()));
    let pair = |word: OsString| {
        let at = word.as_bytes().iter().position(|byte| *byte == b'=')?;
        let (name, value) = word.as_bytes().split_at(at);
        Some((OsString::from_vec(name.to_vec()), OsString::from_vec(value.get(1..)?.to_vec())))
    };
    split(bytes).into_iter().filter_map(pair).filter(|(name, _)| !own(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_matters_of_a_command_line_is_kept() {
        let words = "-sf 12 13 -x sockpair@4 -Ws -dr -db -f a.cfg b.cfg -C /etc/haproxy -S /run/m.sock -p /run/p -m 100 -f /x/c.cfg -- d.cfg";
        let words: Vec<OsString> = words.split(' ').map(OsString::from).collect();
        let launch = Launch::parse(&words, PathBuf::from("/srv"));
        assert_eq!(launch.options, ["-dr", "-C", "/etc/haproxy", "-m", "100"].map(OsString::from));
        let files = ["/etc/haproxy/a.cfg", "/etc/haproxy/b.cfg", "/x/c.cfg", "/etc/haproxy/d.cfg"];
        assert_eq!(launch.files, files.map(PathBuf::from));
        let other = Path::new("/x/.c.cfg.new");
        assert_eq!(launch.files_with(Path::new("/x/c.cfg"), other)[2], other);
        assert!(launch.loads(Path::new("/x/c.cfg")) && !launch.loads(Path::new("/x/d.cfg")));
    }

    #[test]
    fn a_directory_stands_for_its_files() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["b.cfg", "a.cfg", "c.txt", ".d.cfg"] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let launch = Launch { files: vec![dir.path().to_owned()], ..Launch::default() };
        let (ours, new) = (dir.path().join("b.cfg"), dir.path().join(".b.cfg.new"));
        assert!(launch.loads(&ours));
        assert_eq!(launch.files_with(&ours, &new), [dir.path().join("a.cfg"), new]);
    }

    #[test]
    fn a_master_s_own_variables_are_left_out() {
        let found =
            variables(b"A=1\0HAPROXY_MWORKER_REEXEC=1\0HAPROXY_PROCESSES=|x\0NOTIFY_SOCKET=/x\0B=c=d\0=\0");
        let names: Vec<_> =
            found.iter().map(|(name, value)| format!("{}={}", name.display(), value.display())).collect();
        assert_eq!(names, ["A=1", "B=c=d", "="]);
    }
}
