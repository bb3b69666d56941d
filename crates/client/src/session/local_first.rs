//! The choice between the tree and the wire, for each operation.

use std::sync::Arc;

use super::Session;
use crate::counters::{SessionCounters, bump};
use crate::error::Result;
use crate::lane::GrantedTree;
use crate::protocol::Protocol;
use crate::types::Handle;
use crate::user::User;
use crate::wire::WireCaller;

/// A user's operations, performed in the session's tree if it has one, and otherwise over the wire.
pub(super) struct LocalFirst<'s> {
    tree: Option<Arc<GrantedTree>>,
    caller: &'s WireCaller,
    counters: &'s SessionCounters,
}

impl Session {
    /// The way for one operation.
    pub(super) fn local_first(&self) -> LocalFirst<'_> {
        LocalFirst { tree: self.inner.lane.tree(), caller: &self.caller, counters: &self.inner.counters }
    }
}

impl LocalFirst<'_> {
    /// Performs an operation on `files`. What the tree can't do, the server is asked for; an operation that
    /// isn't local has changed nothing.
    ///
    /// # Errors
    /// The operation's, and those of [`WireCaller::perform`].
    pub(super) async fn perform<'a, T, F>(
        &'a self,
        files: &[&Handle],
        mut operation: impl FnMut(&'a Protocol, &'a User) -> F,
    ) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        if let Some(tree) = &self.tree {
            match operation(tree.operations(), &self.caller.user).await {
                Err(error) if error.is_not_local() => {}
                result => {
                    bump(&self.counters.tree_operations);
                    return result;
                }
            }
        }
        self.caller.perform(files, operation).await
    }
}
