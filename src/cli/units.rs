//! Times and sizes as people read them.

/// How long something has lasted, in its two largest units: `12s`, `3m 4s`, `2h 3m`, `5d 2h`.
pub fn age(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{minutes}m {}s", seconds % 60),
        3600..86400 => format!("{hours}h {}m", minutes % 60),
        _ => format!("{days}d {}h", hours % 24),
    }
}

/// How long something took: `340ms`, `1.2s`, `75s`.
pub fn took(milliseconds: u64) -> String {
    match milliseconds {
        0..1000 => format!("{milliseconds}ms"),
        1000..60_000 => format!("{}.{}s", milliseconds / 1000, milliseconds % 1000 / 100),
        _ => format!("{}s", milliseconds / 1000),
    }
}

/// `512 B`, `1.2 MiB`.
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1024 {
        return format!("{count} B");
    }
    let mut whole = count;
    let mut rest = 0;
    let mut unit = "B";
    for next in UNITS {
        if whole < 1024 {
            break;
        }
        (rest, whole, unit) = (whole % 1024, whole / 1024, next);
    }
    format!("{whole}.{} {unit}", rest * 10 / 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_read_well_at_their_borders() {
        assert_eq!([0, 59_999, 60_000, 3_599_999].map(age), ["0s", "59s", "1m 0s", "59m 59s"]);
        assert_eq!([3_600_000, 86_399_999, 86_400_000].map(age), ["1h 0m", "23h 59m", "1d 0h"]);
        assert_eq!([0, 999, 1000, 59_999, 60_000].map(took), ["0ms", "999ms", "1.0s", "59.9s", "60s"]);
        assert_eq!(
            [0, 1023, 1024, 1536, 1 << 20].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "1.5 KiB", "1.0 MiB"]
        );
        assert_eq!(bytes(u64::MAX), "16383.9 PiB");
    }
}
