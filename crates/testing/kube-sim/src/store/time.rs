//! Timestamps and ages in the API server's formats.

use std::time::Duration;

use jiff::Timestamp;

/// Returns the current time as a `metav1.Time`: `2026-11-21T06:40:10Z`.
pub(crate) fn now() -> String {
    instant().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns the time this many seconds from now, as a `metav1.Time`.
pub(crate) fn in_seconds(seconds: u64) -> String {
    let later = instant().checked_add(Duration::from_secs(seconds)).unwrap_or_else(|_| instant());
    later.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Returns the current time as a `metav1.MicroTime`: `2026-11-21T07:30:36.042824Z`.
pub(crate) fn now_micro() -> String {
    instant().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn instant() -> Timestamp {
    // The dates that jiff does not support are thousands of years away.
    Timestamp::try_from(nodegate_clock::wall()).unwrap_or_default()
}

/// Returns the age of `timestamp` as in kubectl's tables; `<unknown>` if it is not a valid time.
pub(crate) fn age(timestamp: Option<&str>) -> String {
    match timestamp.and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(then) => human(instant().duration_since(then).as_secs().try_into().unwrap_or(0)),
        None => "<unknown>".to_owned(),
    }
}

/// Formats seconds like apimachinery's `duration.HumanDuration`.
fn human(seconds: u64) -> String {
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
    fn times_are_written_as_the_api_server_writes_them() {
        let whole = now_micro();
        let (date, micros) = whole.split_once('.').expect("a fraction");
        assert_eq!((date.len(), micros.len()), ("2026-11-21T07:30:36".len(), "042824Z".len()), "{whole}");
        assert_eq!(now().len(), "2026-11-21T06:40:10Z".len());
        assert_eq!(age(Some("yesterday")), "<unknown>");
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
