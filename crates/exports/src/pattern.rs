//! Host name patterns: `*`, `?` and character classes. As exports(5) says, these match dots, too.

/// Maximum length in bytes: that of a host name.
const MAX_PATTERN: usize = 255;

/// Whether `pattern` is well-formed; the error says what is wrong.
pub(crate) fn check(pattern: &str) -> Result<(), &'static str> {
    if pattern.len() > MAX_PATTERN {
        return Err("longer than 255 bytes");
    }
    if !pattern.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._*?[]!^".contains(&b)) {
        return Err("only letters, digits, '-', '.', '_', '*', '?' and [classes] of these can stand here");
    }
    let mut rest = pattern.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        rest = match first {
            b'[' => class(tail, 0).ok_or("a '[' without its ']'")?.1,
            b']' | b'!' | b'^' => return Err("']', '!' and '^' can stand in a [class] only"),
            _ => tail,
        };
    }
    Ok(())
}

/// Whether all of `name` matches `pattern`; both in lower case. Takes at most length times length steps,
/// because only the last `*` is retried.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.as_bytes(), name.as_bytes());
    let mut retry: Option<(&[u8], &[u8])> = None;
    loop {
        if let [b'*', after @ ..] = pattern {
            pattern = after;
            retry = Some((after, name));
            continue;
        }
        match (step(pattern, name), name.is_empty()) {
            (Some(after), false) => (pattern, name) = (after, &name[1..]),
            _ if pattern.is_empty() && name.is_empty() => return true,
            _ => match retry {
                Some((after, [_, later @ ..])) => {
                    retry = Some((after, later));
                    (pattern, name) = (after, later);
                }
                _ => return false,
            },
        }
    }
}

/// What is left of the pattern if its first element (no `*`) matches the first byte of `name`.
fn step<'a>(pattern: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let (&first, tail) = pattern.split_first()?;
    let byte = *name.first()?;
    match first {
        b'?' => Some(tail),
        b'[' => class(tail, byte).and_then(|(matched, rest)| matched.then_some(rest)),
        _ => (first == byte).then_some(tail),
    }
}

/// Reads a class after its `[`: whether it contains `byte`, and the rest of the pattern. `None` if it isn't
/// closed.
fn class(after: &[u8], byte: u8) -> Option<(bool, &[u8])> {
    let (negated, mut rest) = match after {
        [b'!' | b'^', rest @ ..] => (true, rest),
        _ => (false, after),
    };
    let mut found = false;
    let mut first = true;
    loop {
        match rest {
            [b']', tail @ ..] if !first => return Some((found != negated, tail)),
            [low, b'-', high, tail @ ..] if *high != b']' => {
                found |= (*low..=*high).contains(&byte);
                rest = tail;
            }
            [one, tail @ ..] => {
                found |= *one == byte;
                rest = tail;
            }
            [] => return None,
        }
        first = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*.example.org", "a.example.org", true),
            ("*.example.org", "a.b.example.org", true),
            ("*.example.org", "example.org", false),
            ("*.example.org", "a.example.org.evil", false),
            ("node?", "node1", true),
            ("node?", "node", false),
            ("node?", "node12", false),
            ("node[0-9]", "node7", true),
            ("node[0-9]", "nodex", false),
            ("node[!0-9]", "nodex", true),
            ("node[]x]", "node]", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("", "", true),
            ("", "a", false),
            ("a**", "a", true),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        assert!(check("a[b").is_err() && check("[]").is_err() && check("a/b").is_err());
        assert!(check("a[b-]").is_ok());
    }

    #[test]
    fn a_hostile_pattern_takes_bounded_time() {
        let pattern = "*a".repeat(120) + "b";
        assert!(!matches(&pattern, &"a".repeat(255)));
    }
}
