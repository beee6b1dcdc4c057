//! Clients that never stop asking, and count what they get.

use crate::lab::get;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;

pub(crate) struct Traffic {
    stop: Arc<AtomicBool>,
    good: Arc<AtomicU64>,
    lost: Arc<Mutex<Vec<String>>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Traffic {
    /// Four clients, each with a new connection for each request.
    pub(crate) fn start(port: u16) -> Self {
        let (stop, good, lost) =
            (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)), Arc::default());
        let client = |_| {
            let (stop, good, lost): (Arc<AtomicBool>, Arc<AtomicU64>, Arc<Mutex<Vec<String>>>) =
                (stop.clone(), good.clone(), Arc::clone(&lost));
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    match get(port, Duration::from_secs(30)).await {
                        Ok(()) => drop(good.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => lost.lock().unwrap().push(error),
                    }
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            })
        };
        let tasks = (0..4).map(client).collect();
        Self { stop, good, lost, tasks }
    }

    pub(crate) fn so_far(&self) -> u64 {
        self.good.load(Ordering::Relaxed)
    }

    /// Ends it; gives how many requests were answered, and what became of the others.
    pub(crate) async fn end(self) -> (u64, Vec<String>) {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            let _ = task.await;
        }
        let lost = self.lost.lock().unwrap().clone();
        (self.good.load(Ordering::Relaxed), lost)
    }
}
