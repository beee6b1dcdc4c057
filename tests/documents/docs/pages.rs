//! The documents, split into prose and fenced blocks.

use std::fs;
use std::path::Path;

/// A document, by its path in the repository.
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

/// The top of the repository.
pub(crate) const ROOT: &str = env!("CARGO_MANIFEST_DIR");

pub(crate) fn read(path: &str) -> String {
    fs::read_to_string(format!("{ROOT}/{path}")).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn is(name: &str, extension: &str) -> bool {
    Path::new(name).extension().is_some_and(|found| found == extension)
}

/// Returns every document for readers: those at the top, those below docs/, and the chart's.
pub(crate) fn all() -> Vec<Page> {
    let names = |directory: &str| -> Vec<String> {
        let entries = fs::read_dir(format!("{ROOT}/{directory}")).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| is(name, "md")).map(|name| format!("{directory}{name}")).collect()
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
