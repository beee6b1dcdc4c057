//! Records what happens in a world: always a hash, and the text on demand. All modules write to it.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The trace of one world. Clones share it.
#[derive(Clone)]
pub(crate) struct Trace(Arc<Mutex<Lines>>);

struct Lines {
    began: Instant,
    /// The hash, with fixed keys: the same text gives the same hash in every process.
    hash: DefaultHasher,
    shown: bool,
}

impl Trace {
    /// Returns a trace that begins now. With `shown` it prints each line.
    pub(crate) fn new(shown: bool) -> Self {
        let began = nodegate_clock::now();
        Self(Arc::new(Mutex::new(Lines { began, hash: DefaultHasher::new(), shown })))
    }

    pub(crate) fn now(&self) -> Duration {
        nodegate_clock::now().saturating_duration_since(self.lock().began)
    }

    pub(crate) fn note(&self, what: fmt::Arguments<'_>) {
        let now = self.now();
        let text = what.to_string();
        let mut lines = self.lock();
        now.as_micros().hash(&mut lines.hash);
        text.hash(&mut lines.hash);
        if lines.shown {
            println!("{:>10.3} s  {text}", now.as_secs_f64());
        }
    }

    pub(crate) fn hash(&self) -> u64 {
        self.lock().hash.finish()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a line to a trace, with the arguments of `format!`.
macro_rules! note {
    ($trace:expr, $($words:tt)*) => { $trace.note(format_args!($($words)*)) };
}
pub(crate) use note;
