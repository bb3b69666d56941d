//! The key that seals the file handles of all servers of a cluster.

use rados::{Guard, ObjectChange, ObjectError, ObjectNamespace, Reason};

/// The object with the key: 16 random bytes.
const OBJECT: &str = "samehost-handle-key";

/// Reads the key, or creates it. Servers that start at the same time get the same key. A user who may read
/// the namespace can forge handles of files that aren't exported.
///
/// # Errors
/// If it can't be read or created, or has another length.
pub fn cluster_handle_key(objects: &ObjectNamespace) -> Result<[u8; 16], ObjectError> {
    match objects.read(OBJECT) {
        Err(error) if error.reason == Reason::Missing => {}
        other => return key(objects, &other?.data),
    }
    let mut fresh = [0; 16];
    getrandom::fill(&mut fresh).map_err(|_| objects.error(OBJECT, "create", Reason::NoRandomNumbers))?;
    let change = ObjectChange { data: Some(&fresh), ..ObjectChange::default() };
    match objects.change(OBJECT, Guard::Absent, change) {
        Ok(_) => Ok(fresh),
        // Another server was quicker, and its key counts.
        Err(error) if error.reason == Reason::Exists => key(objects, &objects.read(OBJECT)?.data),
        Err(error) => Err(error),
    }
}

fn key(objects: &ObjectNamespace, data: &[u8]) -> Result<[u8; 16], ObjectError> {
    let invalid = Reason::Invalid("a key has 16 bytes; remove it and every client mounts anew");
    data.try_into().map_err(|_| objects.error(OBJECT, "use", invalid))
}
