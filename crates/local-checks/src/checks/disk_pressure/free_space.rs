//! The free space of a filesystem, and the required minimum.

use rustix::fs::StatVfs;
use std::fmt;
use std::str::FromStr;

/// A hundred percent, in the unit of [`Minimum::Share`].
const WHOLE: u64 = 1_000_000;

/// The required minimum of one resource, in one of the forms of the kubelet's `evictionHard`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Minimum {
    /// A share of the filesystem's total, in millionths.
    Share(u64),
    /// A number of bytes or inodes.
    Amount(u64),
}

/// The required minimum of free space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MinimumFree {
    pub(super) bytes: Minimum,
    pub(super) inodes: Minimum,
}

/// The default hard eviction thresholds of the kubelet, `nodefs.available` and `nodefs.inodesFree`, from
/// `pkg/kubelet/eviction/defaults_linux.go`.
pub(super) const NODE: MinimumFree = MinimumFree { bytes: Minimum::percent(10), inodes: Minimum::percent(5) };

/// The thresholds `imagefs.available` and `imagefs.inodesFree`, from the same file.
pub(super) const IMAGES: MinimumFree =
    MinimumFree { bytes: Minimum::percent(15), inodes: Minimum::percent(5) };

/// The thresholds of k3s and RKE2, for both kinds. They set none for inodes.
pub(super) const RANCHER: MinimumFree =
    MinimumFree { bytes: Minimum::percent(5), inodes: Minimum::percent(0) };

/// The free and total units of a filesystem, in bytes or inodes.
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

/// A resource below its minimum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shortage {
    /// The resource: `bytes` or `inodes`.
    pub(super) kind: &'static str,
    pub(super) share: Share,
    pub(super) needs: Minimum,
}

impl FreeSpace {
    /// Returns each resource below its limit.
    pub(super) fn shortages(self, limits: MinimumFree) -> impl Iterator<Item = Shortage> {
        let bytes = self.bytes.shortage("bytes", limits.bytes);
        let inodes = self.inodes.shortage("inodes", limits.inodes);
        bytes.into_iter().chain(inodes)
    }
}

impl From<StatVfs> for FreeSpace {
    fn from(stat: StatVfs) -> Self {
        let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
        Self {
            // The blocks that users other than root may still use, as the kubelet counts; ext4 reserves 5 %
            // for root.
            bytes: Share { free: bytes(stat.f_bavail), total: bytes(stat.f_blocks) },
            inodes: Share { free: stat.f_ffree, total: stat.f_files },
        }
    }
}

impl Share {
    /// Returns the shortage, if less is free than `needs`. As with the kubelet's threshold, exactly as much
    /// is enough. A filesystem without a count, such as Btrfs for inodes, can't run out.
    fn shortage(self, kind: &'static str, needs: Minimum) -> Option<Shortage> {
        let is_short = self.total > 0 && self.free < needs.of(self.total);
        is_short.then_some(Shortage { kind, share: self, needs })
    }
}

impl Minimum {
    pub(super) const fn percent(percent: u64) -> Self {
        Self::Share(percent * (WHOLE / 100))
    }

    /// Returns the number of units of `total`, rounded up so that a share is never missed by rounding.
    pub(super) fn of(self, total: u64) -> u64 {
        match self {
            Self::Share(millionths) => {
                let units = u128::from(total) * u128::from(millionths);
                u64::try_from(units.div_ceil(u128::from(WHOLE))).unwrap_or(u64::MAX)
            }
            Self::Amount(amount) => amount,
        }
    }
}

impl FromStr for Minimum {
    type Err = ();

    /// Parses a percentage (`5%`, `0.5%`), or a quantity of Kubernetes (`1Gi`, `500M`, `1e6`).
    fn from_str(text: &str) -> Result<Self, ()> {
        if let Some(percent) = text.strip_suffix('%') {
            let millionths = number(percent)? * 10_000.0;
            return if millionths <= 1e6 { Ok(Self::Share(whole(millionths))) } else { Err(()) };
        }
        let units =
            [(1000.0_f64, ["k", "M", "G", "T", "P", "E"]), (1024.0, ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])];
        let unit = units.into_iter().find_map(|(base, names)| {
            let mut named = names.into_iter().zip(1..);
            named.find_map(|(name, power)| Some((text.strip_suffix(name)?, base.powi(power))))
        });
        let (digits, factor) = unit.unwrap_or((text, 1.0));
        Ok(Self::Amount(whole(number(digits)? * factor)))
    }
}

/// Parses a decimal number that is not negative, with or without an exponent.
fn number(text: &str) -> Result<f64, ()> {
    let allowed = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E');
    let starts = text.starts_with(|first: char| first.is_ascii_digit());
    text.parse().ok().filter(|_| starts && text.bytes().all(allowed)).ok_or(())
}

/// Rounds to a whole number; the largest if it is larger.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = self.kind;
        let Share { free, total } = self.share;
        match self.needs {
            Minimum::Share(millionths) => {
                let free = u128::from(free) * u128::from(WHOLE) / u128::from(total.max(1));
                // Rounded down to as many digits as the limit has.
                let digit = [10_000, 1_000, 100, 10].into_iter().find(|digit| millionths % digit == 0);
                let digit = digit.unwrap_or(1);
                let free = u64::try_from(free).unwrap_or(u64::MAX) / digit * digit;
                write!(f, "{} % of {kind} free, needs {} %", percent(free), percent(millionths))
            }
            Minimum::Amount(needs) => write!(f, "{} {kind} free, needs {}", short(free), short(needs)),
        }
    }
}

/// Returns millionths as a percentage, with the digits that are needed.
fn percent(millionths: u64) -> String {
    let digits = format!("{}.{:04}", millionths / 10_000, millionths % 10_000);
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns a number in the largest binary unit of which it has at least one, rounded down.
fn short(number: u64) -> String {
    let units = [("Ei", 60), ("Pi", 50), ("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10)];
    units.into_iter().find(|(_, bits)| number >> bits > 0).map_or_else(
        || number.to_string(),
        |(unit, bits)| {
            let tenths = (u128::from(number) * 10) >> bits;
            format!("{}{unit}", format!("{}.{}", tenths / 10, tenths % 10).trim_end_matches(".0"))
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reasons_for(limits: MinimumFree, bytes: (u64, u64), inodes: (u64, u64)) -> Vec<String> {
        let share = |(free, total)| Share { free, total };
        let space = FreeSpace { bytes: share(bytes), inodes: share(inodes) };
        space.shortages(limits).map(|shortage| shortage.to_string()).collect()
    }

    fn reasons(bytes: (u64, u64), inodes: (u64, u64)) -> Vec<String> {
        reasons_for(NODE, bytes, inodes)
    }

    #[test]
    fn exactly_enough_is_enough_and_what_is_not_counted_does_not_run_out() {
        assert_eq!(reasons((0, 0), (0, 0)), [""; 0]);
        assert_eq!(reasons((100, 1000), (50, 1000)), [""; 0]);
        assert_eq!(reasons((99, 1000), (50, 1000)), ["9 % of bytes free, needs 10 %"]);
        assert_eq!(reasons((100, 1000), (49, 1000)), ["4 % of inodes free, needs 5 %"]);
        let both = ["0 % of bytes free, needs 10 %", "0 % of inodes free, needs 5 %"];
        assert_eq!(reasons((0, 1), (0, 1)), both);
    }

    #[test]
    fn limits_have_the_forms_of_the_kubelet() {
        let gi = 1 << 30;
        let of = |text: &str, total: u64| text.parse::<Minimum>().unwrap().of(total);
        for (text, minimum) in [
            ("0%", 0),
            ("5%", 50),
            ("0.5%", 5),
            ("12.34%", 124),
            ("100%", 1000),
            ("1Gi", gi),
            ("1.5Gi", gi * 3 / 2),
            ("500M", 500_000_000),
            ("10k", 10_000),
            ("1e6", 1_000_000),
            ("2E", 2_000_000_000_000_000_000),
            ("7", 7),
            ("99999Ei", u64::MAX),
        ] {
            assert_eq!(of(text, 1000), minimum, "{text}");
        }
        for bad in ["", "%", "-7%", "+7%", "101%", "7 %", "7%%", "x", "1gi", "1GiB", "inf", "nan", ".5", "Gi"]
        {
            assert_eq!(bad.parse::<Minimum>(), Err(()), "{bad}");
        }
    }

    #[test]
    fn a_shortage_is_told_in_the_form_of_its_limit() {
        let limits = |text: &str| MinimumFree { bytes: text.parse().unwrap(), inodes: text.parse().unwrap() };
        let gi = 1 << 30;
        assert_eq!(
            reasons_for(limits("0.5%"), (4_999, 1_000_000), (6, 1000)),
            ["0.4 % of bytes free, needs 0.5 %"]
        );
        assert_eq!(
            reasons_for(limits("1Gi"), (gi - 1, 100 * gi), (900, 1000)),
            ["1023.9Mi bytes free, needs 1Gi", "900 inodes free, needs 1Gi"]
        );
    }
}
