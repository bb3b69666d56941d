//! Numbers, times and names as text for people.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

/// `bytes` in binary units with three digits: "512 B", "1.5 KiB", "23.4 MiB".
pub fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if value < 9.995 { 2 } else { 1 };
    format!("{value:.digits$} {}", UNITS[unit])
}

/// `number` with commas between groups of three digits.
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// One, or many: "1 file", "3 files".
pub fn count(number: u64, one: &str) -> String {
    format!("{} {one}{}", thousands(number), if number == 1 { "" } else { "s" })
}

/// A span of time in its two largest units: "350 ms", "4.2 s", "3 min 5 s", "2 d 4 h".
pub fn duration(span: Duration) -> String {
    let seconds = span.as_secs();
    match seconds {
        0 => format!("{} ms", span.as_millis()),
        1..60 => format!("{:.1} s", span.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

/// As [`duration`], for what was counted in whole seconds.
pub fn seconds(span: u64) -> String {
    if span < 60 { format!("{span} s") } else { duration(Duration::from_secs(span)) }
}

/// A time stamp (seconds and nanoseconds since 1970) in the local time zone, to the minute: "2026-11-20
/// 23:09".
pub fn minute(seconds: i64, nanoseconds: u32) -> String {
    moment(seconds, nanoseconds, "%Y-%m-%d %H:%M")
}

/// A time stamp in the local time zone, complete: "2026-11-20 23:09:13.000000000 +0000".
pub fn instant(seconds: i64, nanoseconds: u32) -> String {
    moment(seconds, nanoseconds, "%Y-%m-%d %H:%M:%S.%9f %z")
}

fn moment(seconds: i64, nanoseconds: u32, format: &str) -> String {
    // A server may send any 64 bits. What isn't a date is shown as a number.
    let nanoseconds_or_zero = i32::try_from(nanoseconds).unwrap_or(0);
    match jiff::Timestamp::new(seconds, nanoseconds_or_zero) {
        Ok(stamp) => stamp.to_zoned(jiff::tz::TimeZone::system()).strftime(format).to_string(),
        Err(_) => format!("@{seconds}"),
    }
}

/// A file name for a message or a terminal. What isn't printable UTF-8 is shown as `\xNN`, so that a name
/// can't move the cursor or hide.
pub fn name(name: &[u8]) -> String {
    visible(name, is_invisible_command)
}

/// A line of text for a terminal, escaped as a [`name`]. Text that is escaped already stays as it is.
pub fn line(text: &str) -> Cow<'_, str> {
    match text.contains(is_invisible_command) {
        true => name(text.as_bytes()).into(),
        false => text.into(),
    }
}

/// As [`line`], for text with newlines.
pub fn lines(text: &str) -> String {
    visible(text.as_bytes(), |character| character != '\n' && is_invisible_command(character))
}

/// Whether a terminal obeys a character instead of showing it: control characters, separators of lines, and
/// what changes the direction of text (Unicode's Bidi_Control), which can make a name look like another.
fn is_invisible_command(character: char) -> bool {
    let is_bidi_control = matches!(
        character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    character.is_control() || matches!(character, '\u{2028}' | '\u{2029}') || is_bidi_control
}

fn visible(bytes: &[u8], is_escaped: impl Fn(char) -> bool) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            if is_escaped(character) {
                let mut encoded = [0; 4];
                for byte in character.encode_utf8(&mut encoded).bytes() {
                    let _ = write!(text, "\\x{byte:02x}");
                }
            } else {
                text.push(character);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// The ten characters of `ls -l`: `kind` is the first, `mode` the lower twelve bits.
pub fn mode(kind: char, mode: u32) -> String {
    let mut text = String::with_capacity(10);
    text.push(kind);
    for (shift, special_bit, special) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (mode & special_bit != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => special,
            (true, false) => special.to_ascii_uppercase(),
        });
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_three_digits() {
        assert_eq!(bytes(0), "0 B");
        assert_eq!(bytes(1023), "1023 B");
        assert_eq!(bytes(1024), "1.00 KiB");
        assert_eq!(bytes(1024 * 1024 - 1), "1.00 MiB");
        assert_eq!(bytes(23 * 1024 * 1024 + 400 * 1024), "23.4 MiB");
        assert_eq!(bytes(u64::MAX), "16.0 EiB");
    }

    #[test]
    fn thousands_are_grouped() {
        assert_eq!(thousands(7), "7");
        assert_eq!(thousands(123), "123");
        assert_eq!(thousands(1234), "1,234");
        assert_eq!(thousands(1_234_567), "1,234,567");
    }

    #[test]
    fn durations_use_two_units() {
        assert_eq!(duration(Duration::from_millis(350)), "350 ms");
        assert_eq!(duration(Duration::from_millis(4200)), "4.2 s");
        assert_eq!(duration(Duration::from_secs(185)), "3 min 5 s");
        assert_eq!(duration(Duration::from_secs(2 * 86_400 + 4 * 3600)), "2 d 4 h");
    }

    #[test]
    fn names_cannot_move_the_cursor() {
        assert_eq!(name(b"plain.txt"), "plain.txt");
        assert_eq!(name("grün".as_bytes()), "grün");
        assert_eq!(name(b"a\x1b[2Jb\xffc\n"), "a\\x1b[2Jb\\xffc\\x0a");
        // It would look like "exe.txt" in another order.
        assert_eq!(name("\u{202e}txt.exe".as_bytes()), "\\xe2\\x80\\xaetxt.exe");
        assert_eq!(lines("a\n\rb"), "a\n\\x0db");
        assert_eq!(line(&line("a\u{9b}31m")), "a\\xc2\\x9b31m");
    }

    #[test]
    fn modes_look_like_ls() {
        assert_eq!(mode('-', 0o644), "-rw-r--r--");
        assert_eq!(mode('d', 0o1777), "drwxrwxrwt");
        assert_eq!(mode('-', 0o4755), "-rwsr-xr-x");
        assert_eq!(mode('-', 0o2644), "-rw-r-Sr--");
    }

    #[test]
    fn a_time_that_is_no_date_is_shown_as_a_number() {
        assert_eq!(minute(i64::MAX, 0), format!("@{}", i64::MAX));
    }
}
