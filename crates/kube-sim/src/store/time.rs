//! Timestamps and ages in the API server's formats.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Year, month, day, hour, minute, second of a Unix time (civil-from-days, Howard Hinnant).
fn civil(seconds: u64) -> (u64, u64, u64, u64, u64, u64) {
    let (days, of_day) = (seconds / 86_400, seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    (year, month, day, of_day / 3_600, of_day / 60 % 60, of_day % 60)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Now, as `metav1.Time` is written: `2026-11-21T06:40:10Z`.
pub(crate) fn now() -> String {
    let (y, mo, d, h, mi, s) = civil(since_epoch().as_secs());
    format!("{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}Z")
}

/// Now, as `metav1.MicroTime` is written: `2026-11-21T07:30:36.042824Z`.
pub(crate) fn now_micro() -> String {
    let now = since_epoch();
    let (y, mo, d, h, mi, s) = civil(now.as_secs());
    format!("{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}.{:06}Z", now.subsec_micros())
}

/// Unix seconds of an RFC 3339 time in UTC; `None` if it is not one.
pub(crate) fn parse(text: &str) -> Option<u64> {
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if !text.ends_with('Z') || year < 1970 || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    let y = if month <= 2 { year - 1 } else { year };
    let era = y / 400;
    let year_of_era = y % 400;
    let shifted_month = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * shifted_month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = (era * 146_097 + day_of_era).checked_sub(719_468)?;
    Some(days * 86_400 + hour * 3_600 + minute * 60 + second)
}

/// How long ago `timestamp` was, as kubectl's tables show it; `<unknown>` if it is no time.
pub(crate) fn age(timestamp: Option<&str>) -> String {
    match timestamp.and_then(parse) {
        Some(then) => human(since_epoch().as_secs().saturating_sub(then)),
        None => "<unknown>".to_owned(),
    }
}

/// apimachinery's `duration.HumanDuration`.
pub(crate) fn human(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    let two = |big: u64, unit: char, small: u64, small_unit: char| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{small_unit}") }
    };
    if seconds < 120 {
        format!("{seconds}s")
    } else if minutes < 10 {
        two(minutes, 'm', seconds % 60, 's')
    } else if minutes < 180 {
        format!("{minutes}m")
    } else if hours < 8 {
        two(hours, 'h', minutes % 60, 'm')
    } else if hours < 48 {
        format!("{hours}h")
    } else if hours < 24 * 8 {
        two(days, 'd', hours % 24, 'h')
    } else if hours < 24 * 365 * 2 {
        format!("{days}d")
    } else if hours < 24 * 365 * 8 {
        two(days / 365, 'y', days % 365, 'd')
    } else {
        format!("{}y", days / 365)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_survives_the_round_trip() {
        assert_eq!(parse("2026-11-21T06:40:10Z"), Some(1_795_243_210));
        assert_eq!(civil(1_795_243_210), (2026, 11, 21, 6, 40, 10));
        assert_eq!(parse("2024-02-29T00:00:00.123456Z"), Some(1_709_164_800));
        for nonsense in ["yesterday", "2026-03-00T00:00:00Z", "2026-00-01T00:00:00Z", "ÄÄÄÄÄÄÄÄÄÄÄÄZ"]
        {
            assert_eq!(parse(nonsense), None);
        }
    }

    #[test]
    fn ages_read_as_kubectl_prints_them() {
        let ages =
            [(5, "5s"), (119, "119s"), (125, "2m5s"), (3_000, "50m"), (10_800, "3h"), (180_000, "2d2h")];
        for (seconds, text) in ages {
            assert_eq!(human(seconds), text);
        }
    }
}
