//! Reads that several reviews share. A read is shared only if it began after the review arrived, so an answer is never
//! older than the review.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// The last read of each key for which a review waits.
pub(crate) struct SharedReads<V>(Mutex<HashMap<String, Arc<LastRead<V>>>>);

struct LastRead<V> {
    /// The reviews queue for the one turn: one of them reads, and the others wait.
    turn: Semaphore,
    /// When the read began, and its value.
    value: Mutex<Option<(Instant, V)>>,
}

impl<V> Default for SharedReads<V> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<V: Clone> SharedReads<V> {
    /// Returns the value of a read that began after `arrival`: another review's, or that of `read`, which must end in
    /// bounded time. A review waits for at most one read before that. If the review that reads is given up, the next
    /// one reads.
    pub(crate) async fn get(&self, key: &str, arrival: Instant, read: impl Future<Output = V>) -> V {
        let last = {
            let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            reads.retain(|_, read| Arc::strong_count(read) > 1);
            let new = || Arc::new(LastRead { turn: Semaphore::new(1), value: Mutex::default() });
            reads.entry(key.to_owned()).or_insert_with(new).clone()
        };
        // The semaphore is never closed.
        let _turn = last.turn.acquire().await;
        let value = || last.value.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, value)) = value().as_ref().filter(|(began, _)| *began >= arrival) {
            return value.clone();
        }
        let began = Instant::now();
        let read = read.await;
        *value() = Some((began, read.clone()));
        read
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;
    use tokio::time::sleep;

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_read_is_never_older_than_the_review_and_few_are_under_way() {
        let (reads, count) = (Arc::new(SharedReads::default()), Arc::new(AtomicUsize::new(0)));
        let mut waiting = Vec::new();
        for number in 0..500 {
            let (arrival, reads, count) = (Instant::now(), reads.clone(), count.clone());
            let review = tokio::spawn(async move {
                // Takes a second, and returns when it began.
                let read = async {
                    count.fetch_add(1, Ordering::SeqCst);
                    let began = Instant::now();
                    sleep(Duration::from_secs(1)).await;
                    began
                };
                assert!(reads.get("n", arrival, read).await >= arrival);
                arrival.elapsed()
            });
            sleep(Duration::from_millis(10)).await;
            // Every hundredth client goes away, at first the one whose read is under way.
            if number % 100 == 0 { review.abort() } else { waiting.push(review) }
        }
        for one in waiting {
            assert!(one.await.unwrap() <= Duration::from_secs(2));
        }
        assert!(count.load(Ordering::SeqCst) < 10, "{count:?}");
        reads.get("other", Instant::now(), async { Instant::now() }).await;
        assert_eq!(reads.0.lock().unwrap().len(), 1, "reads that have ended are forgotten");
    }
}
