//! Saves the known facts, and that this agent answers, for the next agent after a crash. `agent` starts it.

use super::state_file::StateFile;
use nodegate_agent_api::Status;
use nodegate_program::{Episode, start_thread};
use nodegate_readiness::{Board, Moment, Node, Timeline};
use std::io;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, SystemTime};

/// The interval of checks for changes that do not change the verdict.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The minimum time between two writes, whatever happens to the Node.
const PAUSE: Duration = Duration::from_secs(1);
/// The age at which unchanged facts are saved again, with their new date. After a crash they may look older by this
/// much. With the pauses it is well within the minute for which an answer is recent.
const SAVE_EVERY: Duration = Duration::from_secs(20);

/// Starts the recorder on its own thread, since a disk may hang; `flips` wakes it.
pub(crate) fn record(
    file: StateFile,
    board: Arc<Board>,
    timeline: Timeline,
    flips: Receiver<()>,
) -> io::Result<()> {
    let mut recorder = Recorder { file, written: None, failing: Episode::default() };
    let work = move || {
        loop {
            let now = timeline.at(nodegate_clock::now());
            if recorder.record(&board, now, nodegate_clock::wall()) {
                thread::sleep(PAUSE);
            }
            // The board holds the sender, and this thread holds the board.
            let _ = flips.recv_timeout(LOOK_EVERY);
        }
    };
    start_thread("recorder", Box::new(work))
}

/// What an agent knows of its node and of the watched Services.
type Facts = (Node, Vec<Option<usize>>);

struct Recorder {
    file: StateFile,
    /// The facts in the file, and when they were written.
    written: Option<(Facts, Moment)>,
    failing: Episode,
}

impl Recorder {
    /// Saves the facts if they are news, or if the last time is long ago. Returns true if it tried.
    fn record(&mut self, board: &Board, now: Moment, wall: SystemTime) -> bool {
        let published = board.published();
        let endpoints = published.state.services.iter().map(|service| service.local_endpoints).collect();
        let facts: Facts = (published.state.node.clone(), endpoints);
        let is_saved = |(old, at): &(Facts, Moment)| *old == facts && now.since(*at) < SAVE_EVERY;
        let is_known = facts.0 != Node::Unknown && board.freshness(now).age.is_some();
        if !is_known || self.written.as_ref().is_some_and(is_saved) {
            return false;
        }
        let at = now.since(Moment::default());
        match self.file.write(&Status::read(board, env!("CARGO_PKG_VERSION"), now, wall), wall) {
            Ok(()) => {
                self.written = Some((facts, now));
                self.failing.ends(at);
            }
            Err(error) => {
                if self.failing.lasts("", at) {
                    let file = self.file.path();
                    tracing::warn!(
                        file = %file.display(), %error,
                        "can't save the last known facts of the node; retrying"
                    );
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodegate_agent_api::Predecessor;
    use nodegate_readiness::{Catalog, Node, Policy};
    use std::time::{SystemTime, UNIX_EPOCH};

    fn at(seconds: u64) -> Moment {
        Moment::from_start(Duration::from_secs(seconds))
    }

    fn wall(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_hours(24) + Duration::from_secs(seconds)
    }

    #[test]
    fn it_saves_news_at_once_and_the_rest_now_and_then() {
        let directory = tempfile::tempdir().unwrap();
        let name = Some("n1".to_owned());
        let board = Board::new(name, Policy::default(), Catalog::new(Vec::new()), &[], Box::new(|_| {}));
        let file = StateFile::in_directory(directory.path());
        let mut recorder = Recorder { file: file.clone(), written: None, failing: Episode::default() };
        let mut writes = |second: u64| recorder.record(&board, at(second), wall(second));
        assert!(!writes(1), "nothing is known");
        board.set_node(Node::Absent, at(1), wall(1));
        assert!(!writes(1), "nor proved");
        board.prove(at(1));
        let has_just_answered = || file.read("n1").unwrap().is_some_and(|found| found.has_just_answered);
        assert!(!has_just_answered() && writes(1) && has_just_answered());
        assert!(!writes(20) && writes(21));
        board.set_node(Node::Present(nodegate_readiness::NodeFacts::default()), at(22), wall(22));
        assert!(writes(22) && !writes(22), "other facts");
        let json = std::fs::read(file.path()).unwrap();
        let last = Predecessor::parse(&json, "n1", wall(62)).unwrap().facts.unwrap();
        assert_eq!((last.node.exists(), last.age), (Some(true), Duration::from_secs(61)));
        std::fs::write(file.path(), "{").unwrap();
        file.read("n1").unwrap_err();
    }
}
