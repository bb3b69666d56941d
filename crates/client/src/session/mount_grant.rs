//! The export's own mount, for a client that attaches it.

use super::Session;
use crate::lane::{MountGrant, MountRefusal};
use crate::types::Handle;

impl Session {
    /// Requests the mount that an exported directory is on, with that directory as its root. It is granted to
    /// root of the server's host, on exports with the option `mount_grant`.
    ///
    /// # Errors
    /// [`MountRefusal`]; [`Session::mount_refusal_over`] waits for the next occasion.
    pub async fn mount_grant(&self, directory: &Handle) -> Result<MountGrant, MountRefusal> {
        // A failure shows again in the server's answer.
        let _ = self.caller.seal(&[directory]).await;
        self.inner.lane.mount_grant(&self.caller.user, directory).await
    }

    /// Waits until another request may be answered differently. While there is no lane although there was one
    /// before, this looks for one, with the pauses of the backoff.
    pub async fn mount_refusal_over(&self, refusal: &MountRefusal) {
        self.inner.lane.mount_refusal_over(refusal).await;
    }
}
