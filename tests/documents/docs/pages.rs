//! The documents, split into prose and fenced blocks, and these into commands with what they print.

use regex::Regex;
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) struct Page {
    pub(crate) path: String,
    /// The text without the fenced blocks.
    pub(crate) prose: String,
    pub(crate) blocks: Vec<Block>,
}

/// A fenced block of code, with its position.
#[derive(Default)]
pub(crate) struct Block {
    /// The line of its fence, from 1.
    pub(crate) line: usize,
    /// The first word behind the fence.
    pub(crate) language: String,
    /// The other words behind the fence, which GitHub does not show.
    pub(crate) note: String,
    pub(crate) body: String,
}

pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(format!("{ROOT}/{path}")).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns every file below a directory.
pub(crate) fn files_below(directory: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Returns every document for readers: those at the top, those below docs/, and the chart's.
pub(crate) fn all() -> Vec<Page> {
    let names = |directory: &str| -> Vec<String> {
        let entries = fs::read_dir(format!("{ROOT}/{directory}")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names
            .filter(|name| Path::new(name).extension().is_some_and(|end| end == "md"))
            .map(|name| format!("{directory}{name}"))
            .collect()
    };
    let directories = ["", "docs/", "docs/decisions/", "docs/load-balancers/", "charts/nodegate/"];
    let mut paths = directories.map(names).concat();
    paths.sort();
    assert!(paths.len() > 8, "the documents were not found: {paths:?}");
    paths.iter().map(|path| Page::read(path)).collect()
}

impl Page {
    pub(crate) fn read(path: &str) -> Self {
        Self::split(&read(path), path.to_owned())
    }

    fn split(text: &str, path: String) -> Self {
        let (mut prose, mut blocks, mut open) = (String::new(), Vec::new(), None::<Block>);
        for (line, text) in (1..).zip(text.lines()) {
            let fence = text.trim_start().strip_prefix("```");
            match (fence, &mut open) {
                (Some(_), Some(_)) => blocks.extend(open.take()),
                (Some(info), None) => {
                    let (language, note) = info.split_once(' ').unwrap_or((info, ""));
                    let (language, note) = (language.to_owned(), note.trim().to_owned());
                    open = Some(Block { line, language, note, ..Block::default() });
                }
                (None, Some(block)) => block.body.extend([text, "\n"]),
                (None, None) => prose.extend([text, "\n"]),
            }
        }
        assert!(open.is_none(), "{path}: a fence is not closed");
        Self { path, prose, blocks }
    }

    /// Returns the text between backticks.
    pub(crate) fn code_spans(&self) -> impl Iterator<Item = &str> {
        self.prose.lines().flat_map(|line| line.split('`').skip(1).step_by(2))
    }
}

/// A command, and its output if the page shows it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) command: String,
    pub(crate) prints: String,
}

impl Block {
    pub(crate) fn steps(&self) -> Vec<Step> {
        if self.language == "sh" {
            return vec![Step { command: self.body.clone(), prints: String::new() }];
        }
        let mut steps: Vec<Step> = Vec::new();
        for line in self.body.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command: command.to_owned(), ..Step::default() }),
                (None, Some(step)) if step.command.ends_with('\\') => step.command.extend(["\n", line]),
                (None, Some(step)) => step.prints.extend([line, "\n"]),
                (None, None) => panic!("a block begins with {line:?} and no command"),
            }
        }
        steps
    }
}

/// Returns true if the text matches; `…` matches any text, also line breaks.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let lines = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_owned();
    let parts: Vec<String> = lines(pattern).split('…').map(regex::escape).collect();
    Regex::new(&format!("^{}$", parts.join("(?s:.*)"))).unwrap().is_match(&lines(text))
}
