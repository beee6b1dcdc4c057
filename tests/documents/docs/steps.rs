//! The commands of a block, and what the page says that they print.

use super::pages::Block;
use regex::Regex;

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
