//! The changes that must be undone exactly once, also when a test fails or is interrupted.

use super::kubectl::Kubectl;
use std::process::exit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};
use tokio::signal::unix::{SignalKind, signal};

/// The changes in force. The thread that removes one from here undoes it.
static IN_FORCE: Mutex<Vec<(Ticket, Undo)>> = Mutex::new(Vec::new());
/// The next number; each is used once, because a ticket may be used again after its change is undone.
static NEXT: AtomicUsize = AtomicUsize::new(0);
static LISTENING: Once = Once::new();

/// The identity of a change in force.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ticket(usize);

/// The command that undoes a change.
struct Undo {
    kubectl: Kubectl,
    args: Vec<String>,
}

fn in_force() -> MutexGuard<'static, Vec<(Ticket, Undo)>> {
    IN_FORCE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers the command that undoes a change, before the change is made.
pub(crate) fn note(kubectl: Kubectl, args: Vec<String>) -> Ticket {
    LISTENING.call_once(|| drop(std::thread::spawn(on_signal)));
    let ticket = Ticket(NEXT.fetch_add(1, Ordering::Relaxed));
    in_force().push((ticket, Undo { kubectl, args }));
    ticket
}

/// Undoes a change, unless that has been started already.
pub(crate) fn take_back(ticket: Ticket) -> Result<(), String> {
    let undo = {
        let mut all = in_force();
        let Some(at) = all.iter().position(|(each, _)| *each == ticket) else { return Ok(()) };
        all.remove(at).1
    };
    undo.run()
}

impl Undo {
    fn run(&self) -> Result<(), String> {
        let complaint = |error| {
            let (command, kubeconfig) = (self.args.join(" "), self.kubectl.kubeconfig().display());
            format!("PLEASE RESTORE THE NODE: KUBECONFIG={kubeconfig} kubectl {command} failed: {error}")
        };
        let again = |_| self.kubectl.run(&self.args);
        self.kubectl.run(&self.args).or_else(again).map(drop).map_err(complaint)
    }
}

/// Undoes all changes on a signal, which runs no destructors.
fn on_signal() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let listen = |kind| signal(kind).expect("a signal handler");
        let (mut interrupt, mut terminate) =
            (listen(SignalKind::interrupt()), listen(SignalKind::terminate()));
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    });
    // Held until the end, so that no test makes another change.
    let mut all = in_force();
    for (_, undo) in all.drain(..) {
        eprintln!("interrupted: kubectl {}", undo.args.join(" "));
        if let Err(error) = undo.run() {
            eprintln!("{error}");
        }
    }
    exit(130);
}
