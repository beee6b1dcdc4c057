//! A time span that is printed in the largest suitable unit, and a point in time, in UTC.

use crate::moment::millis;
use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

/// A time span in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age(pub u64);

impl From<Duration> for Age {
    fn from(time: Duration) -> Self {
        Self(millis(time))
    }
}

impl fmt::Display for Age {
    /// Writes the span in its largest unit. Two digits are enough to act on, so the next larger unit begins
    /// at two of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self.0 / 1000 {
            0 => format!("{} ms", self.0),
            seconds @ 1..120 => format!("{seconds} s"),
            seconds @ 120..7200 => format!("{} min", seconds / 60),
            seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
            seconds => format!("{} days", seconds / 86_400),
        };
        f.pad(&text)
    }
}

/// The last second whose year has four digits.
const END_OF_9999: u64 = 253_402_300_799;

/// A time in milliseconds since the epoch, printed to the second: `2026-05-04T10:55:03Z`, or with `{:#}` as
/// people write it, `2026-05-04 10:55:03`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(pub u64);

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = UNIX_EPOCH + Duration::from_secs((self.0 / 1000).min(END_OF_9999));
        let machine = humantime::format_rfc3339_seconds(at).to_string();
        if f.alternate() {
            f.write_str(machine.replace('T', " ").trim_end_matches('Z'))
        } else {
            f.write_str(&machine)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_their_largest_unit() {
        let texts = [5, 1500, 119_000, 120_000, 8_000_000, 180_000_000].map(|ms| Age(ms).to_string());
        assert_eq!(texts, ["5 ms", "1 s", "119 s", "2 min", "2 h", "2 days"]);
        assert_eq!(format!("{:>6}|", Age(5)), "  5 ms|");
    }

    #[test]
    fn any_number_is_a_time() {
        assert_eq!(Stamp(1_700_000_000_999).to_string(), "2023-11-14T22:13:20Z");
        assert_eq!(format!("{:#}", Stamp(1_700_000_000_999)), "2023-11-14 22:13:20");
        assert_eq!(Stamp(u64::MAX).to_string(), "9999-12-31T23:59:59Z");
    }
}
