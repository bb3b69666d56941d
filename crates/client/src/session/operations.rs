//! The operations of a session. READ, WRITE and COMMIT are methods of an open file.

use super::Session;
use super::local_first::perform;
use crate::error::{Error, Result, Status};
use crate::operations::Operations as _;
use crate::types::{
    Access, Attributes, Create, Found, FsInfo, FsStat, Handle, MadeDirectory, NameHint, Node, PathConf,
    PosixAcls, SetAcl, SetAttributes, Timestamp,
};

/// An operation and the name that it was given, for errors.
fn named(operation: &str, name: &[u8]) -> String {
    format!("{operation} {:?}", String::from_utf8_lossy(name))
}

impl Session {
    /// Waits for a reply of the server and does nothing else (NULL).
    ///
    /// # Errors
    /// The call's.
    pub async fn null(&self) -> Result<()> {
        self.local_first().perform(&[], |nfs, user| nfs.null(user)).await
    }

    /// Waits until the server has answered all writes to a file that were made by [`File::write_behind`]
    /// before this call. Whether they have succeeded is told by the opens that made them.
    ///
    /// [`File::write_behind`]: crate::File::write_behind
    pub async fn settle(&self, file: &Handle) {
        if let Some(uncommitted) = self.inner.uncommitted.find(file) {
            // Boxed: it is rare, and large.
            Box::pin(uncommitted.settle()).await;
        }
    }

    /// The end of what [`File::write_behind`] has accepted of a file, if the server may not have it yet: the
    /// file is at least as long for this client.
    ///
    /// [`File::write_behind`]: crate::File::write_behind
    #[must_use]
    pub fn unwritten_end(&self, file: &Handle) -> Option<u64> {
        self.inner.uncommitted.find(file)?.unwritten_end()
    }

    /// Waits until the server has the pending attributes of the files that `is_wanted` chooses by their
    /// handles.
    pub(crate) async fn settle_pending(&self, is_wanted: impl Fn(&Handle) -> bool) {
        for file in self.inner.uncommitted.pending(is_wanted) {
            // Boxed: it is rare, and large.
            Box::pin(file.settle()).await;
        }
    }

    /// As [`Session::settle_pending`], of the files that may have one of these names.
    pub(crate) async fn settle_named(&self, names: &[&[u8]]) {
        let has_name = |file: &Handle| file.place().is_none_or(|(_, name)| names.contains(&&*name));
        self.settle_pending(has_name).await;
    }

    /// A file's attributes (GETATTR).
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn attributes(&self, file: &Handle) -> Result<Attributes> {
        self.settle(file).await;
        perform!(self, "GETATTR", attributes(file), of file)
    }

    /// Changes a file's attributes (SETATTR); with `guard` only if its ctime equals it. Returns the
    /// attributes afterwards, if the server sent them.
    ///
    /// # Errors
    /// [`Status::Invalid`] for a time before 1970 or after 2106, which NFSv3 can't express;
    /// [`Status::NotSync`] if the ctime isn't `guard`; the server's or the call's.
    pub async fn set_attributes(
        &self,
        file: &Handle,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Result<Option<Attributes>> {
        if set.size.is_none() {
            if guard.is_none()
                && let Some(uncommitted) = self.inner.uncommitted.find(file)
                && let Some(result) = Box::pin(uncommitted.set_attributes(&self.caller, set)).await
            {
                return result;
            }
            self.settle(file).await;
        }
        // A new size must not be undone by unstable data that is written again meanwhile.
        let uncommitted = set.size.and_then(|size| Some((self.inner.uncommitted.find(file)?, size)));
        let _writers = match &uncommitted {
            Some((uncommitted, _)) => Some(Box::pin(uncommitted.exclude_writes()).await),
            None => None,
        };
        let attributes = perform!(
            self,
            "SETATTR",
            |tree, call| tree.set_attributes(call, file, set, guard).map(Some),
            |nfs, user| nfs.set_attributes(user, file, set, guard),
            of file
        )?;
        if let Some((uncommitted, size)) = &uncommitted {
            uncommitted.discard(*size, u64::MAX);
        }
        Ok(attributes)
    }

    /// Sets attributes of a file that an open with [`OpenOptions::times_later`] has just made, a moment later
    /// together with its times: over NFSv4 a call less for each. Returns all that were accepted so and aren't
    /// set yet, these included; `None` if nothing is accepted, and [`Session::set_attributes`] is the way.
    ///
    /// The server has them when the file's attributes or name are asked for in this session, when it is
    /// opened again, before data that is written after this call, at [`File::sync`] and [`File::close`], and
    /// after 50 ms. Whether the server permits the change is told like the failure of a write that doesn't
    /// wait ([`File::write_behind`]), so this is for changes that it can't but permit: by the file's owner.
    ///
    /// [`OpenOptions::times_later`]: crate::OpenOptions::times_later
    /// [`File::sync`]: crate::File::sync
    /// [`File::close`]: crate::File::close
    /// [`File::write_behind`]: crate::File::write_behind
    #[must_use]
    pub fn set_attributes_later(&self, file: &Handle, set: &SetAttributes) -> Option<SetAttributes> {
        if set.size.is_some() || self.inner.lane.is_established() {
            return None;
        }
        self.inner.uncommitted.find(file)?.join_pending(&self.caller, set)
    }

    /// The file of a name in a directory (LOOKUP).
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn lookup(&self, directory: &Handle, name: &[u8]) -> Result<Found> {
        self.settle_named(&[name]).await;
        let found = perform!(self, "LOOKUP", lookup(directory, name), of directory);
        found.map_err(|error| error.about(|| named("lookup of", name)))
    }

    /// The files of a path's first names from a directory on, at least one.
    pub(super) async fn lookup_path(&self, directory: &Handle, path: &[&[u8]]) -> Result<Vec<Found>> {
        self.settle_named(path).await;
        let found = self
            .local_first()
            .perform(&[directory], |nfs, user| nfs.lookup_path(user, directory, path))
            .await;
        found.map_err(|error| error.about(|| named("lookup of", path.first().copied().unwrap_or_default())))
    }

    /// Which of the rights `wanted` the user has (ACCESS).
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn access(&self, file: &Handle, wanted: Access) -> Result<Access> {
        self.settle_pending(|pending| pending == file).await;
        perform!(self, "ACCESS", access(file, wanted), of file)
    }

    /// A symbolic link's target (READLINK).
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn read_link(&self, link: &Handle) -> Result<Vec<u8>> {
        perform!(self, "READLINK", read_link(link), of link)
    }

    /// Creates a regular file (CREATE).
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn create(&self, directory: &Handle, name: &[u8], mode: &Create) -> Result<Found> {
        let made = perform!(self, "CREATE", create(directory, name, mode), of directory);
        self.made("CREATE", directory, name, made).await
    }

    /// Creates a directory (MKDIR).
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn make_dir(&self, directory: &Handle, name: &[u8], set: &SetAttributes) -> Result<Found> {
        let made = perform!(self, "MKDIR", make_dir(directory, name, set), of directory);
        self.made("MKDIR", directory, name, made).await
    }

    /// As [`Session::make_dir`]. NFSv4 asks in the same request which of the rights `wanted` the user has in
    /// the directory, and for its access control list.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn make_dir_asking(
        &self,
        directory: &Handle,
        name: &[u8],
        set: &SetAttributes,
        wanted: Access,
    ) -> Result<MadeDirectory> {
        let made = perform!(
            self,
            "MKDIR",
            |tree, call| Ok(tree.make_dir(call, directory, name, set)?.map(MadeDirectory::from)),
            |nfs, user| nfs.make_dir_asking(user, directory, name, set, wanted),
            of directory
        );
        match made.map_err(|error| error.about(|| named("MKDIR", name)))? {
            Some(made) => Ok(made),
            None => Ok(self.lookup(directory, name).await?.into()),
        }
    }

    /// Creates a symbolic link to `target` (SYMLINK).
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn symlink(
        &self,
        directory: &Handle,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Result<Found> {
        let made = perform!(self, "SYMLINK", symlink(directory, name, target, set), of directory);
        self.made("SYMLINK", directory, name, made).await
    }

    /// Creates a pipe, socket or device (MKNOD).
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn make_node(
        &self,
        directory: &Handle,
        name: &[u8],
        node: Node,
        set: &SetAttributes,
    ) -> Result<Found> {
        let made = perform!(
            self,
            "MKNOD",
            |tree, call| tree.make_node(call, directory, name, set, node),
            |nfs, user| nfs.make_node(user, directory, name, node, set),
            of directory
        );
        self.made("MKNOD", directory, name, made).await
    }

    /// The new file. A server need not send its handle: then it is looked up.
    async fn made(
        &self,
        operation: &str,
        directory: &Handle,
        name: &[u8],
        made: Result<Option<Found>>,
    ) -> Result<Found> {
        match made.map_err(|error| error.about(|| named(operation, name)))? {
            Some(found) => Ok(found),
            None => self.lookup(directory, name).await,
        }
    }

    /// Removes a name of anything but a directory (REMOVE).
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn remove(&self, directory: &Handle, name: &[u8]) -> Result<()> {
        self.remove_hinted(directory, (name, NameHint::Unknown)).await
    }

    /// As [`Session::remove`], of a name whose file the caller may know.
    ///
    /// # Errors
    /// Those of [`Session::remove`].
    pub async fn remove_hinted(&self, directory: &Handle, (name, hint): (&[u8], NameHint<'_>)) -> Result<()> {
        let removed = perform!(
            self,
            "REMOVE",
            |tree, call| tree.remove_hinted(call, directory, name, hint),
            |nfs, user| nfs.remove(user, directory, name),
            of directory
        );
        removed.map_err(|error| error.about(|| named("removal of", name)))
    }

    /// Removes an empty directory (RMDIR).
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn remove_dir(&self, directory: &Handle, name: &[u8]) -> Result<()> {
        let removed = perform!(self, "RMDIR", remove_dir(directory, name), of directory);
        removed.map_err(|error| error.about(|| named("removal of directory", name)))
    }

    /// Moves a name, replacing what is at the new one (RENAME).
    ///
    /// ```
    /// use samehost_client::{Follow, SetAttributes, Status};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example_server.in")); }
    /// # let server = example::ExampleServer::start();
    /// # use samehost_client::{Options, Session};
    /// # let session = Session::connect(&server.url(), Options::new()).await?;
    /// let root = session.root();
    /// let directory = session.make_dir(&root, b"old", &SetAttributes::default()).await?.handle;
    /// session.rename(&root, b"greeting", &directory, b"moved").await?;
    /// assert_eq!(session.walk(b"old/moved", Follow::Yes).await?.attributes.unwrap().size, 6);
    ///
    /// let gone = session.lookup(&root, b"greeting").await;
    /// assert_eq!(gone.unwrap_err().status(), Some(Status::NoEntry));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn rename(
        &self,
        from_directory: &Handle,
        from: &[u8],
        to_directory: &Handle,
        to: &[u8],
    ) -> Result<()> {
        let hint = NameHint::Unknown;
        self.rename_hinted((from_directory, from, hint), (to_directory, to, hint)).await
    }

    /// As [`Session::rename`], of names whose files the caller may know.
    ///
    /// # Errors
    /// Those of [`Session::rename`].
    pub async fn rename_hinted(
        &self,
        (from_directory, from, moved): (&Handle, &[u8], NameHint<'_>),
        (to_directory, to, replaced): (&Handle, &[u8], NameHint<'_>),
    ) -> Result<()> {
        self.settle_named(&[from]).await;
        let renamed = perform!(
            self,
            "RENAME",
            |tree, call| tree.rename_hinted(call, (from_directory, from, moved), (to_directory, to, replaced)),
            |nfs, user| nfs.rename(user, (from_directory, from), (to_directory, to)),
            of from_directory, to_directory
        );
        renamed.map_err(|error| error.about(|| named(&format!("{} to", named("renaming", from)), to)))
    }

    /// Gives a file another name (LINK).
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn link(&self, file: &Handle, directory: &Handle, name: &[u8]) -> Result<()> {
        self.settle_pending(|pending| pending == file).await;
        let linked = perform!(self, "LINK", link(file, directory, name), of file, directory);
        linked.map_err(|error| error.about(|| named("linking", name)))
    }

    /// The space of a file's filesystem (FSSTAT).
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn fs_stat(&self, file: &Handle) -> Result<FsStat> {
        perform!(self, "FSSTAT", fs_stat(file), of file)
    }

    /// The server's limits and preferences for a file's filesystem (FSINFO).
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn fs_info(&self, file: &Handle) -> Result<FsInfo> {
        Box::pin(self.local_first().perform(&[file], |nfs, user| nfs.fs_info(user, file))).await
    }

    /// The limits of names in a file's filesystem (PATHCONF).
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn path_conf(&self, file: &Handle) -> Result<PathConf> {
        Box::pin(self.local_first().perform(&[file], |nfs, user| nfs.path_conf(user, file))).await
    }

    /// A file's POSIX access control lists (acl(5)): by NFSv3 those of NFSACL's GETACL, by NFSv4 those that
    /// mean the same as the server's NFSv4 list.
    ///
    /// ```
    /// use samehost_client::{PosixAcl, SetAcl};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # mod example { include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/example_server.in")); }
    /// # let server = example::ExampleServer::start();
    /// # use samehost_client::{Options, Session};
    /// # let session = Session::connect(&server.url(), Options::new()).await?;
    /// let file = session.lookup(&session.root(), b"greeting").await?.handle;
    /// let before = session.acls(&file).await?;
    /// let users = vec![(1000, 4)];
    /// let list = PosixAcl { users, mask: Some(4), ..before.access };
    /// session.set_acl(&file, &SetAcl::Access(list.clone())).await?;
    /// assert_eq!(session.acls(&file).await?.access.users, [(1000, 4)]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Status::NotSupported`] if the server or its filesystem has no such lists; [`Error::NoPosixAcl`] for
    /// an NFSv4 list that no POSIX one equals; the server's or the call's.
    pub async fn acls(&self, file: &Handle) -> Result<PosixAcls> {
        self.settle_pending(|pending| pending == file).await;
        perform!(self, "GETACL", acls(file), of file)
    }

    /// Changes one of a file's POSIX access control lists (by NFSv3 NFSACL's SETACL, by NFSv4 SETATTR of
    /// `acl`). Both protocols set a directory's lists together, so another client's change of the other list
    /// at the same time may be undone. By NFSv4 permissions that the mask takes away aren't kept.
    ///
    /// # Errors
    /// [`Status::Invalid`] for a list that isn't valid ([`PosixAcl::is_valid`](crate::PosixAcl::is_valid)),
    /// and for a default list of anything but a directory; [`Status::AttributeTooBig`] for one of more than
    /// 1,024 entries by NFSv3, of 128 KiB by NFSv4, and of 64 KiB in a tree; those of [`Session::acls`].
    pub async fn set_acl(&self, file: &Handle, change: &SetAcl) -> Result<()> {
        if change.list().is_some_and(|list| !list.is_valid()) {
            let object = "the POSIX access control list".to_owned();
            return Err(Error::Status { object, status: Status::Invalid });
        }
        self.settle(file).await;
        perform!(self, "SETACL", set_acl(file, change), of file)
    }

    /// Makes the changes of a directory's names, or of a file's attributes, durable: what fsync(2) does
    /// beside the data.
    ///
    /// A server makes such a change durable before it answers (RFC 1813 section 4.7), unless the session has
    /// a lane. Then client and server run in one kernel, and the change is durable once it is synced, like a
    /// local process's (docs/mount.md). COMMIT does that, and only our server takes it for a directory.
    /// Another server at the same address has made durable what it answered.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn sync_metadata(&self, handle: &Handle) -> Result<()> {
        if !self.inner.lane.was_ever_established() {
            return Ok(());
        }
        match Box::pin(self.local_first().perform(&[handle], |nfs, user| nfs.commit(user, handle))).await {
            Err(error) if !error.status().is_some_and(has_nothing_to_sync) => Err(error),
            _ => Ok(()),
        }
    }
}

/// Whether a server that refuses a COMMIT with this status leaves nothing to be made durable.
const fn has_nothing_to_sync(refusal: Status) -> bool {
    match refusal {
        // A user who may not write to it has changed nothing of it.
        Status::Access | Status::NotPermitted | Status::ReadOnly => true,
        // The server commits only the data of regular files (RFC 1813 section 3.3.21). It has no equivalent
        // of our `Async` either: it made every change durable before it answered.
        Status::IsDirectory | Status::Invalid | Status::BadType | Status::NotSupported => true,
        _ => false,
    }
}
