//! The checks before an operation reads or changes a file: the state id allows it, and no delegation of
//! another client conflicts. A conflicting delegation is recalled and the operation fails with NFS4ERR_DELAY.
//!
//! Permissions come first: a user whom the file's permissions refuse recalls nothing.

use proto::nfs4::{MinorVersion, Nfsstat4, Stateid4};
use state::{AccessKind, Direction};
use store::{FileKind, Node, OwnChange, UserContext};

use super::context::{Context, is_special};
use super::object::File;
use super::status::{self, Result};
use crate::service::{Service, is_permission_denied};

impl Context<'_> {
    /// The current file, if it is a regular one and the state id allows to read or write it.
    pub fn file_for_io(&self, id: Stateid4, direction: Direction) -> Result<File> {
        let file = self.file(Nfsstat4::Isdir)?;
        match file.node.kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Nfsstat4::Isdir),
            FileKind::Symlink if self.minor >= MinorVersion::V1 => return Err(Nfsstat4::Symlink),
            _ if self.minor >= MinorVersion::V1 => return Err(Nfsstat4::WrongType),
            _ => return Err(Nfsstat4::Inval),
        }
        self.check_io(&file, id, direction)?;
        Ok(file)
    }

    /// Whether the state id allows to read or write the file.
    pub fn check_io(&self, file: &File, id: Stateid4, direction: Direction) -> Result<()> {
        let id = self.stateid(id)?;
        let (client, key) = (self.io_client(&id)?, *file.node.handle());
        if is_special(&id) {
            self.check_permission(file, direction)?;
        }
        let checked =
            self.service.state.run(|engine, now| engine.check_io(now, client, &id, &key, direction));
        checked.map_err(status::of_state)
    }

    /// Whether the file's permissions let the user read or write without an open. They decide only where
    /// another client's state could conflict; elsewhere the store checks them.
    fn check_permission(&self, file: &File, direction: Direction) -> Result<()> {
        let touch = match direction {
            Direction::Read => AccessKind::Read,
            Direction::Write => AccessKind::Write,
        };
        if self.service.state.is_free(touch) {
            return Ok(());
        }
        Service::check_permission(&file.user_context()?, &file.node, touch).map_err(status::of_store)
    }

    /// Checks that no other client's delegation conflicts with a change of the file. The guard must live
    /// until the change is made.
    pub fn begin_change(&self, user_context: &UserContext<'_>, file: &Node) -> Result<Option<OwnChange>> {
        self.begin_permitted_change(
            || Service::check_permission(user_context, file, AccessKind::Change),
            file,
        )
    }

    /// As [`Context::begin_change`], where another `permission` than that to change the file decides. Without
    /// it nothing is recalled: the operation itself finds out why it can't be done.
    pub fn begin_permitted_change(
        &self,
        permission: impl FnOnce() -> store::Result<()>,
        file: &Node,
    ) -> Result<Option<OwnChange>> {
        if !self.service.state.has_delegations() || is_permission_denied(permission()) {
            return Ok(None);
        }
        self.service.state.begin_change(self.own_client(), file.handle()).map_err(status::of_state)
    }

    /// As [`Context::begin_change`] for the file with that name in a directory, if there is one.
    pub fn begin_entry_change(
        &self,
        user_context: &UserContext<'_>,
        directory: &Node,
        name: &[u8],
    ) -> Result<Option<OwnChange>> {
        if !self.service.state.has_delegations() {
            return Ok(None);
        }
        match user_context.lookup(directory, name) {
            Ok(node) => self.begin_permitted_change(|| user_context.may_change_entries(directory), &node),
            // The operation itself finds out what is wrong.
            Err(_) => Ok(None),
        }
    }
}
