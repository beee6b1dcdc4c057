//! Saves the known facts, and that this agent answers, for the next agent after a crash. `agent` starts it.

use super::state_file::StateFile;
use nodegate_agent_api::Status;
use nodegate_program::{OngoingFault, start_thread};
use nodegate_readiness::{Board, Moment, Node, Timeline};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::{Duration, SystemTime};
use std::{io, thread};

/// The interval at which the facts are saved if the verdict does not change. After a crash they may look older by this
/// much. With the pauses it is well within the minute for which an answer is recent.
const SAVE_EVERY: Duration = Duration::from_secs(10);
/// The minimum time between two writes, whatever happens to the Node.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts the recorder on its own thread, since a disk may hang; `flips` wakes it.
pub(crate) fn record(
    file: StateFile,
    board: Arc<Board>,
    timeline: Timeline,
    flips: Receiver<()>,
) -> io::Result<()> {
    let mut failing = OngoingFault::default();
    let work = move || {
        loop {
            let now = timeline.at(nodegate_clock::now());
            save(&file, &mut failing, &board, now, nodegate_clock::wall());
            thread::sleep(PAUSE);
            // The board holds the sender, and this thread holds the board.
            let _ = flips.recv_timeout(SAVE_EVERY);
        }
    };
    start_thread("recorder", Box::new(work))
}

/// Saves the facts if there are any.
fn save(file: &StateFile, failing: &mut OngoingFault, board: &Board, now: Moment, wall: SystemTime) {
    if board.state().node == Node::Unknown || board.freshness(now).age.is_none() {
        return;
    }
    let at = now.since(Moment::default());
    match file.write(&board.read(now, wall, Status::of), wall) {
        Ok(()) => {
            failing.ends(at);
        }
        Err(error) if failing.should_log("", at) => {
            let file = file.path();
            tracing::warn!(
                file = %file.display(), %error,
                "can't save the last known facts of the node; retrying"
            );
        }
        Err(_) => {}
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
    fn it_saves_what_was_proved_for_the_next_agent() {
        let directory = tempfile::tempdir().unwrap();
        let name = Some("n1".to_owned());
        let board = Board::new(name, Policy::default(), Catalog::new(Vec::new()), &[]);
        let file = StateFile::in_directory(directory.path());
        let save = |second| save(&file, &mut OngoingFault::default(), &board, at(second), wall(second));
        save(1);
        board.set_node(Node::Present(nodegate_readiness::NodeFacts::default()), at(1), wall(1));
        save(1);
        assert!(file.read("n1").unwrap().is_none(), "nothing is proved");
        board.prove(at(1));
        save(22);
        assert!(file.read("n1").unwrap().unwrap().has_just_answered);
        let json = std::fs::read(file.path()).unwrap();
        let last = Predecessor::parse(&json, "n1", wall(62)).unwrap().facts.unwrap();
        assert_eq!((last.node.exists(), last.age), (Some(true), Duration::from_secs(61)));
        std::fs::write(file.path(), "{").unwrap();
        file.read("n1").unwrap_err();
    }
}
