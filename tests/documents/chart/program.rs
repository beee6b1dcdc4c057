//! The programs that the chart starts: what each says of its settings.

use nodegate_testbed::programs;
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub(crate) struct Program {
    /// The place of its settings among the values.
    pub(crate) of: &'static str,
    path: PathBuf,
    /// A wrong setting that is no value of the chart: it ends the program, which names all the other wrong ones first.
    end: [&'static str; 2],
}

pub(crate) fn all() -> [Program; 3] {
    [
        ("settings", programs::agent(), ["--host-root", "!"]),
        ("haproxy.settings", programs::nodegate_haproxy(), ["--config", "/dev/null/haproxy.cfg"]),
        ("evictionGate.settings", programs::eviction_gate(), ["--name", "!"]),
    ]
    .map(|(of, path, end)| Program { of, path, end })
}

impl Program {
    /// Starts the program with these variables. Returns what it says of the wrong ones, by the names of the flags.
    pub(crate) fn mistakes<T: AsRef<OsStr>>(&self, env: Vec<(T, T)>) -> BTreeMap<String, String> {
        let mut command = Command::new("/usr/bin/timeout");
        command.arg("60").arg(&self.path).args(self.end).env_clear().envs(env).stdin(Stdio::null());
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{}: {said}", self.path.display());
        let lines = said.lines().map(|line| line.split_once(": --").unwrap_or_else(|| panic!("{line}")).1);
        let words = lines.map(|line| line.split_once(' ').unwrap());
        let mut all: BTreeMap<_, _> = words.map(|(flag, rest)| (flag.to_owned(), rest.to_owned())).collect();
        let end = all.remove(&self.end[0][2..]);
        assert!(end.is_some(), "{said}");
        all
    }

    /// Returns what the chart knows of the settings.
    pub(crate) fn settings(&self) -> serde_json::Map<String, Value> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/charts/nodegate/files/settings.json");
        let all: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        all[self.of].as_object().unwrap().clone()
    }
}

/// Returns the value as people write it: a number, or a list where the variable has separators.
pub(crate) fn written(text: &str, rule: &Value) -> Value {
    let separator = rule["separator"].as_str().unwrap_or_default();
    match text.parse::<u64>() {
        Ok(number) if separator.is_empty() && number.to_string() == text => number.into(),
        _ if separator.is_empty() || !text.contains(separator) => text.into(),
        _ => text.split(separator).collect(),
    }
}

/// Returns the variables of a container as the kubelet sets them: it replaces references to those before.
pub(crate) fn started(container: &Value) -> Vec<(String, String)> {
    let mut env: Vec<(String, String)> = Vec::new();
    for variable in container["env"].as_array().unwrap() {
        let of_node = if variable["name"] == "HOST_IP" { "10.0.0.11" } else { "worker-1" };
        let given = variable["value"].as_str().unwrap_or(of_node).to_owned();
        let fill =
            |text: String, (name, value): &(String, String)| text.replace(&format!("$({name})"), value);
        let text = env.iter().fold(given, fill);
        assert!(!text.contains("$("), "{text} names a variable that comes later");
        env.push((variable["name"].as_str().unwrap().to_owned(), text));
    }
    env
}
