//! Saves the known facts, and the mark that this agent answers, for the next agent after a crash. `agent` starts it.

use super::answering;
use super::state_file::StateFile;
use nodegate_readiness::{Board, Memory, Moment, Timeline};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

/// The interval of checks for changes that do not change the verdict.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The minimum time between two writes, whatever happens to the Node.
const PAUSE: Duration = Duration::from_secs(1);
/// The age at which unchanged facts are saved again with their new date. After a crash they may look older by
/// this much.
const DATE_EVERY_MS: u64 = 60_000;
/// The interval of the mark that this agent answers. With the recorder's pauses it is well within the minute
/// for which the mark counts.
const NOTE_EVERY: Duration = Duration::from_secs(20);

/// Starts the recorder on its own thread, since a disk may hang; `flips` wakes it.
pub(crate) fn record(
    file: StateFile,
    board: Arc<Board>,
    timeline: Timeline,
    flips: Receiver<()>,
) -> io::Result<()> {
    let mut recorder = Recorder { file, written: None, noted: None, failing: false };
    thread::Builder::new().name("recorder".to_owned()).spawn(move || {
        loop {
            let now = timeline.at(nodegate_clock::now());
            recorder.note(now);
            let memory = board.memory(now);
            if recorder.record(memory.written_at(nodegate_clock::wall())) {
                thread::sleep(PAUSE);
            }
            // The board holds the sender, and this thread holds the board.
            let _ = flips.recv_timeout(LOOK_EVERY);
        }
    })?;
    Ok(())
}

struct Recorder {
    file: StateFile,
    written: Option<Memory>,
    noted: Option<Moment>,
    failing: bool,
}

impl Recorder {
    /// Renews the mark that this agent answers, if it is due.
    fn note(&mut self, now: Moment) {
        if self.noted.is_some_and(|noted| now.since(noted) < NOTE_EVERY) {
            return;
        }
        self.noted = Some(now);
        if let Err(error) = answering::note(self.file.directory()) {
            tracing::debug!(%error, "can't record that this agent answers");
        }
    }

    /// Saves the facts if they are news. Returns true if it tried.
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
                        "can't save the last known facts of the node; retrying"
                    );
                }
                Err(error) => tracing::debug!(%error, "still can't save the last known facts of the node"),
            }
        }
        is_news
    }
}

/// Returns true if the facts differ, or if the new date is much later.
fn differs(old: &Memory, new: &Memory) -> bool {
    let date = |memory: &Memory| memory.proved_at_unix_ms().unwrap_or_default();
    !old.same_facts(new) || date(new).abs_diff(date(old)) >= DATE_EVERY_MS
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_readiness::{Catalog, Node, Policy};
    use std::time::{SystemTime, UNIX_EPOCH};

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    fn wall(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_hours(24) + Duration::from_secs(seconds)
    }

    #[test]
    fn it_writes_what_is_news_and_its_date_once_a_minute() {
        let directory = tempfile::tempdir().unwrap();
        let name = Some("n1".to_owned());
        let board = Board::new(name, Policy::default(), Catalog::new(Vec::new()), &[], Box::new(|_| {}));
        let file = StateFile::in_directory(directory.path());
        let mut recorder = Recorder { file: file.clone(), written: None, noted: None, failing: false };
        let mut writes = |second: u64| recorder.record(board.memory(at(second)).written_at(wall(second)));
        assert!(!writes(1), "nothing is known");
        board.set_node(Node::Absent, at(1), wall(1));
        assert!(!writes(1), "nor proved");
        board.prove(at(1));
        assert!(writes(1));
        assert!(!writes(2));
        board.prove(at(60));
        assert!(!writes(60));
        board.prove(at(61));
        assert!(writes(61), "its date");
        assert!(!writes(3600), "a stale cache has no new date");
        board.set_node(Node::Present(nodegate_readiness::NodeFacts::default()), at(3600), wall(3600));
        assert!(writes(3600) && !writes(3600), "other facts");
        let last = file.read().unwrap().unwrap().last_facts("n1", wall(3600)).unwrap().unwrap();
        assert_eq!((last.node.exists(), last.age), (Some(true), Duration::from_secs(3600 - 61)));
    }
}
