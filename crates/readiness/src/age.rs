//! A time span that is printed in the largest suitable unit.

use std::fmt;

/// A time span in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Age(pub u128);

impl fmt::Display for Age {
    /// Writes the span in its largest unit. Two digits are enough to act on, so the next larger unit begins
    /// at two of it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let said = match self.0 / 1000 {
            0 => format!("{} ms", self.0),
            seconds @ 1..120 => format!("{seconds} s"),
            seconds @ 120..7200 => format!("{} min", seconds / 60),
            seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
            seconds => format!("{} days", seconds / 86_400),
        };
        f.pad(&said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_their_largest_unit() {
        let said = [5, 1500, 119_000, 120_000, 8_000_000, 180_000_000].map(|ms| Age(ms).to_string());
        assert_eq!(said, ["5 ms", "1 s", "119 s", "2 min", "2 h", "2 days"]);
        assert_eq!(format!("{:>6}|", Age(5)), "  5 ms|");
    }
}
