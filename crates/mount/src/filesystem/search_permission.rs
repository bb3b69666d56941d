//! Fetching of access control lists, which say whether everybody may search a directory and the kernel may
//! cache names in it.
//!
//! Where not everybody may, each path walk is a LOOKUP, and this process decides as the kernel's NFS client
//! does: by the server's answer to ACCESS for that user, which is cached as long as the directory's
//! attributes ([`crate::inode::InodeState::access`]). The same holds where the server has no answer about the
//! list (no NFSACL, a filesystem without lists, or an NFSv4 list without a POSIX counterpart).

use std::sync::Arc;
use std::time::Instant;

use client::{Error, FileKind, ReplyAcls, Status, Version};
use futures_util::future::join;

use super::Filesystem;
use crate::inode::{AclResult, Inode, InodeState};
use crate::users::User;

impl Filesystem {
    /// Whether everybody who can use this mount may search a directory, as far as is known.
    pub(super) fn is_searchable_by_all(&self, state: &InodeState, now: Instant) -> bool {
        state.is_searchable_by_mode()
            && (!self.options.allow_other
                || state.search.is_granted(state.attributes.version(), now) == Some(true))
    }

    /// Counts a LOOKUP in a directory. Returns whether the directory's list should be fetched beside it.
    pub(super) fn should_fetch_acl(&self, directory: &Inode, now: Instant) -> bool {
        let mut state = directory.lock();
        state.search.count_lookup() && self.is_acl_useful(&state, now)
    }

    /// Whether the directory's list could change anything: the mount is shared, names may be cached, and the
    /// answer isn't known.
    fn is_acl_useful(&self, state: &InodeState, now: Instant) -> bool {
        self.options.allow_other
            && self.options.acl
            && self.options.lookup_cache != crate::LookupCache::None
            && self.options.attributes.on
            && state.is_searchable_by_mode()
            && state.search.is_granted(state.attributes.version(), now).is_none()
    }

    /// Fetches a directory's list, unless it is known or wouldn't change anything.
    pub(super) async fn fetch_acl(&self, user: &Arc<User>, directory: &Arc<Inode>) {
        let asked = Instant::now();
        let (version, attributes) = {
            let mut state = directory.lock();
            let Some(attributes) = state.attributes.get().copied() else { return };
            if attributes.kind != FileKind::Directory || !self.is_acl_useful(&state, asked) {
                return;
            }
            let version = state.attributes.version();
            state.search.begin_fetch(version, asked);
            (version, attributes)
        };
        let result = if self.is_without_acls(&attributes, asked) {
            AclResult::NotSupported
        } else {
            match user.session.acls(&directory.handle).await {
                Ok(acls) => AclResult::of(&acls.access),
                Err(Error::NoPosixAcl) => AclResult::NotSupported,
                Err(error) if error.status() == Some(Status::NotSupported) => {
                    self.note_without_acls(&attributes, &ReplyAcls::NotSupported, asked);
                    AclResult::NotSupported
                }
                Err(_) => AclResult::Failed,
            }
        };
        self.learn_acl(directory, version, result, asked);
    }

    /// Lists a directory, which lets the kernel cache names if the access control list does, and fetches that
    /// list. By NFSv3 that is another call, made at the same time. By NFSv4 the first page comes with it.
    pub(super) async fn with_acl<T, E>(
        &self,
        user: &Arc<User>,
        directory: &Arc<Inode>,
        listing: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        if self.session.version() == Version::V3 {
            return join(listing, self.fetch_acl(user, directory)).await.0;
        }
        let listed = listing.await?;
        self.fetch_acl(user, directory).await;
        Ok(listed)
    }

    /// Enters the result of a request for a directory's list that began at `asked`, when the directory had
    /// this version. If that has changed meanwhile, the answer isn't used.
    pub(super) fn learn_acl(&self, directory: &Inode, version: u64, result: AclResult, asked: Instant) {
        let revoked = directory.lock().search.end_fetch(version, result, asked);
        if revoked {
            self.revoke_names(directory);
        }
    }

    /// Begins the revocation of the names that the kernel has cached in a directory.
    pub(super) fn revoke_names(&self, directory: &Inode) {
        let own_names = directory.lock().names.list();
        let entries = self.paths.revoke_names_in(directory.number);
        self.kernel.revocation.begin(directory, own_names, entries);
    }
}
