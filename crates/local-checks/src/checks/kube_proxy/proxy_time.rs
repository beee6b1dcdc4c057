//! A time in kube-proxy's format.

use jiff::{SignedDuration, Timestamp};
use std::str::FromStr;
use std::time::Duration;

/// A reading of kube-proxy's clock.
///
/// Newer releases write RFC 3339. Older ones write the format of Go's `Time.String`: `2019-06-12 16:31:42.9
/// +0200 CEST m=+99.5`. There `m` is the monotonic clock, which does not jump when the wall clock is set.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct KubeProxyStamp {
    wall: Timestamp,
    monotonic: Option<f64>,
}

impl FromStr for KubeProxyStamp {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if let Ok(wall) = text.parse() {
            return Ok(Self { wall, monotonic: None });
        }
        let mut words = text.split_ascii_whitespace();
        let (Some(date), Some(time), Some(offset)) = (words.next(), words.next(), words.next()) else {
            return Err(());
        };
        let wall = Timestamp::strptime("%Y-%m-%d %H:%M:%S%.f %z", format!("{date} {time} {offset}"));
        let monotonic = words.next_back().and_then(|word| word.strip_prefix("m=")?.parse().ok());
        Ok(Self { wall: wall.map_err(|_| ())?, monotonic })
    }
}

impl KubeProxyStamp {
    /// Returns the time from here to `later`, zero if that is earlier; `None` if this is Go's zero time,
    /// which means never.
    pub(super) fn until(&self, later: &Self) -> Option<Duration> {
        if self.wall == zero() {
            return None;
        }
        let by_monotonic = || {
            let seconds = later.monotonic? - self.monotonic?;
            Duration::try_from_secs_f64(seconds.max(0.0)).ok()
        };
        let by_wall = || later.wall.duration_since(self.wall).max(SignedDuration::ZERO).unsigned_abs();
        Some(by_monotonic().unwrap_or_else(by_wall))
    }
}

fn zero() -> Timestamp {
    Timestamp::from_second(-62_135_596_800).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(text: &str) -> KubeProxyStamp {
        text.parse().unwrap_or_else(|()| panic!("{text:?}"))
    }

    #[test]
    fn both_formats_mean_the_same() {
        let rfc3339 = stamp("2019-06-12T16:31:42.9+02:00");
        assert_eq!(stamp("2019-06-12 16:31:42.9 +0200 CEST"), rfc3339);
        assert_eq!(stamp("2019-06-12 14:31:42.9 +0000 UTC"), rfc3339);
        assert_eq!(stamp("2019-06-12 16:31:42.9 +0200 +0200 m=-0.5").wall, rfc3339.wall);
    }

    #[test]
    fn the_clock_that_does_not_jump_counts() {
        let before = stamp("2019-06-12 14:31:42 +0000 UTC m=+100.5");
        let after = stamp("2019-06-12 13:31:42 +0000 UTC m=+102.75");
        assert_eq!(before.until(&after), Some(Duration::from_millis(2250)));
        assert_eq!(after.until(&before), Some(Duration::ZERO));
        let unknown = stamp("2019-06-12T14:31:52Z");
        assert_eq!(before.until(&unknown), Some(Duration::from_secs(10)));
        assert_eq!(stamp("0001-01-01 00:00:00 +0000 UTC").until(&after), None);
        assert_eq!(stamp("0001-01-01T00:00:00Z").until(&after), None);
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", "now", "2019-06-12", "2019-06-12 14:31:42", "2019-13-12 14:31:42 +0000 UTC", "1560350000"]
        {
            assert_eq!(text.parse::<KubeProxyStamp>(), Err(()), "{text:?}");
        }
    }
}
