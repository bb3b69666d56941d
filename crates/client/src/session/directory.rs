//! A directory's listing as a stream of pages.
//!
//! A server may say in the middle that it can't go on from where it was (NFS3ERR_BAD_COOKIE: the directory changed too
//! much). The listing then starts over and leaves out the names that the caller has had: it remembers a 64-bit hash of
//! each, up to a bound.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher as _, RandomState};

use proto::nfs3::{self, Procedure};
use rpc::client::Reply;
use xdr::Opaque;

use super::Session;
use super::call::body;
use crate::error::{Error, Result, Status};
use crate::types::{DirEntry, Handle};

/// Bytes of a page to begin with.
const PAGE: u32 = 32 << 10;

/// A page is never asked to be longer than this.
const PAGE_MAX: u32 = 512 << 10;

/// How many names are remembered for starting over; a longer listing can't, and ends with an error instead.
const REMEMBERED: usize = 1 << 20;

/// How often a listing starts over before it gives up.
const RESTARTS: u32 = 16;

/// A listing under way: pages come from the server as they are asked for.
#[derive(Debug)]
pub struct Directory {
    session: Session,
    directory: Handle,
    plus: bool,
    page: u32,
    cookie: u64,
    verifier: [u8; 8],
    entries: VecDeque<DirEntry>,
    eof: bool,
    seen: HashSet<u64>,
    hasher: RandomState,
    restarts: u32,
}

impl Session {
    /// Lists a directory: names only (READDIR), or with handles and attributes (READDIRPLUS; a server that doesn't
    /// have it is asked for names only).
    #[must_use]
    pub fn read_dir(&self, directory: &Handle, plus: bool) -> Directory {
        Directory {
            session: self.clone(),
            directory: *directory,
            plus,
            page: self.inner.sizes.dir_preferred.clamp(PAGE, PAGE_MAX),
            cookie: 0,
            verifier: [0; 8],
            entries: VecDeque::new(),
            eof: false,
            seen: HashSet::new(),
            hasher: RandomState::new(),
            restarts: 0,
        }
    }
}

impl Directory {
    /// The next entry, `.` and `..` left out; `None` at the end.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn next(&mut self) -> Result<Option<DirEntry>> {
        loop {
            while let Some(entry) = self.entries.pop_front() {
                if matches!(&entry.name[..], b"." | b"..")
                    || entry.name.contains(&b'/')
                    || entry.name.contains(&0)
                {
                    continue;
                }
                if self.seen.len() < REMEMBERED || self.restarts > 0 {
                    let new = self.seen.insert(self.hasher.hash_one(&entry.name));
                    if !new && self.restarts > 0 {
                        continue;
                    }
                }
                return Ok(Some(entry));
            }
            if self.eof {
                return Ok(None);
            }
            match self.fetch().await {
                Ok(()) => {}
                Err(error) => self.cope(error)?,
            }
        }
    }

    /// The rest of the entries at once.
    ///
    /// # Errors
    /// As [`Directory::next`].
    pub async fn collect(mut self) -> Result<Vec<DirEntry>> {
        let mut all = Vec::new();
        while let Some(entry) = self.next().await? {
            all.push(entry);
        }
        Ok(all)
    }

    /// Whether the listing can go on in spite of `error`, and from where.
    fn cope(&mut self, error: Error) -> Result<()> {
        match error.status() {
            Some(Status::BadCookie)
                if self.cookie != 0 && self.restarts < RESTARTS && self.seen.len() < REMEMBERED =>
            {
                self.restarts += 1;
                (self.cookie, self.verifier) = (0, [0; 8]);
            }
            Some(Status::NotSupported) if self.plus => self.plus = false,
            Some(Status::TooSmall) if self.page < PAGE_MAX => self.page *= 2,
            _ => return Err(error),
        }
        Ok(())
    }

    /// One page.
    async fn fetch(&mut self) -> Result<()> {
        let dir = self.directory;
        let dir = Opaque(dir.as_bytes());
        let (procedure, reply) = if self.plus {
            let args = nfs3::Readdirplus3Args {
                dir,
                cookie: self.cookie,
                cookieverf: self.verifier,
                dircount: self.page,
                maxcount: self.page,
            };
            (Procedure::Readdirplus, self.session.nfs(Procedure::Readdirplus, &args).await?)
        } else {
            let args =
                nfs3::Readdir3Args { dir, cookie: self.cookie, cookieverf: self.verifier, count: self.page };
            (Procedure::Readdir, self.session.nfs(Procedure::Readdir, &args).await?)
        };
        let before = self.cookie;
        self.take(procedure, &reply)?;
        let stuck = self.entries.back().is_none_or(|entry| entry.cookie == before);
        if stuck && !self.eof {
            return Err(Error::Protocol {
                object: procedure.name().to_owned(),
                what: "the listing neither ends nor goes on",
            });
        }
        Ok(())
    }

    fn take(&mut self, procedure: Procedure, reply: &Reply) -> Result<()> {
        if procedure == Procedure::Readdirplus {
            let page = body::<nfs3::Readdirplus3ResOk<'_>, nfs3::PostOpAttr>(procedure, reply)?;
            self.verifier = page.head.cookieverf;
            self.eof = page.reply.eof;
            self.entries.extend(page.reply.entries.0.into_iter().map(|entry| DirEntry {
                name: entry.name.0.to_vec(),
                fileid: entry.fileid,
                cookie: entry.cookie,
                handle: entry.name_handle.and_then(|handle| Handle::new(handle.0)),
                attributes: entry.name_attributes.map(Into::into),
            }));
        } else {
            let page = body::<nfs3::Readdir3ResOk<'_>, nfs3::PostOpAttr>(procedure, reply)?;
            self.verifier = page.head.cookieverf;
            self.eof = page.reply.eof;
            self.entries.extend(page.reply.entries.0.into_iter().map(|entry| DirEntry {
                name: entry.name.0.to_vec(),
                fileid: entry.fileid,
                cookie: entry.cookie,
                handle: None,
                attributes: None,
            }));
        }
        if let Some(last) = self.entries.back() {
            self.cookie = last.cookie;
        }
        Ok(())
    }
}
