//! OPENDIR, READDIR, READDIRPLUS, FSYNCDIR and RELEASEDIR.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use client::{Access, DirEntry, Plus, Status};
use rustix::io::Errno;

use super::{Filesystem, NameQuery, Outcome, RequestContext, UndeliveredOpen};
use crate::fuse::abi::fopen;
use crate::fuse::reply::{CacheTimes, Dirent, FuseReply};
use crate::fuse::request::ReadDirArgs;
use crate::inode::{CachedListing, Inode};
use crate::listing::{FetchedPage, Listing, ListingStart};
use crate::open_table::OpenDirectory;
use crate::users::User;

impl Filesystem {
    pub(super) async fn open_dir(&self, request: &RequestContext) -> Result<Outcome, Errno> {
        let (inode, user) = (self.inode(request)?, self.user(request));
        let cached = inode.lock().access.get(&user, Access::READ, request.received);
        let begun = self.begin_listing(&user, &inode, cached);
        let (granted, listing) = Box::pin(self.with_acl(&user, &inode, begun)).await?;
        if granted != Access::READ {
            return Err(Errno::ACCESS);
        }
        let is_there = cached.is_none() || listing.has_first_page();
        let keep = if self.may_keep_listing(&user, &inode, is_there).await? { fopen::KEEP_CACHE } else { 0 };
        let cache = if self.options.attributes.on { fopen::CACHE_DIR | keep } else { 0 };
        let listing = tokio::sync::Mutex::new(listing);
        let fh = self.directories.insert(OpenDirectory { inode, user, listing });
        let reply = FuseReply::with_capacity(16).open(fh, cache, 0);
        Ok(Outcome { opened: Some(UndeliveredOpen::Directory(fh)), ..Outcome::from(reply) })
    }

    /// The user's right to read a directory, of which the cache says `cached`, and a listing. Over the wire
    /// the request for the first page answers whether the user may read the directory, and whether it is
    /// still there, as most processes that open a directory read it. One that doesn't, to sync the directory
    /// for instance, and opens it again causes no further request for a page.
    async fn begin_listing(
        &self,
        user: &Arc<User>,
        directory: &Arc<Inode>,
        cached: Option<Access>,
    ) -> Result<(Access, Listing), Errno> {
        let may_read = cached.is_none_or(|granted| granted == Access::READ);
        let is_mostly_read = cached.is_none() || !directory.lock().is_listing_unread;
        let asks_wire = !user.session.has_tree() && self.kept_listing(directory, Instant::now()).is_none();
        if self.options.attributes.on && asks_wire && may_read && is_mostly_read {
            self.wait_for_removals(&directory.handle).await;
            let (mark, start) = (self.listed_names.mark(), ListingStart::now(directory));
            let (version, now) = (directory.version(), start.requested.0);
            let is_known =
                |name: &[u8], fileid: u64| self.is_entry_known(directory, (name, fileid), version, now);
            let plus = self.plus_of_listing(directory, &is_known, now);
            match Listing::begin(&user.session, directory, (start, mark), plus).await {
                Ok(listing) => {
                    let mut state = directory.lock();
                    state.is_listing_unread = true;
                    self.learn_access(user, &mut state, Access::READ, Access::READ);
                    return Ok((Access::READ, listing));
                }
                Err(error) if error.status() == Some(Status::Access) => {
                    return Err(self.errno_for(directory, &error));
                }
                // The listing fails, too, and reports the error.
                Err(_) => {}
            }
        }
        let granted = match cached {
            Some(granted) => granted,
            None => self.fetch_access(user, directory, Access::READ).await?,
        };
        Ok((granted, Listing::default()))
    }

    /// What READDIRPLUS asks for. `is_known` says which names the kernel knows.
    fn plus_of_listing<'a>(
        &self,
        directory: &Inode,
        is_known: &'a (dyn Fn(&[u8], u64) -> bool + Sync),
        now: Instant,
    ) -> Plus<'a> {
        if self.lists_with_acls(directory, now) { Plus::Acls } else { Plus::Unless(is_known) }
    }

    /// Whether the kernel knows a listed name and its file, so that READDIRPLUS can leave it out.
    fn is_entry_known(
        &self,
        directory: &Inode,
        (name, fileid): (&[u8], u64),
        version: u64,
        now: Instant,
    ) -> bool {
        let inode = self.paths.get_known_to_kernel((directory.number, name), version, now);
        inode.is_some_and(|inode| self.is_known_to_kernel(&inode, fileid, now))
    }

    /// The listing that the kernel has cached, if it is recent.
    fn kept_listing(&self, directory: &Inode, now: Instant) -> Option<CachedListing> {
        let times = &self.options.attributes;
        let max_age = if times.on { times.file_min } else { Duration::ZERO };
        directory.lock().listing.filter(|listing| listing.may_be_kept(now, max_age))
    }

    /// Whether the kernel may serve a directory's listing from its cache: the listing is recent, and the
    /// directory's attributes, fetched now, are those of that time. They are fetched in any case unless the
    /// server has just shown that the directory `is_there`.
    ///
    /// # Errors
    /// `ESTALE` if the directory is gone. The kernel then looks its name up again, which it doesn't do when a
    /// listing fails.
    async fn may_keep_listing(
        &self,
        user: &User,
        directory: &Arc<Inode>,
        is_there: bool,
    ) -> Result<bool, Errno> {
        let asked = Instant::now();
        let listing = self.kept_listing(directory, asked);
        if listing.is_none() && is_there {
            return Ok(false);
        }
        // A name that is being removed here is in the cached listing.
        self.wait_for_removals(&directory.handle).await;
        match user.session.attributes(&directory.handle).await {
            Ok(attributes) => {
                self.update_attributes(directory, attributes, asked);
                Ok(listing.is_some_and(|listing| listing.is_unchanged(&attributes)))
            }
            Err(error) if error.status() == Some(Status::Stale) => Err(self.errno_for(directory, &error)),
            // The listing fails, too, and reports the error.
            Err(_) => Ok(false),
        }
    }

    pub(super) async fn read_dir(&self, args: &ReadDirArgs) -> Result<FuseReply, Errno> {
        let open = self.directories.get(args.fh).ok_or(Errno::BADF)?;
        if args.offset == 0 {
            self.wait_for_removals(&open.inode.handle).await;
        }
        let size = args.size as usize;
        let mut reply = FuseReply::with_capacity(size);
        open.inode.lock().is_listing_unread = false;
        let mut listing = open.listing.lock().await;
        let first = listing.take_first(Instant::now(), self.listed_names.mark());
        let (start, first) = match first {
            Some((start, page)) if args.offset == 0 => (start, Some(page)),
            _ => (ListingStart::now(&open.inode), None),
        };
        let (version, now) = (open.inode.version(), start.requested.0);
        let is_known =
            |name: &[u8], fileid: u64| self.is_entry_known(&open.inode, (name, fileid), version, now);
        let plus = if args.plus { self.plus_of_listing(&open.inode, &is_known, now) } else { Plus::None };
        let read = listing.read(&open.user.session, &open.inode, (args.offset, first), plus).await;
        let (entries, page) = read.map_err(|error| {
            if matches!(error, client::Error::Protocol { .. }) {
                let directory = display_name(&open.inode);
                tracing::warn!(directory, %error, "the directory can't be listed");
            }
            self.errno_for(&open.inode, &error)
        })?;
        if args.offset == 0 {
            let ListingStart { before, requested } = start;
            open.inode.lock().listing =
                before.map(|before| CachedListing::new(&before, requested, page.verifier()));
        }
        // As in local filesystems, the number listed for a mount point is one of the directory's filesystem.
        let fsid = open.inode.attributes().map(|attributes| attributes.fsid);
        let listed = RefCell::new(Vec::<Arc<Inode>>::new());
        for entry in entries {
            // A server may send any bytes; no path can contain these.
            if entry.name.is_empty() || entry.name.contains(&b'/') || entry.name.contains(&0) {
                continue;
            }
            let dirent = Dirent {
                ino: fsid.map_or(entry.fileid, |fsid| self.numbers.of(fsid, entry.fileid)),
                offset: entry.cookie,
                kind: entry.kind,
                name: &entry.name,
            };
            let look_up = || {
                let (inode, attributes, times) = self.entry_of(&open.inode, entry, page)?;
                listed.borrow_mut().push(inode.clone());
                Some((inode.number, attributes, times))
            };
            let look_up: Option<&dyn Fn() -> _> = if args.plus { Some(&look_up) } else { None };
            if !reply.add_dirent(size, &dirent, look_up) {
                break;
            }
        }
        drop(listing);
        Box::pin(self.fetch_listed_acls(&open.user, &open.inode, listed.into_inner())).await;
        Ok(reply)
    }

    /// Whether the kernel knows the file of a listed entry, so that READDIRPLUS can leave it out.
    fn is_known_to_kernel(&self, inode: &Inode, fileid: u64, now: Instant) -> bool {
        if inode.is_atime_stale() {
            return false;
        }
        let state = inode.lock();
        state.attributes.is_known_to_kernel(now, &self.options.attributes)
            && state.attributes.get().is_some_and(|attributes| attributes.fileid == fileid)
    }

    /// READDIRPLUS's file and attributes of an entry. `None` for `.` and `..`, for what the kernel knows,
    /// and if the server sent no handle or attributes.
    fn entry_of(
        &self,
        directory: &Inode,
        entry: &DirEntry,
        page: &FetchedPage,
    ) -> Option<(Arc<Inode>, client::Attributes, CacheTimes)> {
        if matches!(&entry.name[..], b"." | b"..") {
            return None;
        }
        let (handle, attributes) = (entry.handle.as_ref()?, entry.attributes?);
        let query = NameQuery { directory, name: &entry.name, version: page.version };
        let acls = &entry.acls;
        let entry = self.entry(handle, &attributes, &query, page.asked);
        if let Some(acls) = acls {
            entry.inode.learn_acls(&attributes, acls, page.asked);
            self.note_without_acls(&attributes, acls, page.asked);
        }
        Some((entry.inode, entry.attributes, entry.times))
    }

    pub(super) async fn fsync_dir(&self, request: &RequestContext) -> Result<FuseReply, Errno> {
        let (inode, user) = (self.inode(request)?, self.user(request));
        let synced = user.session.sync_metadata(&inode.handle).await;
        synced.map_err(|error| self.errno_for(&inode, &error))?;
        Ok(FuseReply::default())
    }

    pub(super) fn release_dir(&self, fh: u64) -> Result<FuseReply, Errno> {
        self.directories.remove(fh).map(|_| FuseReply::default()).ok_or(Errno::BADF)
    }
}

/// A directory's name for the log.
fn display_name(inode: &Inode) -> String {
    let name = inode.lock().names.first();
    name.map_or_else(|| "/".to_owned(), |(_, name)| String::from_utf8_lossy(&name).into_owned())
}
