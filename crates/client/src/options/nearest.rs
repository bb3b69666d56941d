//! Suggestions for misspelt names.

/// The known name with the fewest changes to `name` (letters inserted, removed, replaced or swapped), if they
/// are few for its length.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let max_distance = (name.chars().count() / 3).clamp(1, 3);
    known
        .map(|candidate| (distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= max_distance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

/// The number of changes, with two letters swapped counted as one.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut least = replaced.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                least = least.min(before[j - 2] + 1);
            }
            row.push(least);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_few_changes_is_suggested() {
        let known = || ["rsize", "wsize", "actimeo", "timeo", "ro", "lookupcache"].into_iter();
        for (slip, meant) in [
            ("rsiz", Some("rsize")),
            ("actimo", Some("actimeo")),
            ("lookup_cache", Some("lookupcache")),
            ("tiemo", Some("timeo")),
            ("or", Some("ro")),
            ("quota", None),
            ("", None),
        ] {
            assert_eq!(nearest(slip, known()), meant, "{slip}");
        }
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("abc", "abc"), 0);
    }
}
