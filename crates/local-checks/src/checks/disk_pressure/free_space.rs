//! The free space of a filesystem, and the required minimum, also the operator's own for a path.

use crate::settings::MAX_PATHS;
use rustix::fs::StatVfs;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The required minimum of one resource, in one of the forms of the kubelet's `evictionHard`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Minimum {
    /// A share of the filesystem's total.
    Percent(f64),
    /// A number of bytes or inodes.
    Amount(u64),
}

/// The required minimum of free bytes, and of free inodes.
pub(super) type MinimumFree = [Minimum; 2];

/// The kubelet's default hard eviction thresholds for `nodefs` (`pkg/kubelet/eviction/defaults_linux.go`).
pub(super) const NODE: MinimumFree = [Minimum::Percent(10.0), Minimum::Percent(5.0)];
/// The thresholds for `imagefs`, from the same file.
pub(super) const IMAGES: MinimumFree = [Minimum::Percent(15.0), Minimum::Percent(5.0)];
/// The thresholds of k3s and RKE2, for both kinds. They set none for inodes.
pub(super) const RANCHER: MinimumFree = [Minimum::Percent(5.0), Minimum::Percent(0.0)];

/// The free bytes of a filesystem and all of them, and the same of its inodes.
pub(super) type FreeSpace = [(u64, u64); 2];

/// A resource below its minimum.
pub(super) struct Shortage {
    /// The resource: `bytes` or `inodes`.
    pub(super) kind: &'static str,
    pub(super) total: u64,
    /// The minimum, in units of the resource.
    pub(super) needs: u64,
    /// The shortage for people.
    pub(super) text: String,
}

pub(super) fn free_space(stat: &StatVfs) -> FreeSpace {
    let bytes = |blocks: u64| blocks.saturating_mul(stat.f_frsize);
    // What users other than root may use, as the kubelet counts; ext4 reserves 5 % for root.
    [(bytes(stat.f_bavail), bytes(stat.f_blocks)), (stat.f_ffree, stat.f_files)]
}

/// Returns each resource of which less than its minimum is free. What has no count, such as Btrfs' inodes, can't run
/// out.
pub(super) fn shortages(space: FreeSpace, limits: MinimumFree) -> impl Iterator<Item = Shortage> {
    let resources = ["bytes", "inodes"].into_iter().zip(space).zip(limits);
    resources.filter_map(|((kind, (free, total)), minimum)| {
        let needs = minimum.of(total);
        let text = || match minimum {
            Minimum::Percent(percent) => {
                // Rounded down, so that it is never what is needed.
                let digits = if percent.fract() == 0.0 { 1.0 } else { 100.0 };
                let free = (real(free) / real(total) * 100.0 * digits).floor() / digits;
                format!("{free} % of {kind} free, needs {percent} %")
            }
            Minimum::Amount(needs) => format!("{} {kind} free, needs {}", short(free), short(needs)),
        };
        (total > 0 && free < needs).then(|| Shortage { kind, total, needs, text: text() })
    })
}

impl Minimum {
    /// Returns the number of units of `total`, rounded up so that a share is never missed by rounding.
    pub(super) fn of(self, total: u64) -> u64 {
        match self {
            Self::Percent(percent) => whole((real(total) * percent / 100.0).ceil()),
            Self::Amount(amount) => amount,
        }
    }
}

/// Parses a percentage (`5%`, `0.5%`), or a quantity of Kubernetes (`1Gi`, `500M`, `1e6`).
fn parse_minimum(text: &str) -> Option<Minimum> {
    if let Some(percent) = text.strip_suffix('%') {
        return number(percent).filter(|percent| *percent <= 100.0).map(Minimum::Percent);
    }
    let units =
        [(1000.0_f64, ["k", "M", "G", "T", "P", "E"]), (1024.0, ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"])];
    let unit = units.into_iter().find_map(|(base, names)| {
        let mut named = names.into_iter().zip(1..);
        named.find_map(|(name, power)| Some((text.strip_suffix(name)?, base.powi(power))))
    });
    let (digits, factor) = unit.unwrap_or((text, 1.0));
    Some(Minimum::Amount(whole(number(digits)? * factor)))
}

/// Parses a decimal number that is not negative, with or without an exponent.
fn number(text: &str) -> Option<f64> {
    let allowed = |byte: u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E');
    let starts = text.starts_with(|first: char| first.is_ascii_digit());
    text.parse().ok().filter(|_| starts && text.bytes().all(allowed))
}

/// Rounds to a whole number; the largest if it is larger.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

#[expect(clippy::cast_precision_loss, reason = "a few bytes of a petabyte do not matter")]
fn real(number: u64) -> f64 {
    number as f64
}

/// Returns a number in the largest binary unit of which it has at least one, rounded down.
fn short(number: u64) -> String {
    let power = number.max(1).ilog2() / 10;
    let tenths = (u128::from(number) * 10) >> (10 * power);
    let unit = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].into_iter().nth(power as usize).unwrap_or_default();
    format!("{}{unit}", format!("{}.{}", tenths / 10, tenths % 10).trim_end_matches(".0"))
}

const TAKES: &str = "takes <path>=<bytes>[/<inodes>], separated by \":\", at most 64, each path once, each limit \
                     a share or a quantity, e.g. /var/lib/kubelet=5%/0.5%:/data=1Gi; 0% turns this limit off";

/// Parses limits such as `/var/lib/kubelet=5%/2%:/data=1Gi`: bytes, then inodes unless the default applies.
pub(super) fn parse_limits(text: &str) -> Result<BTreeMap<PathBuf, MinimumFree>, &'static str> {
    let limits: BTreeMap<_, _> = text.split(':').map(parse_limit).collect::<Option<_>>().ok_or(TAKES)?;
    let has_each_once = limits.len() == text.split(':').count();
    if has_each_once && limits.len() <= MAX_PATHS { Ok(limits) } else { Err(TAKES) }
}

fn parse_limit(text: &str) -> Option<(PathBuf, MinimumFree)> {
    // The last `=` separates: a path may contain others.
    let (path, limits) = text.rsplit_once('=')?;
    let (bytes, inodes) = match limits.split_once('/') {
        Some((bytes, inodes)) => (bytes, parse_minimum(inodes)?),
        None => (limits, NODE[1]),
    };
    let path = PathBuf::from(path);
    path.is_absolute().then_some((path, [parse_minimum(bytes)?, inodes]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_enough_is_enough_and_a_shortage_has_the_form_of_its_limit() {
        let both = |text: &str| [parse_minimum(text).unwrap(); 2];
        let gi = 1 << 30;
        for (limits, bytes, inodes, texts) in [
            // What is not counted does not run out.
            (NODE, (0, 0), (0, 0), &[][..]),
            (NODE, (100, 1000), (50, 1000), &[]),
            (NODE, (99, 1000), (50, 1000), &["9 % of bytes free, needs 10 %"]),
            (NODE, (100, 1000), (49, 1000), &["4 % of inodes free, needs 5 %"]),
            (both("0.5%"), (4_999, 1_000_000), (6, 1000), &["0.49 % of bytes free, needs 0.5 %"]),
            (
                both("1Gi"),
                (gi - 1, 100 * gi),
                (900, 1000),
                &["1023.9Mi bytes free, needs 1Gi", "900 inodes free, needs 1Gi"],
            ),
        ] {
            let found: Vec<_> = shortages([bytes, inodes], limits).map(|shortage| shortage.text).collect();
            assert_eq!(found, texts);
        }
    }

    #[test]
    fn limits_have_the_forms_of_the_kubelet() {
        let gi = 1 << 30;
        let of = |text: &str, total: u64| parse_minimum(text).unwrap().of(total);
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
            assert_eq!(parse_minimum(bad), None, "{bad}");
        }
    }

    #[test]
    fn inodes_are_as_usual_unless_they_are_set() {
        let set = parse_limits("/var/lib/kubelet=5%/2%:/a=b=1Ki:/=0%/0%").unwrap();
        let kibibyte = [Minimum::Amount(1024), NODE[1]];
        let expected = [
            ("/var/lib/kubelet", [5.0, 2.0].map(Minimum::Percent)),
            ("/a=b", kibibyte),
            ("/", [0.0, 0.0].map(Minimum::Percent)),
        ];
        assert_eq!(set, expected.map(|(path, limits)| (PathBuf::from(path), limits)).into());
        assert_eq!(parse_limits(""), Err(TAKES));
    }
}
