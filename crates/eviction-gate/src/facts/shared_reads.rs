//! Reads that several reviews share. A read is shared only if it began after the review arrived, so an answer is never
//! older than the review.

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use tokio::time::Instant;

/// The most reads of one key at a time. One more waits until the oldest has ended.
const AT_ONCE: usize = 2;

pub(crate) struct SharedReads<V> {
    reads: Mutex<HashMap<String, Vec<Read<V>>>>,
    number: AtomicU64,
}

#[derive(Clone)]
struct Read<V> {
    number: u64,
    began: Arc<OnceLock<Instant>>,
    value: Shared<BoxFuture<'static, V>>,
}

impl<V> Default for SharedReads<V> {
    fn default() -> Self {
        Self { reads: Mutex::default(), number: AtomicU64::new(0) }
    }
}

impl<V: Clone + Send + Sync + 'static> SharedReads<V> {
    /// Returns the value of a read that began after `arrival`: one that is under way, or `read`, which must end
    /// in bounded time. It goes on when no review waits for it any longer.
    pub(crate) fn get<F>(
        self: &Arc<Self>,
        key: &str,
        arrival: Instant,
        read: F,
    ) -> Shared<BoxFuture<'static, V>>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let mut all = self.lock();
        let reads = all.entry(key.to_owned()).or_default();
        // A read that has not started will start after every review that waits now has arrived.
        if let Some(fresh) = reads.iter().find(|read| read.began.get().is_none_or(|began| *began >= arrival))
        {
            return fresh.value.clone();
        }
        let oldest = reads.first().filter(|_| reads.len() >= AT_ONCE).map(|oldest| oldest.value.clone());
        let began = Arc::new(OnceLock::new());
        if oldest.is_none() {
            let _ = began.set(Instant::now());
        }
        let begins = began.clone();
        let value = async move {
            if let Some(oldest) = oldest {
                oldest.await;
                let _ = begins.set(Instant::now());
            }
            read.await
        };
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        let value = value.boxed().shared();
        reads.push(Read { number, began, value: value.clone() });
        drop(all);
        let (this, key, driven) = (self.clone(), key.to_owned(), value.clone());
        tokio::spawn(async move {
            driven.await;
            let mut all = this.lock();
            if let Some(reads) = all.get_mut(&key) {
                reads.retain(|read| read.number != number);
                if reads.is_empty() {
                    all.remove(&key);
                }
            }
        });
        value
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Vec<Read<V>>>> {
        self.reads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;
    use tokio::time::sleep;

    /// A read of a second that returns when it began.
    fn read(
        reads: &Arc<SharedReads<Instant>>,
        count: &Arc<AtomicUsize>,
        arrival: Instant,
    ) -> Shared<BoxFuture<'static, Instant>> {
        let count = count.clone();
        reads.get("n", arrival, async move {
            count.fetch_add(1, Ordering::SeqCst);
            let began = Instant::now();
            sleep(Duration::from_secs(1)).await;
            began
        })
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_hundred_reviews_that_arrive_together_share_one_read() {
        let (reads, count) = (Arc::new(SharedReads::default()), Arc::new(AtomicUsize::new(0)));
        let arrival = Instant::now();
        let each: Vec<_> = (0..100)
            .map(|number| {
                let (reads, count) = (reads.clone(), count.clone());
                tokio::spawn(async move {
                    // The read of its Pod.
                    sleep(Duration::from_millis(1000 + number % 7)).await;
                    read(&reads, &count, arrival).await
                })
            })
            .collect();
        for one in each {
            assert!(one.await.unwrap() >= arrival);
        }
        assert_eq!(count.load(Ordering::SeqCst), 1);
        assert!(arrival.elapsed() < Duration::from_millis(2010), "one round: {:?}", arrival.elapsed());
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_read_is_never_older_than_the_review_and_few_are_under_way() {
        let (reads, count) = (Arc::new(SharedReads::default()), Arc::new(AtomicUsize::new(0)));
        let mut waiting = Vec::new();
        for _ in 0..500 {
            let arrival = Instant::now();
            let value = read(&reads, &count, arrival);
            waiting.push(tokio::spawn(async move {
                let began = value.await;
                assert!(began >= arrival);
                arrival.elapsed()
            }));
            assert!(reads.lock()["n"].len() <= AT_ONCE + 1);
            sleep(Duration::from_millis(10)).await;
        }
        for one in waiting {
            assert!(one.await.unwrap() <= Duration::from_secs(2));
        }
        assert!(count.load(Ordering::SeqCst) < 20, "{count:?}");
        sleep(Duration::from_millis(1)).await;
        assert!(reads.lock().is_empty());
    }

    #[tokio::test(flavor = "current_thread", start_paused = true)]
    async fn a_read_goes_on_after_its_reviews_have_ended() {
        let (reads, count) = (Arc::new(SharedReads::default()), Arc::new(AtomicUsize::new(0)));
        drop(read(&reads, &count, Instant::now()));
        sleep(Duration::from_millis(10)).await;
        assert_eq!(count.load(Ordering::SeqCst), 1);
        sleep(Duration::from_secs(1)).await;
        assert!(reads.lock().is_empty());
    }
}
