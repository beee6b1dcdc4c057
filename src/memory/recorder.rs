//! Writes down what is known, for the next agent after a crash.

use super::state_file::StateFile;
use nodegate_readiness::{Board, Memory, Timeline};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

/// How often it looks for what changed no verdict.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// At most one write in this time, whatever happens to the Node.
const PAUSE: Duration = Duration::from_secs(1);
/// Facts that stay the same are written again with their new date. A crash may make them look older by so much.
const DATE_EVERY_MS: u64 = 60_000;

/// Writes on a thread of its own, as a disk may hang; `flips` wakes it.
pub(crate) fn record(
    file: StateFile,
    board: Arc<Board>,
    timeline: Timeline,
    flips: Receiver<()>,
) -> io::Result<()> {
    let mut recorder = Recorder { file, written: None, failing: false };
    thread::Builder::new().name("recorder".to_owned()).spawn(move || {
        loop {
            let memory = Memory::of(&board, timeline.at(nodegate_clock::now()));
            if recorder.record(memory.written_at(nodegate_clock::wall())) {
                thread::sleep(PAUSE);
            }
            // The sender is the board's, which is here.
            let _ = flips.recv_timeout(LOOK_EVERY);
        }
    })?;
    Ok(())
}

struct Recorder {
    file: StateFile,
    written: Option<Memory>,
    failing: bool,
}

impl Recorder {
    /// Writes it if it is news; says whether it tried.
    fn record(&mut self, memory: Memory) -> bool {
        let is_news =
            memory.knows_something() && self.written.as_ref().is_none_or(|old| differs(old, &memory));
        if is_news {
            match self.file.write(&memory) {
                Ok(()) => {
                    self.written = Some(memory);
                    self.failing = false;
                }
                Err(error) if !self.failing => {
                    self.failing = true;
                    let file = self.file.path();
                    tracing::warn!(
                        file = %file.display(), %error,
                        "can't write down what is known of the node: trying again, and going on without"
                    );
                }
                Err(error) => tracing::debug!(%error, "still can't write down what is known of the node"),
            }
        }
        is_news
    }
}

/// Other facts, or the same with a date that matters.
fn differs(old: &Memory, new: &Memory) -> bool {
    let date = |memory: &Memory| memory.proved_at_unix_ms().unwrap_or_default();
    !old.same_facts(new) || date(new).abs_diff(date(old)) >= DATE_EVERY_MS
}
