//! POSIX access control lists: the attributes `system.posix_acl_access` and `system.posix_acl_default`.
//!
//! The kernel validates a list and checks that the caller owns the file before it sends one. It doesn't use
//! the lists itself, as the mount hasn't asked for that (`FUSE_POSIX_ACL`, which would make the kernel decide
//! all permissions): the server decides.
//!
//! ls(1) with -l asks for the lists of each file. They are cached with the attributes, and fetched for
//! several files at once as soon as a process shows that it wants them:
//!
//! - By NFSv4 a listing can have them (RFC 8881 section 6.2.1). They make it longer by a third or more, and
//!   the server reads an extended attribute of each file. So only those listings have them during which a
//!   process asks for them. It asks for those of the directory first (`ls -l directory`), or for those of two
//!   files of the page that it is being given (`ls -l`): that page is then fetched again.
//! - By NFSv3 nothing but a GETACL of each file tells its lists. In the first of these two cases sixteen are
//!   sent at once. The cached replies serve as long as the files show no change.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Attributes, FileKind, PosixAcl, PosixAcls, ReplyAcls, SetAcl, Status, Version};
use futures_util::future::join_all;
use parking_lot::Mutex;
use rustix::io::Errno;

use super::Filesystem;
use crate::inode::{AclResult, FileAcls, Inode, KnownAcls};
use crate::users::User;

/// How long a filesystem isn't asked for lists again that has none.
const RETRY_DELAY: Duration = Duration::from_secs(600);

/// The files of a listing whose lists are requested at once.
const CONCURRENT_REQUESTS: usize = 16;

/// The listings of one directory that are looked through for a file.
const MAX_LISTINGS: usize = 4;

/// The filesystems that are remembered.
const MAX_FILESYSTEMS: usize = 64;

/// The server's filesystems that have no lists, by fsid.
#[derive(Debug, Default)]
pub(super) struct WithoutAcls(Mutex<HashMap<u64, Instant>>);

impl WithoutAcls {
    fn contains(&self, fsid: u64, now: Instant) -> bool {
        self.0.lock().get(&fsid).is_some_and(|until| now < *until)
    }

    fn insert(&self, fsid: u64, now: Instant) {
        let mut known = self.0.lock();
        if known.len() >= MAX_FILESYSTEMS {
            known.clear();
        }
        known.insert(fsid, now + RETRY_DELAY);
    }
}

/// One of a file's two lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AclName {
    Access,
    Default,
}

impl AclName {
    const ALL: [Self; 2] = [Self::Access, Self::Default];

    pub(super) fn parse(name: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|list| list.name() == name)
    }

    const fn name(self) -> &'static [u8] {
        match self {
            Self::Access => b"system.posix_acl_access",
            Self::Default => b"system.posix_acl_default",
        }
    }

    /// The list of that name.
    fn of(self, lists: &FileAcls) -> Option<&PosixAcl> {
        match self {
            Self::Access => lists.access.as_ref(),
            Self::Default => lists.default.as_ref(),
        }
    }
}

/// The filesystem of a file that has lists if its filesystem has any.
fn fsid_of_acls(file: &Attributes) -> Option<u64> {
    matches!(file.kind, FileKind::Regular | FileKind::Directory).then_some(file.fsid)
}

impl Filesystem {
    /// The value of one of the two attributes.
    pub(super) async fn get_acl(
        &self,
        user: &Arc<User>,
        inode: &Arc<Inode>,
        name: AclName,
    ) -> Result<Vec<u8>, Errno> {
        if !self.options.acl {
            return Err(Errno::OPNOTSUPP);
        }
        if name == AclName::Default && !inode.is_directory() {
            return Err(Errno::NODATA);
        }
        self.note_acls_wanted(inode);
        match self.acls(user, inode).await? {
            KnownAcls::Mode => Err(Errno::NODATA),
            KnownAcls::Lists(lists) => name.of(&lists).map(PosixAcl::to_bytes).ok_or(Errno::NODATA),
            KnownAcls::NoPosix => Err(Errno::OPNOTSUPP),
        }
    }

    /// Sets one of the two lists. `None` removes it: an access list leaves the mode.
    pub(super) async fn set_acl(
        &self,
        user: &Arc<User>,
        inode: &Arc<Inode>,
        name: AclName,
        value: Option<&[u8]>,
    ) -> Result<(), Errno> {
        if !self.options.acl {
            return Err(Errno::OPNOTSUPP);
        }
        let list = value.map(|value| PosixAcl::from_bytes(value).ok_or(Errno::INVAL)).transpose()?;
        let change = match (name, list) {
            (AclName::Access, Some(list)) => SetAcl::Access(list),
            (AclName::Access, None) => {
                let lists = user.session.acls(&inode.handle).await;
                let mode = lists.map_err(|error| self.errno_for(inode, &error))?.access.mode();
                SetAcl::Access(PosixAcl::of_mode(mode))
            }
            (AclName::Default, list) => SetAcl::Default(list),
        };
        let asked = Instant::now();
        let result = user.session.set_acl(&inode.handle, &change).await;
        // Even if it has failed: the reply to a change may have been lost.
        self.forget_permissions(inode);
        // The kernel doesn't expect that a list changes the mode.
        self.kernel.invalidate_attributes(inode);
        result.map_err(|error| self.errno_for(inode, &error))?;
        if !inode.lock().attributes.is_newer_than(asked) {
            let attributes = user.session.attributes(&inode.handle).await;
            self.update_attributes(inode, attributes.map_err(|error| self.errno_for(inode, &error))?, asked);
        }
        self.kernel.revocation.wait_for_own_names(inode).await;
        Ok(())
    }

    /// The names of those of the two attributes that the file has.
    pub(super) async fn acl_names(&self, user: &Arc<User>, inode: &Arc<Inode>) -> Vec<&'static [u8]> {
        let mut names = Vec::new();
        if self.options.acl {
            for name in AclName::ALL {
                if Box::pin(self.get_acl(user, inode, name)).await.is_ok() {
                    names.push(name.name());
                }
            }
        }
        names
    }

    /// A file's lists: those that are known, or else from the server.
    async fn acls(&self, user: &Arc<User>, inode: &Arc<Inode>) -> Result<KnownAcls, Errno> {
        let asked = Instant::now();
        if let Some(known) = self.known_acls(inode, asked)? {
            return Ok(known);
        }
        self.fetch_acls_of_listing(inode).await;
        match self.known_acls(inode, asked)? {
            Some(known) => Ok(known),
            None => self.fetch_acls(user, inode).await,
        }
    }

    /// A file's lists, if they are known.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: its filesystem has none.
    fn known_acls(&self, inode: &Inode, now: Instant) -> Result<Option<KnownAcls>, Errno> {
        let state = inode.lock();
        if state.attributes.is_current(now, &self.options.attributes)
            && let Some(known) = state.acls.get(now)
        {
            return Ok(Some(known.clone()));
        }
        let attributes = state.attributes.get();
        match attributes.is_some_and(|attributes| self.is_without_acls(attributes, now)) {
            true => Err(Errno::OPNOTSUPP),
            false => Ok(None),
        }
    }

    /// Whether a file with these attributes is known to have no lists because its filesystem has none.
    pub(super) fn is_without_acls(&self, attributes: &Attributes, now: Instant) -> bool {
        fsid_of_acls(attributes).is_some_and(|fsid| self.without_acls.contains(fsid, now))
    }

    /// Asks the server for a file's lists. The attribute sink enters them.
    async fn fetch_acls(&self, user: &Arc<User>, inode: &Arc<Inode>) -> Result<KnownAcls, Errno> {
        let (asked, version) = (Instant::now(), inode.version());
        let PosixAcls { access, default } = match user.session.acls(&inode.handle).await {
            Ok(lists) => lists,
            Err(client::Error::NoPosixAcl) => return Ok(KnownAcls::NoPosix),
            Err(error) => {
                if let (Some(Status::NotSupported), Some(attributes)) = (error.status(), inode.attributes()) {
                    self.note_without_acls(&attributes, &ReplyAcls::NotSupported, asked);
                }
                return Err(self.errno_for(inode, &error));
            }
        };
        if inode.is_directory() {
            self.learn_acl(inode, version, AclResult::of(&access), asked);
        }
        let mode = inode.attributes().map(|attributes| attributes.mode);
        Ok(KnownAcls::of(PosixAcls { access, default }, mode))
    }

    /// A file's reply says that it has no lists: then no file of its filesystem has any.
    pub(super) fn note_without_acls(&self, attributes: &Attributes, acls: &ReplyAcls, now: Instant) {
        if *acls == ReplyAcls::NotSupported
            && let Some(fsid) = fsid_of_acls(attributes)
        {
            self.without_acls.insert(fsid, now);
        }
    }

    /// A process asks for the lists of a file.
    fn note_acls_wanted(&self, inode: &Inode) {
        let now = Instant::now();
        if inode.is_directory() {
            inode.lock().acl_demand.note(now);
        }
        for parent in self.parents(inode) {
            parent.lock().acl_demand.note(now);
        }
    }

    /// The directories in which a file has names.
    fn parents(&self, inode: &Inode) -> Vec<Arc<Inode>> {
        let names = inode.lock().names.list();
        names.into_iter().filter_map(|(parent, _)| self.inodes.get(parent)).collect()
    }

    /// Whether a listing of a directory should ask for lists: a process will probably want them, and they
    /// aren't known to be missing. In a tree they cost no call later.
    pub(super) fn lists_with_acls(&self, directory: &Inode, now: Instant) -> bool {
        if !self.options.acl || self.session.version() == Version::V3 || self.session.has_tree() {
            return false;
        }
        let state = directory.lock();
        let attributes = state.attributes.get();
        let is_without = attributes.is_some_and(|attributes| self.is_without_acls(attributes, now));
        state.acl_demand.is_there(now) && !is_without
    }

    /// The lists of a file aren't known that a process asks for. If it is the second one of a directory that
    /// is being listed, those of all files of the current page are fetched at once.
    async fn fetch_acls_of_listing(&self, inode: &Inode) {
        for directory in self.parents(inode) {
            let is_second = directory.lock().acl_demand.note_miss();
            if !is_second || !self.lists_with_acls(&directory, Instant::now()) {
                continue;
            }
            let being_listed = self.directories.list().into_iter();
            let being_listed = being_listed.filter(|open| Arc::ptr_eq(&open.inode, &directory));
            for open in being_listed.take(MAX_LISTINGS) {
                let mut listing = open.listing.lock().await;
                if listing.lacks_acls_of(&inode.handle) {
                    listing.add_acls(&open.user.session, &directory).await;
                    return;
                }
            }
        }
    }

    /// Fetches the lists of files that were listed by NFSv3, if a process will probably ask for them. In a
    /// tree that costs no call, so they aren't fetched beforehand.
    pub(super) async fn fetch_listed_acls(
        &self,
        user: &Arc<User>,
        directory: &Inode,
        listed: Vec<Arc<Inode>>,
    ) {
        let now = Instant::now();
        let is_wanted = self.options.acl
            && self.session.version() == Version::V3
            && directory.lock().acl_demand.is_there(now);
        if !is_wanted || self.session.has_tree() {
            return;
        }
        let unknown = listed.iter().filter(|inode| matches!(self.known_acls(inode, now), Ok(None)));
        for some in unknown.collect::<Vec<_>>().chunks(CONCURRENT_REQUESTS) {
            // What fails is asked for again by the process.
            join_all(some.iter().map(|inode| self.fetch_acls(user, inode))).await;
        }
    }

    /// The permissions of a file may have changed.
    pub(super) fn forget_permissions(&self, inode: &Inode) {
        let revoked = {
            let mut state = inode.lock();
            state.acls.forget(Instant::now());
            state.access.clear();
            state.search.forget()
        };
        if revoked {
            self.revoke_names(inode);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filesystem_without_lists_is_asked_again_later() {
        let (now, without) = (Instant::now(), WithoutAcls::default());
        without.insert(7, now);
        assert!(without.contains(7, now) && !without.contains(8, now));
        assert!(!without.contains(7, now + RETRY_DELAY));
        (0..1000).for_each(|fsid| without.insert(fsid, now));
        assert!(without.0.lock().len() <= MAX_FILESYSTEMS);
    }
}
