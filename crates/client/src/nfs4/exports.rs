//! The exports of a server, found from the root of its pseudo-filesystem (RFC 8881 section 7.3).
//!
//! NFSv4 has no list of exports. The pseudo-filesystem consists of the directories on the paths to them:
//! these can't be changed, aren't empty, and have only directories in them. Where it ends the filesystem id
//! changes. Some servers have one for all of it, others give each of its directories one of its own.

use proto::nfs4::Operation as Op;

use super::compound::Compound;
use super::{Nfs4, found};
use crate::error::{Result, Status};
use crate::operations::Operations as _;
use crate::types::{ExportEntry, FileKind, Found, Handle, Operation, Plus};
use crate::user::User;

/// The directories that are listed. A root with more below it is taken for an export itself.
const MAX_DIRECTORIES: usize = 4096;

/// The size of a page of a directory, in bytes.
const PAGE: u32 = 64 << 10;

/// A directory on the way to exports, or an export.
struct Place {
    path: Vec<u8>,
    /// `None` if the server didn't send the handle and the attributes.
    directory: Option<(Handle, u64)>,
}

impl Nfs4 {
    /// The paths at which a walk from the server's root leaves the pseudo-filesystem; `/` if the root is an
    /// export.
    pub(super) async fn find_exports(&self, user: &User) -> Result<Vec<ExportEntry>> {
        let export = |path| ExportEntry { path, groups: Vec::new() };
        let (root, root_fsid) = self.server_root(user).await?;
        let mut pending = vec![Place { path: b"/".to_vec(), directory: Some((root, root_fsid)) }];
        let (mut exports, mut listed) = (Vec::new(), 0);
        while let Some(Place { path, directory }) = pending.pop() {
            let Some((directory, fsid)) = directory else {
                exports.push(export(path));
                continue;
            };
            listed += 1;
            let is_root = listed == 1;
            let places = match listed {
                1..=MAX_DIRECTORIES => self.places(user, &path, &directory).await?,
                _ => None,
            };
            let is_beyond = |place: &Place| match place.directory {
                Some((_, other)) => fsid == root_fsid || other != fsid,
                None => true,
            };
            let places =
                places.filter(|places| is_root || !places.is_empty() && places.iter().all(is_beyond));
            match places {
                Some(places) => pending.extend(places),
                // The root isn't one of a pseudo-filesystem.
                None if fsid == root_fsid => return Ok(vec![export(b"/".to_vec())]),
                None => exports.push(export(path)),
            }
        }
        exports.sort_unstable_by(|one, other| one.path.cmp(&other.path));
        Ok(exports)
    }

    /// The server's root and its filesystem id.
    async fn server_root(&self, user: &User) -> Result<(Handle, u64)> {
        let compound = Compound::new().then(Op::Putrootfh, &()).get_file();
        let reply = self.call(user, Operation::Lookup, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putrootfh)?;
        let Found { handle, attributes } = found(&mut results)?;
        Ok((handle, attributes.map_or(0, |attributes| attributes.fsid)))
    }

    /// The entries of a directory; `None` if it can't be one of the pseudo-filesystem.
    async fn places(&self, user: &User, path: &[u8], directory: &Handle) -> Result<Option<Vec<Place>>> {
        if self.is_writable(user, directory).await? {
            return Ok(None);
        }
        let mut places = Vec::new();
        let mut behind = (0, [0; 8]);
        loop {
            let page = match self.read_dir_page(user, directory, behind, PAGE, Plus::All).await {
                // A directory of an export: the pseudo-filesystem's can be listed.
                Err(error) if error.status().is_some_and(|status| status != Status::TryLater) => {
                    return Ok(None);
                }
                page => page?,
            };
            for entry in &page.entries {
                if let b"." | b".." = &entry.name[..] {
                    continue;
                }
                let directory = match entry.attributes {
                    Some(attributes) if attributes.kind != FileKind::Directory => return Ok(None),
                    Some(attributes) => entry.handle.clone().map(|handle| (handle, attributes.fsid)),
                    None => None,
                };
                let parent = path.strip_suffix(b"/").unwrap_or(path);
                places.push(Place { path: [parent, &entry.name].join(&b'/'), directory });
            }
            match page.entries.last() {
                Some(last) if !page.eof => behind = (last.cookie, page.verifier),
                _ => return Ok(Some(places)),
            }
        }
    }
}
