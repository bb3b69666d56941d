//! Suggestions for misspelt names.

/// The known name with the fewest changes to `name` (letters inserted, removed, replaced or swapped), if they
/// are few for its length.
pub fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let max_distance = (name.chars().count() / 3).clamp(1, 3);
    known
        .map(|candidate| (strsim::osa_distance(name, candidate), candidate))
        .filter(|(distance, _)| *distance <= max_distance)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
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
    }
}
