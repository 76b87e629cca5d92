//! Coalescing of requests: those that arrive during a computation share the next result.
//!
//! At most one computation runs at a time, and for users other than operators at most half of the time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::task::JoinError;
use tokio::time::sleep;

/// Maximum pause after a long computation.
const LONGEST_REST: Duration = Duration::from_secs(1);

/// The last result, with its time.
#[derive(Debug)]
pub(crate) struct ResultCache<T>(Mutex<Option<CachedResult<T>>>);

#[derive(Debug)]
struct CachedResult<T> {
    answer: Arc<T>,
    begun: Instant,
    ended: Instant,
}

impl<T> Default for ResultCache<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> CachedResult<T> {
    /// Time until which users other than operators wait for another computation.
    fn rests_until(&self) -> Instant {
        self.ended + (self.ended - self.begun).min(LONGEST_REST)
    }
}

impl<T: Send + Sync + 'static> ResultCache<T> {
    /// A result whose computation started after this call. The computation may block.
    ///
    /// # Errors
    /// If the computation panics.
    pub(crate) async fn get(
        &self,
        operator: bool,
        find: impl FnOnce() -> T + Send + 'static,
    ) -> Result<Arc<T>, JoinError> {
        let asked = Instant::now();
        loop {
            let mut last = self.0.lock().await;
            if let Some(found) = last.as_ref().filter(|found| found.begun >= asked) {
                return Ok(Arc::clone(&found.answer));
            }
            let rests = last.as_ref().map(|found| found.rests_until()).unwrap_or(asked);
            let rest = rests.saturating_duration_since(Instant::now());
            if !operator && !rest.is_zero() {
                drop(last);
                sleep(rest).await;
                continue;
            }
            let begun = Instant::now();
            let answer = Arc::new(tokio::task::spawn_blocking(find).await?);
            *last = Some(CachedResult { answer: Arc::clone(&answer), begun, ended: Instant::now() });
            return Ok(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[tokio::test(flavor = "multi_thread")]
    async fn questions_at_once_share_two_looks() {
        let (shared, looks) = (Arc::new(ResultCache::default()), Arc::new(AtomicUsize::new(0)));
        let ask = |_| {
            let (shared, looks) = (Arc::clone(&shared), Arc::clone(&looks));
            tokio::spawn(async move {
                let find = move || {
                    std::thread::sleep(Duration::from_millis(200));
                    looks.fetch_add(1, Relaxed)
                };
                shared.get(false, find).await.map(|look| *look)
            })
        };
        for question in (0..100).map(ask).collect::<Vec<_>>() {
            question.await.unwrap().unwrap();
        }
        assert!(looks.load(Relaxed) <= 2, "{looks:?}");
    }

    #[tokio::test]
    async fn answer_is_never_older_than_its_question() {
        let (shared, mut last) = (ResultCache::default(), 0);
        for now in 1..=5 {
            last = *shared.get(false, move || now).await.unwrap();
            assert_eq!(last, now);
        }
        assert_eq!(last, 5);
    }
}
