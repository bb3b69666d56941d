//! LOOKUPs and GETATTRs that a listing of the directory answers. [`super::ListedNames`] says when a directory
//! is listed.

use std::iter;
use std::sync::Arc;
use std::time::Instant;

use client::{Attributes, Plus, Version};
use rustix::io::Errno;

use super::listed_names::{BEGINNING, Kind, ListedAhead, ListedFile, NextDirectory, first_by_name};
use super::{Filesystem, NameQuery, RequestContext};
use crate::fuse::reply::FuseReply;
use crate::inode::Inode;
use crate::settings::LookupCache;
use crate::users::User;

/// The bytes of a page.
const PAGE: u32 = 64 << 10;

impl Filesystem {
    /// Whether directories are listed on behalf of other requests: what is listed may be believed for a time,
    /// and each request would be a call.
    fn lists_for_others(&self, user: &User) -> bool {
        let times = &self.options.attributes;
        times.on && !times.file_min.is_zero() && !user.session.has_tree()
    }

    /// A file's attributes were requested, and are known.
    pub(super) fn note_known_attributes(&self, inode: &Inode, now: Instant) {
        if !self.session.has_tree() {
            let name = inode.lock().names.first();
            name.into_iter().for_each(|(directory, _)| self.listed_names.note_known(directory, now));
        }
    }

    /// The reply to a LOOKUP by a listing of the directory, which this or an earlier LOOKUP has asked for.
    pub(super) async fn listed_lookup(
        &self,
        request: &RequestContext,
        directory: &Arc<Inode>,
        user: &Arc<User>,
        name: &[u8],
    ) -> Option<Result<FuseReply, Errno>> {
        if self.options.lookup_cache == LookupCache::None || !self.lists_for_others(user) {
            return None;
        }
        if let Some(reply) = self.reply_by_listing(request, directory, user, name).await {
            return Some(Ok(reply));
        }
        let is_missing = self.list_for(user, directory, Kind::Lookup, name).await?;
        if let Some(reply) = self.reply_by_listing(request, directory, user, name).await {
            return Some(Ok(reply));
        }
        // Of a name that is too long the server says so, and where case is ignored it finds others.
        let conf = self.path_conf().await?;
        if !is_missing || conf.case_insensitive || name.len() > conf.name_max as usize {
            return None;
        }
        let cached = self.cached_search_right(request, &directory.lock(), user);
        self.may_search(user, directory, cached).await.then(|| self.no_entry(directory))
    }

    /// The attributes of a file from a listing of its directory, if other files there were asked for, too.
    /// The session's attribute sink enters those of all files.
    pub(super) async fn listed_attributes(&self, user: &Arc<User>, inode: &Arc<Inode>) -> Option<Attributes> {
        if !self.lists_for_others(user) || inode.is_atime_stale() {
            return None;
        }
        let (directory, name) = inode.lock().names.first()?;
        let directory = self.inodes.get(directory)?;
        self.list_for(user, &directory, Kind::Getattr, &name).await?;
        self.cached_attributes(inode, Instant::now())
    }

    /// Lists a page of a directory on behalf of a request for the file `name`, if that pays. Returns whether
    /// the page shows that there is no such name. If it fails, by reason of the user's rights or the server's
    /// abilities, the request is sent alone.
    async fn list_for(
        &self,
        user: &Arc<User>,
        directory: &Arc<Inode>,
        kind: Kind,
        name: &[u8],
    ) -> Option<bool> {
        let (asked, times) = (Instant::now(), &self.options.attributes);
        let pause = match kind {
            Kind::Lookup => times.directory_min.max(times.file_min),
            Kind::Getattr => times.file_min,
        };
        let (number, version) = (directory.number, directory.version());
        let (position, mark) = self.listed_names.count(number, kind, asked, pause)?;
        let page = if position == BEGINNING {
            let next = self.directories_behind(directory, kind, asked);
            let handles: Vec<_> =
                iter::once(&directory.handle).chain(next.iter().map(NextDirectory::handle)).collect();
            let pages = user.session.read_dir_first_pages(&handles, PAGE);
            let pages = match kind {
                Kind::Lookup => Box::pin(self.with_acl(user, directory, pages)).await,
                Kind::Getattr => Box::pin(pages).await,
            };
            let mut pages = pages.ok()?.into_iter();
            let page = pages.next()?.page;
            for (next, listed) in next.into_iter().zip(pages) {
                self.listed_names.insert_ahead(next, listed, mark, (asked, pause));
            }
            page
        } else {
            Box::pin(user.session.read_dir_page(&directory.handle, position, PAGE, Plus::All)).await.ok()?
        };
        let last = page.entries.last().filter(|_| !page.eof);
        self.listed_names.set_more(number, kind, last.map(|entry| (entry.cookie, page.verifier)));
        let is_whole = position == BEGINNING && page.eof;
        let is_missing = is_whole && page.entries.iter().all(|entry| entry.name != name);
        if let Kind::Lookup = kind {
            let of_use = (version, asked, asked + times.file_min);
            self.listed_names.insert(number, of_use, (position, mark), page.entries);
        }
        Some(is_missing)
    }

    /// The directories to be listed together with this one.
    fn directories_behind(&self, directory: &Inode, kind: Kind, now: Instant) -> Vec<NextDirectory> {
        let max = if self.session.version() == Version::V3 { 0 } else { self.listed_names.max_ahead() };
        let Some((parent, name)) = directory.lock().names.first().filter(|_| max > 0) else {
            return Vec::new();
        };
        match kind {
            Kind::Lookup => {
                let mut listed = self.listed_names.listed_behind(parent, &name, max);
                listed.retain(|next| self.inodes.find(next.handle()).is_none());
                listed
            }
            Kind::Getattr => {
                let names = self.paths.names_in(parent);
                let behind = names.iter().filter(|(other, inode)| {
                    other[..] > name[..]
                        && inode.is_directory()
                        && self.listed_names.may_list_attributes(inode.number, now)
                });
                let behind = first_by_name(behind.map(|(name, inode)| (&name[..], inode)), max);
                behind.into_iter().map(|(_, inode)| NextDirectory::Known(inode.clone())).collect()
            }
        }
    }

    /// Enters what was listed of a directory before the kernel knew it, if the directory is unchanged.
    fn learn_contents(&self, directory: &Inode, contents: ListedAhead) {
        let ListedAhead { listed, asked } = contents;
        let Some(attributes) = listed.attributes else { return };
        let now = Instant::now();
        self.update_received_attributes(directory, attributes, (asked, now));
        if let Some(acls) = &listed.acls {
            directory.learn_acls(&attributes, acls, asked);
            self.note_without_acls(&attributes, acls, asked);
        }
        let version = {
            let state = directory.lock();
            state.attributes.are(&attributes).then(|| state.attributes.version())
        };
        if let Some(version) = version {
            let times = &self.options.attributes;
            let pause = times.directory_min.max(times.file_min);
            self.listed_names.insert_new(
                directory.number,
                (version, asked, asked + times.file_min),
                asked + pause,
                listed.page.entries,
            );
        }
    }

    /// The reply with a listed file, if the user may search the directory.
    async fn reply_by_listing(
        &self,
        request: &RequestContext,
        directory: &Arc<Inode>,
        user: &Arc<User>,
        name: &[u8],
    ) -> Option<FuseReply> {
        let now = Instant::now();
        let (version, cached) = self.current_version(request, directory, user, now)?;
        let ListedFile { handle, attributes, asked, contents, .. } =
            self.listed_names.take(directory.number, version, name, now)?;
        if !self.may_search(user, directory, cached).await {
            return None;
        }
        let entry = self.entry(&handle, &attributes, &NameQuery { directory, name, version }, asked);
        if let Some(contents) = contents {
            self.learn_contents(&entry.inode, *contents);
        }
        self.kernel.revocation.wait_for_entries(&entry.inode).await;
        Some(entry.reply())
    }
}
