//! The names of the objects with client records: one object for each node and epoch.
//!
//! The object of a node with the greatest epoch up to the recovery epoch is the one from which clients
//! reclaim. A node that was away while others recovered has none of the recovery epoch itself.

/// The name of the object with the records that `node` writes in `epoch`, as nfs-ganesha has it.
#[must_use]
pub fn object_name(epoch: u64, node: &str) -> String {
    format!("rec-{epoch:016x}:{node}")
}

#[test]
fn names_are_those_of_ganesha() {
    assert_eq!(object_name(0x2a, "host.example"), "rec-000000000000002a:host.example");
}
