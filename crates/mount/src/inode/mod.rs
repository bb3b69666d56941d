//! A file that the kernel knows: its node ID, its server handle, and the state that the mount keeps for it.
//!
//! One lock, [`Inode::lock`], holds the state that changes together. Each field of [`InodeState`] is a type
//! that keeps its own invariant.
//!
//! | module | contents |
//! |---|---|
//! | `table` | all inodes, by node ID and by handle |
//! | `attributes` | the attribute cache |
//! | `listing` | the listing that the kernel may have cached |
//! | `access` | the rights of users |
//! | `acls` | the access control lists |
//! | `by_change` | what doesn't change without the change attribute |
//! | `search` | whether everybody may search a directory |
//! | `names` | the names under which the kernel knows the file |
//! | `opens` | the open files |
//! | `io_mode` | the kernel's I/O mode: cached or passed through |
//! | `number` | the numbers that applications see |
//! | `pages` | whether the kernel may have cached data |

mod access;
mod acls;
mod attributes;
mod by_change;
mod io_mode;
mod listing;
mod names;
mod number;
mod opens;
mod pages;
mod search;
mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use std::time::Instant;

use client::{AttributeUpdate, Attributes, FileKind, Handle, ReplyAcls};
use parking_lot::{Mutex, MutexGuard};

use crate::settings::AttributeTimes;
use access::AccessCache;
use acls::AclDemand;
pub(crate) use acls::{FileAcls, KnownAcls};
use attributes::{AttributeCache, Change};
use by_change::ByChange;
pub(crate) use io_mode::{BackingFile, IoHold, IoPlan, IoWish};
pub(crate) use listing::CachedListing;
pub(crate) use names::{InodeNames, NameRef};
pub(crate) use number::InodeNumbers;
pub(crate) use opens::{HiddenName, OpenState};
use pages::CachedPages;
pub(crate) use search::AclResult;
use search::SearchPermission;
pub(crate) use table::InodeTable;

/// The longest list of names of extended attributes that is kept, in bytes.
const MAX_XATTR_NAMES: usize = 1024;

/// A file that the kernel knows.
#[derive(Debug)]
pub(crate) struct Inode {
    pub(crate) number: u64,
    pub(crate) handle: Handle,
    state: Mutex<InodeState>,
    /// Whether the kernel may have cached data of the file.
    pub(crate) pages: CachedPages,
    /// The kernel was told a mode with set-id bits, and must be told when they are gone.
    set_id_reported: AtomicBool,
    /// The file was read since its attributes were fetched, so its atime may have changed.
    atime_stale: AtomicBool,
}

/// The state of an inode.
#[derive(Debug, Default)]
pub(crate) struct InodeState {
    /// References that the kernel holds: replies with this inode less FORGETs.
    lookups: u64,
    pub(crate) attributes: AttributeCache,
    /// When the kernel's cached data was last dropped for a lock under a write delegation.
    pub(crate) synchronized: Option<Instant>,
    pub(crate) access: AccessCache,
    pub(crate) acls: ByChange<KnownAcls>,
    /// Of a directory.
    pub(crate) acl_demand: AclDemand,
    /// The names of the extended attributes, as listxattr(2) returns them; `None` without any.
    pub(crate) xattr_names: ByChange<Option<Arc<[u8]>>>,
    /// Of a directory.
    pub(crate) search: SearchPermission,
    /// Of a directory.
    pub(crate) listing: Option<CachedListing>,
    /// Of a directory: nobody has read it since an open fetched its first page.
    pub(crate) is_listing_unread: bool,
    pub(crate) names: InodeNames,
    pub(crate) opens: OpenState,
}

impl InodeState {
    /// Whether the cached attributes show set-id bits.
    pub(crate) fn has_set_id(&self) -> bool {
        self.attributes
            .get()
            .is_some_and(|attributes| attributes.kind == FileKind::Regular && attributes.mode & 0o6000 != 0)
    }

    /// Whether the cached mode lets every class of users search the directory.
    pub(crate) fn is_searchable_by_mode(&self) -> bool {
        self.attributes.get().is_some_and(|attributes| attributes.mode & 0o111 == 0o111)
    }
}

impl Inode {
    fn new(number: u64, handle: Handle) -> Arc<Self> {
        Arc::new(Self {
            number,
            handle,
            state: Mutex::default(),
            pages: CachedPages::default(),
            set_id_reported: AtomicBool::new(false),
            atime_stale: AtomicBool::new(false),
        })
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, InodeState> {
        self.state.lock()
    }

    /// The cached attributes, however old.
    pub(crate) fn attributes(&self) -> Option<Attributes> {
        self.lock().attributes.get().copied()
    }

    /// The cached type of the file.
    pub(crate) fn kind(&self) -> Option<FileKind> {
        self.attributes().map(|attributes| attributes.kind)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind() == Some(FileKind::Directory)
    }

    /// The attribute cache's version. While a directory's version is the same, there was no foreign change of
    /// its names.
    pub(crate) fn version(&self) -> u64 {
        self.lock().attributes.version()
    }

    /// Enters the attributes of a reply that arrived at `now`.
    pub(crate) fn update(&self, update: &AttributeUpdate, now: Instant, times: &AttributeTimes) {
        let mut state = self.lock();
        let permissions = |attributes: &Attributes| (attributes.mode, attributes.uid, attributes.gid);
        let before = state.attributes.get().map(permissions);
        let change = state.attributes.update(update, now, times);
        if change == Change::Foreign || state.attributes.get().map(permissions) != before {
            // The owner, the mode or an access control list may have changed. A list shows in the change
            // attribute only, or in the ctime.
            state.access.clear();
            state.acls.clear();
            state.xattr_names.clear();
        } else if change == Change::Own {
            state.acls.limit(now);
            state.xattr_names.limit(now);
        }
    }

    /// Enters the access control lists of a reply to a request of `asked`, which has these attributes, too.
    /// If they aren't the cached ones, the file has changed before or since.
    pub(crate) fn learn_acls(&self, attributes: &Attributes, acls: &ReplyAcls, asked: Instant) {
        let mut state = self.lock();
        if !state.attributes.are(attributes) {
            return;
        }
        let Some(known) = KnownAcls::of_reply(acls, attributes.mode) else { return };
        let (is_settled, version) = (state.attributes.is_settled(asked), state.attributes.version());
        // That not everybody may search a directory is for whoever can revoke names.
        if state.acls.enter(known, is_settled, asked)
            && let (FileKind::Directory, ReplyAcls::Posix(lists)) = (attributes.kind, acls)
            && AclResult::of(&lists.access) == AclResult::Evaluated(true)
            && state.search.is_granted(version, asked).is_none()
        {
            state.search.end_fetch(version, AclResult::Evaluated(true), asked);
        }
    }

    /// Enters the names of the file's extended attributes, which were requested at `asked`. `before` are the
    /// attributes that it had then.
    pub(crate) fn learn_xattr_names(&self, names: &[u8], before: &Attributes, asked: Instant) {
        let mut state = self.lock();
        if names.len() <= MAX_XATTR_NAMES && state.attributes.are(before) {
            let is_settled = state.attributes.is_settled(asked);
            let names = (!names.is_empty()).then(|| names.into());
            state.xattr_names.enter(names, is_settled, asked);
        }
    }

    /// The kernel is told a mode with set-id bits.
    pub(crate) fn report_set_id(&self) {
        self.set_id_reported.store(true, SeqCst);
    }

    /// Whether the kernel was told a mode with set-id bits; resets that.
    pub(crate) fn take_reported_set_id(&self) -> bool {
        self.set_id_reported.load(SeqCst) && self.set_id_reported.swap(false, SeqCst)
    }

    pub(crate) fn is_atime_stale(&self) -> bool {
        self.atime_stale.load(Relaxed)
    }

    pub(crate) fn set_atime_stale(&self, stale: bool) {
        self.atime_stale.store(stale, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use client::PosixAcls;

    use super::*;

    #[test]
    fn lists_and_names_belong_to_one_change_attribute() {
        let (now, times) = (Instant::now(), AttributeTimes::default());
        let inode = Inode::new(2, Handle::new(b"file").unwrap());
        let counted = |change| Attributes { mode: 0o644, change, ..Attributes::default() };
        let update = |change| {
            let (before, attributes) = (None, Some(counted(change)));
            inode.update(&AttributeUpdate { before, attributes, asked: now }, now, &times);
        };
        let known = || {
            let state = inode.lock();
            (state.acls.get(now).is_some(), state.xattr_names.get(now).is_some())
        };
        let learn = |change| {
            let lists = PosixAcls { access: client::PosixAcl::of_mode(0o644), default: None };
            inode.learn_acls(&counted(change), &ReplyAcls::Posix(lists), now);
            inode.learn_xattr_names(b"user.a\0", &counted(change), now);
        };
        update(7);
        learn(7);
        assert_eq!(known(), (true, true));
        update(7);
        assert_eq!(known(), (true, true));
        update(8);
        assert_eq!(known(), (false, false), "the times are the same");
        learn(7);
        assert_eq!(known(), (false, false), "they were the file's before the change");
    }
}
