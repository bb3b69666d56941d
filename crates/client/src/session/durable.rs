//! Names and attributes that must last.
//!
//! A server makes a change of them durable before it answers (RFC 1813 section 4.7), unless the session has a
//! lane: then both are one kernel, and a change is what it is to a local process, durable when it is synced
//! (docs/mount.md). COMMIT does that, also that of a directory, which only our server takes: another one,
//! that has come to the same address since, has made durable what it answered.

use proto::nfs3::{self, Procedure};
use xdr::Opaque;

use super::Session;
use crate::error::{Result, Status};
use crate::types::Handle;

impl Session {
    /// Makes durable what was changed of a directory's names, or of a file's attributes: fsync(2) beside the
    /// data.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn sync_metadata(&self, handle: &Handle) -> Result<()> {
        if !self.inner.lane.was_ever_established() {
            return Ok(());
        }
        let args = nfs3::Commit3Args { file: Opaque(handle.as_bytes()), offset: 0, count: 0 };
        let reply = self.nfs(Procedure::Commit, &args).await?;
        let done = self.body::<nfs3::Commit3ResOk, nfs3::WccData>(Procedure::Commit, &reply, &[handle]);
        match done.map(drop) {
            Err(error) if error.status().is_some_and(has_nothing_to_sync) => Ok(()),
            other => other,
        }
    }
}

/// Whether a server that refuses a COMMIT so leaves nothing to be made durable.
const fn has_nothing_to_sync(refusal: Status) -> bool {
    match refusal {
        // Who may not write to it has changed nothing of it.
        Status::Access | Status::NotPermitted | Status::ReadOnly => true,
        // A server that commits the data of regular files, as RFC 1813 section 3.3.21 has it, and nothing
        // else. It knows no `Async` either, so that every change was durable before it was answered.
        Status::IsDirectory | Status::Invalid | Status::BadType | Status::NotSupported => true,
        _ => false,
    }
}
