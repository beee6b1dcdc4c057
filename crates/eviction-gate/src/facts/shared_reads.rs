//! Reads that several reviews share. A read is shared only if it began after the review asked for it, so an answer is
//! never older than the question.

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Reads by key. At most one for each key is under way, and one waits for it.
pub struct SharedReads<V> {
    latest: Mutex<HashMap<String, Read<V>>>,
}

struct Read<V> {
    has_begun: Arc<AtomicBool>,
    value: Shared<BoxFuture<'static, V>>,
}

impl<V> Default for SharedReads<V> {
    fn default() -> Self {
        Self { latest: Mutex::default() }
    }
}

impl<V: Clone + Send + Sync + 'static> SharedReads<V> {
    /// Returns the value of a read that begins after this call. `read` must end in bounded time; it goes on if nobody
    /// waits for it any longer.
    pub fn get<F>(self: &Arc<Self>, key: &str, read: F) -> Shared<BoxFuture<'static, V>>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        let before = latest.get(key);
        if let Some(waiting) = before.filter(|before| !before.has_begun.load(Ordering::SeqCst)) {
            return waiting.value.clone();
        }
        let running = before.map(|before| before.value.clone());
        let has_begun = Arc::new(AtomicBool::new(false));
        let begins = has_begun.clone();
        let value = async move {
            if let Some(running) = running {
                running.await;
            }
            begins.store(true, Ordering::SeqCst);
            read.await
        };
        let value = value.boxed().shared();
        latest.insert(key.to_owned(), Read { has_begun: has_begun.clone(), value: value.clone() });
        drop(latest);
        let (this, key, driven) = (self.clone(), key.to_owned(), value.clone());
        tokio::spawn(async move {
            driven.await;
            let mut latest = this.latest.lock().unwrap_or_else(PoisonError::into_inner);
            if latest.get(&key).is_some_and(|read| Arc::ptr_eq(&read.has_begun, &has_begun)) {
                latest.remove(&key);
            }
        });
        value
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn five_hundred_at_once_are_two_reads_and_none_is_older_than_its_question() {
        let (reads, count) = (Arc::new(SharedReads::default()), Arc::new(AtomicUsize::new(0)));
        let read = |reads: &Arc<SharedReads<usize>>| {
            let count = count.clone();
            reads.get("n", async move {
                let number = count.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(Duration::from_millis(100)).await;
                number
            })
        };
        let first = tokio::spawn(read(&reads));
        tokio::time::sleep(Duration::from_millis(10)).await;
        let later: Vec<_> = (0..500).map(|_| tokio::spawn(read(&reads))).collect();
        assert_eq!(first.await.unwrap(), 0);
        for one in later {
            assert_eq!(one.await.unwrap(), 1, "began after the question");
        }
        assert_eq!(count.load(Ordering::SeqCst), 2);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(reads.len(), 0);
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_read_goes_on_without_those_who_asked() {
        let reads = Arc::new(SharedReads::default());
        drop(reads.get("n", async { tokio::time::sleep(Duration::from_secs(1)).await }));
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(reads.len(), 1);
        reads.get("n", async {}).await;
        tokio::time::sleep(Duration::from_millis(10)).await;
        assert_eq!(reads.len(), 0);
    }
}
