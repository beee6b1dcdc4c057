//! The one way to log what lasts: when it begins, when its reason changes, each minute while it lasts, and when it ends.

use std::collections::BTreeMap;
use std::time::Duration;

/// The pause between two log lines about the same thing.
const REMIND_EVERY: Duration = Duration::from_mins(1);
/// The most reasons that are logged in that time.
const MAX_REASONS: usize = 8;

/// Something that may last, such as a fault. Times are those since any fixed instant. The default is that it does not.
#[derive(Debug, Default)]
pub struct OngoingFault {
    began: Option<Duration>,
    /// When it was last logged with each reason.
    logged: BTreeMap<String, Duration>,
}

impl OngoingFault {
    /// Notes that it lasts, for this reason. Returns true if this reason was not logged within the last minute.
    pub fn should_log(&mut self, reason: &str, now: Duration) -> bool {
        self.began.get_or_insert(now);
        self.logged.retain(|_, at| now.saturating_sub(*at) < REMIND_EVERY);
        let is_news = self.logged.len() < MAX_REASONS && !self.logged.contains_key(reason);
        if is_news {
            self.logged.insert(reason.to_owned(), now);
        }
        is_news
    }

    /// Notes that it is over. Returns how long it lasted, if it did.
    pub fn ends(&mut self, now: Duration) -> Option<Duration> {
        self.logged.clear();
        self.began.take().map(|began| now.saturating_sub(began))
    }

    /// Returns true while it lasts.
    pub fn is_on(&self) -> bool {
        self.began.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_logged_when_it_begins_each_minute_for_another_reason_and_at_its_end() {
        let mut fault = OngoingFault::default();
        let at = Duration::from_secs;
        let logged: Vec<u64> = (0..130).filter(|second| fault.should_log("a", at(*second))).collect();
        assert_eq!((logged, fault.should_log("b", at(130))), (vec![0, 60, 120], true));
        assert_eq!((fault.ends(at(131)), fault.ends(at(132))), (Some(at(131)), None));
        assert!(!fault.is_on() && fault.should_log("b", at(132)));
    }
}
