// SPDX-License-Identifier: GPL-2.0

//! Times of day as text.

use std::time::Duration;

/// `time`, counted from the beginning of 1970, in UTC as ISO 8601 has it, to the microsecond.
pub(crate) fn utc(time: Duration) -> String {
    let (days, seconds) = (time.as_secs() / 86_400, time.as_secs() % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let parts = time.subsec_micros();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{parts:06}Z")
}

/// Year, month and day of the day that comes so many days after 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    // Leap days are last in years that begin in March; 400 of these are always 146,097 days.
    let days = days + 719_468;
    let (eras, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // From March on, five months each have 153 days.
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (next, month) = if month < 10 {
        (0, month + 3)
    } else {
        (1, month - 9)
    };
    (eras * 400 + year + next, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (951_782_399, "2000-02-28T23:59:59.000000Z"),
            (951_782_400, "2000-02-29T00:00:00.000000Z"),
            (951_868_800, "2000-03-01T00:00:00.000000Z"),
            (1_795_835_517, "2026-11-28T03:11:57.000000Z"),
            (4_107_542_399, "2100-02-28T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            assert_eq!(utc(Duration::from_secs(seconds)), expected);
        }
        let parts = Duration::new(86_399, 999_999_999);
        assert_eq!(utc(parts), "1970-01-01T23:59:59.999999Z");
        // The file may say what it likes.
        assert!(utc(Duration::MAX).ends_with("Z"));
    }
}
