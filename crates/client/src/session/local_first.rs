//! The choice between the tree and the wire, for each operation.
//!
//! An operation in the tree mostly needs no waiting. It is performed by [`Session::perform_now`], which is no
//! future: a future has room for the largest call over the wire, several kilobytes, which a mount would
//! allocate for each request.

use std::sync::Arc;

use super::Session;
use crate::counters::{SessionCounters, bump};
use crate::error::Result;
use crate::lane::GrantedTree;
use crate::protocol::Protocol;
use crate::tree::{Call, LocalResult, LocalTree};
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
    /// Whether the session has a tree now, so that operations on names and attributes need no calls.
    #[must_use]
    pub fn has_tree(&self) -> bool {
        self.inner.lane.tree().is_some()
    }

    /// The way for one operation.
    pub(super) fn local_first(&self) -> LocalFirst<'_> {
        LocalFirst { tree: self.inner.lane.tree(), caller: &self.caller, counters: &self.inner.counters }
    }

    /// Performs an operation in the session's tree, unless it would have to wait. After `None` nothing has
    /// changed, and [`Session::local_first`] is the way. Errors name the operation `object`.
    pub(crate) fn perform_now<T>(
        &self,
        object: &'static str,
        operation: impl FnOnce(&LocalTree, Call<'_>) -> LocalResult<T>,
    ) -> Option<Result<T>> {
        let granted = self.inner.lane.tree()?;
        let result = granted.operations().as_tree()?.perform_now(&self.caller.user, object, operation)?;
        bump(&self.inner.counters.tree_operations);
        Some(result)
    }
}

/// Performs an operation on files: by the first closure in the tree if it needs no waiting there, and
/// otherwise by the second in a future of its own. A method that [`LocalTree`] and
/// [`Operations`](crate::operations::Operations) both have stands for the two.
macro_rules! perform {
    ($session:expr, $object:literal, $method:ident($($argument:expr),*), of $($file:expr),*) => {
        perform!(
            $session,
            $object,
            |tree, call| tree.$method(call, $($argument),*),
            |nfs, user| nfs.$method(user, $($argument),*),
            of $($file),*
        )
    };
    ($session:expr, $object:literal, $now:expr, $waiting:expr, of $($file:expr),*) => {
        match $session.perform_now($object, $now) {
            Some(result) => result,
            None => {
                let (local_first, files) = ($session.local_first(), [$($file),*]);
                Box::pin(local_first.perform(&files, $waiting)).await
            }
        }
    };
}
pub(super) use perform;

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
