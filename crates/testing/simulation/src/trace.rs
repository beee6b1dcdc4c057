//! What happened, in order: a hash of it always, the words on demand.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The trace of one world. Clones are the same one.
#[derive(Clone)]
pub(crate) struct Trace(Arc<Mutex<Lines>>);

struct Lines {
    began: Instant,
    /// With fixed keys: the same words give the same number in every process.
    hash: DefaultHasher,
    shown: bool,
}

impl Trace {
    /// Begins now; with `shown`, each line is printed as it comes.
    pub(crate) fn new(shown: bool) -> Self {
        let began = nodegate_clock::now();
        Self(Arc::new(Mutex::new(Lines { began, hash: DefaultHasher::new(), shown })))
    }

    /// Time since the beginning.
    pub(crate) fn now(&self) -> Duration {
        nodegate_clock::now().saturating_duration_since(self.lock().began)
    }

    /// One more line.
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

    /// The hash of all lines.
    pub(crate) fn hash(&self) -> u64 {
        self.lock().hash.finish()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Notes a line, as `format!` writes it.
macro_rules! note {
    ($trace:expr, $($words:tt)*) => { $trace.note(format_args!($($words)*)) };
}
pub(crate) use note;
