//! The names of the objects with client records: one object for each node and epoch.
//!
//! The object of a node with the greatest epoch up to the recovery epoch is the one from which clients
//! reclaim. A node that was away while others recovered has none of the recovery epoch itself.

/// The name of the object with the records that `node` writes in `epoch`, as nfs-ganesha has it.
#[must_use]
pub fn object_name(epoch: u64, node: &str) -> String {
    format!("rec-{epoch:016x}:{node}")
}

/// The epoch of the newest records of `node` among the objects with these `names`, not newer than `up_to`.
pub fn newest_epoch<'a>(names: impl IntoIterator<Item = &'a str>, node: &str, up_to: u64) -> Option<u64> {
    let epochs = names.into_iter().filter_map(|name| epoch_of(name, node));
    epochs.filter(|epoch| *epoch <= up_to).max()
}

/// The epoch in the name of an object with records of `node`.
fn epoch_of(name: &str, node: &str) -> Option<u64> {
    let (epoch, of) = name.strip_prefix("rec-")?.split_once(':')?;
    (of == node && epoch.len() == 16).then(|| u64::from_str_radix(epoch, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_ganesha() {
        assert_eq!(object_name(0x2a, "host.example"), "rec-000000000000002a:host.example");
        let names = [
            "grace",
            "rec-0000000000000003:a",
            "rec-0000000000000005:a",
            "rec-0000000000000009:a",
            "rec-0000000000000006:b",
            "rec-0000000000000006:a:b",
            "rec-7:a",
            "rec-000000000000000z:a",
        ];
        assert_eq!(newest_epoch(names, "a", 8), Some(5));
        assert_eq!(newest_epoch(names, "a", 5), Some(5));
        assert_eq!(newest_epoch(names, "a", 2), None);
        assert_eq!(newest_epoch(names, "a:b", 8), Some(6));
    }
}
