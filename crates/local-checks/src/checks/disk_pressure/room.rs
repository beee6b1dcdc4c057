//! The free space of a filesystem, and the required minimum.

use rustix::fs::StatVfs;
use std::fmt;
use std::str::FromStr;

/// A whole percentage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Percent(pub(super) u8);

/// The required minimum of free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MinimumFree {
    pub(super) bytes: Percent,
    pub(super) inodes: Percent,
}

/// The default hard eviction thresholds of the kubelet, `nodefs.available` and `nodefs.inodesFree`, from
/// `pkg/kubelet/eviction/defaults_linux.go`.
pub(super) const NODE: MinimumFree = MinimumFree { bytes: Percent(10), inodes: Percent(5) };

/// The thresholds `imagefs.available` and `imagefs.inodesFree`, from the same file.
pub(super) const IMAGES: MinimumFree = MinimumFree { bytes: Percent(15), inodes: Percent(5) };

/// The free and total units of a filesystem, in blocks or inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) free: u64,
    pub(super) total: u64,
}

/// The free space of a filesystem, in bytes and in inodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FreeSpace {
    pub(super) bytes: Share,
    pub(super) inodes: Share,
}

/// A resource that may run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Bytes,
    Inodes,
}

/// A resource below its minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shortage {
    pub(super) kind: Kind,
    /// The free share, rounded down.
    pub(super) free: Percent,
    pub(super) needs: Percent,
    /// The total, which distinguishes two quotas of one filesystem.
    pub(super) total: u64,
}

// === impl Room ===

impl FreeSpace {
    /// Returns all shortages.
    pub(super) fn shortages(self, limits: MinimumFree) -> impl Iterator<Item = Shortage> {
        let bytes = self.bytes.shortage(Kind::Bytes, limits.bytes);
        let inodes = self.inodes.shortage(Kind::Inodes, limits.inodes);
        bytes.into_iter().chain(inodes)
    }
}

impl From<StatVfs> for FreeSpace {
    fn from(stat: StatVfs) -> Self {
        Self {
            // The blocks that users other than root may still use, as the kubelet counts; ext4 reserves 5 %
            // for root.
            bytes: Share { free: stat.f_bavail, total: stat.f_blocks },
            inodes: Share { free: stat.f_ffree, total: stat.f_files },
        }
    }
}

impl Share {
    /// Returns the shortage, if the free share is below `needs`. As with the kubelet's threshold, exactly as
    /// much is enough. A filesystem without a count, such as Btrfs for inodes, can't run out.
    fn shortage(self, kind: Kind, needs: Percent) -> Option<Shortage> {
        let Self { free, total } = self;
        let hundredfold = u128::from(free) * 100;
        if total == 0 || hundredfold >= u128::from(needs.0) * u128::from(total) {
            return None;
        }
        // It is less than `needs` by the line above, so it fits.
        let free = Percent(u8::try_from(hundredfold / u128::from(total)).unwrap_or(u8::MAX));
        Some(Shortage { kind, free, needs, total })
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            Kind::Bytes => "bytes",
            Kind::Inodes => "inodes",
        };
        write!(f, "{} % of {kind} free, needs {} %", self.free.0, self.needs.0)
    }
}

impl FromStr for Percent {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let digits = text.strip_suffix('%').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        digits.and_then(|digits| digits.parse().ok()).filter(|number| *number <= 100).map(Self).ok_or(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reasons(bytes: (u64, u64), inodes: (u64, u64)) -> Vec<String> {
        let share = |(free, total)| Share { free, total };
        let room = FreeSpace { bytes: share(bytes), inodes: share(inodes) };
        room.shortages(NODE).map(|shortage| shortage.to_string()).collect()
    }

    #[test]
    fn exactly_enough_is_enough() {
        assert_eq!(reasons((100, 1000), (50, 1000)), [""; 0]);
        assert_eq!(reasons((99, 1000), (50, 1000)), ["9 % of bytes free, needs 10 %"]);
        assert_eq!(reasons((100, 1000), (49, 1000)), ["4 % of inodes free, needs 5 %"]);
        let both = ["0 % of bytes free, needs 10 %", "0 % of inodes free, needs 5 %"];
        assert_eq!(reasons((0, 1), (0, 1)), both);
    }

    #[test]
    fn what_a_filesystem_does_not_count_does_not_run_out() {
        assert_eq!(reasons((0, 0), (0, 0)), [""; 0]);
        assert_eq!(reasons((5, 10), (0, 0)), [""; 0]);
    }

    #[test]
    fn a_percentage_is_a_whole_number_with_its_sign() {
        assert_eq!(["0%", "7%", "100%"].map(str::parse), [0, 7, 100].map(|number| Ok(Percent(number))));
        for bad in ["", "%", "7", "-7%", "+7%", "101%", "256%", "1.5%", "7 %", "7%%"] {
            assert_eq!(bad.parse::<Percent>(), Err(()), "{bad}");
        }
    }

    fn share() -> impl Strategy<Value = Share> {
        (any::<u64>(), any::<u64>(), 0..64u32).prop_map(|(free, total, shift)| {
            let total = total >> shift;
            Share { free: free.checked_rem(total).unwrap_or(free), total }
        })
    }

    proptest! {
        #[test]
        fn what_is_said_contradicts_nothing(share in share(), needs in 0..=100u8) {
            if let Some(shortage) = share.shortage(Kind::Bytes, Percent(needs)) {
                prop_assert!(shortage.free < shortage.needs, "{shortage}");
                prop_assert!(share.total > 0 && share.free < share.total);
            }
        }

        #[test]
        fn more_room_or_a_lower_limit_never_makes_it_worse(
            share in share(), more: u64, needs in 1..=100u8, less in 0..100u8,
        ) {
            let is_short = |share: Share, needs| share.shortage(Kind::Inodes, Percent(needs)).is_some();
            if !is_short(share, needs) {
                let roomier = Share { free: share.free.saturating_add(more), ..share };
                prop_assert!(!is_short(roomier, needs));
                prop_assert!(!is_short(share, less.min(needs)));
            }
            prop_assert!(!is_short(share, 0));
        }

        #[test]
        fn the_size_of_what_is_counted_does_not_matter(
            free in 0..=1000u64, total in 1..=1000u64, scale in 1..=1_000_000u64, needs in 0..=100u8,
        ) {
            let short = |share: Share| {
                let shortage = share.shortage(Kind::Bytes, Percent(needs));
                shortage.map(|shortage| (shortage.free, shortage.needs))
            };
            let scaled = Share { free: free * scale, total: total * scale };
            prop_assert_eq!(short(Share { free, total }), short(scaled));
        }

        #[test]
        fn no_numbers_panic(free: u64, total: u64, needs: u8) {
            if let Some(shortage) = (Share { free, total }).shortage(Kind::Bytes, Percent(needs)) {
                prop_assert!(shortage.to_string().ends_with('%'));
            }
        }
    }
}
