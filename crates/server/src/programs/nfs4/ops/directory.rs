//! READDIR (RFC 8881 section 18.23): entries are encoded as the store returns them, until the result is as
//! long as the client allows.
//!
//! Cookies are the store's plus three: 0, 1 and 2 are reserved.

use std::ops::ControlFlow;

use proto::nfs4::attributes::RDATTR_ERROR;
use proto::nfs4::{Bitmap4, Nfsstat4, Readdir4Args};
use store::{DirEntry, Error, Node, UserContext};
use xdr::{Encoder, UNIT};

use crate::programs::nfs4::attributes::{ObjectAttributes, WRITE_ONLY, supported};
use crate::programs::nfs4::context::Context;
use crate::programs::nfs4::lookup::check_directory;
use crate::programs::nfs4::namespace::{Child, PseudoId};
use crate::programs::nfs4::nested::{self, export_root, namespace};
use crate::programs::nfs4::object::{File, Object};
use crate::programs::nfs4::status::{self, Result};

/// The largest result in bytes, whatever the client allows: it stays in memory until the client reads it.
const MAX_RESULT: usize = 128 << 10;
/// The end of the result, in bytes: "no more entries", and whether the directory ends here.
const TAIL: usize = 2 * UNIT;
/// The first cookie that isn't reserved.
const FIRST_COOKIE: u64 = 3;

pub(crate) fn readdir(c: &mut Context<'_>, args: Readdir4Args) -> Result<()> {
    let requested = args.attr_request;
    let cookie = match args.cookie {
        0 => 0,
        cookie => cookie.checked_sub(FIRST_COOKIE).ok_or(Nfsstat4::BadCookie)?,
    };
    let object = c.object()?.clone();
    if !requested.and(&WRITE_ONLY).and(&supported(c.minor)).is_empty() {
        return Err(Nfsstat4::Inval);
    }
    let room = (args.maxcount as usize).min(MAX_RESULT).min(c.room());
    // Entries go into a buffer of their own: gathering attributes borrows the context.
    let mut to = Encoder::new();
    let mut page = Page { to: &mut to, bound: room, listed: 0, is_full: false, holder_is_silent: false };
    let (verifier, eof) = match &object {
        Object::Pseudo(id) => (PSEUDO_VERIFIER, list_pseudo(c, *id, args.cookie, &requested, &mut page)?),
        Object::Gone(_) => return Err(Nfsstat4::Stale),
        Object::File(file) => {
            check_directory(file)?;
            list(c, file, cookie, args.cookieverf, &requested, &mut page)?
        }
    };
    if page.listed == 0 && page.is_full || page.bound < PAGE_HEAD + TAIL {
        return Err(c.no_room_for((args.maxcount as usize).min(MAX_RESULT), Nfsstat4::Toosmall));
    }
    let eof = eof && !page.is_full;
    let reply = c.reply.encoder();
    reply.fixed(&verifier);
    reply.raw(to.as_slice());
    reply.bool(false);
    reply.bool(eof);
    Ok(())
}

/// The beginning of the result, in bytes: the verifier.
const PAGE_HEAD: usize = 8;
/// In the pseudo-filesystem a cookie is a position in the order of names. After a reload that moves them the
/// client sees the change when it lists the directory again.
const PSEUDO_VERIFIER: [u8; 8] = [0; 8];

/// A result that is being built.
struct Page<'a> {
    to: &'a mut Encoder,
    /// The largest result, in bytes.
    bound: usize,
    listed: usize,
    /// An entry didn't fit.
    is_full: bool,
    /// A delegation's holder didn't answer CB_GETATTR: no other one is called for this page.
    holder_is_silent: bool,
}

impl Page<'_> {
    /// As for GETATTR, but the page waits for one silent holder at most.
    fn size_at_holder(
        &mut self,
        c: &Context<'_>,
        user_context: &UserContext<'_>,
        node: &Node,
        requested: &Bitmap4,
    ) -> Result<Option<u64>> {
        if self.holder_is_silent && c.service.state.is_write_delegated(node) {
            return Err(Nfsstat4::Delay);
        }
        let answer = c.size_at_holder(user_context, node, requested);
        self.holder_is_silent |= answer.is_err();
        answer
    }

    /// Appends an entry if it fits.
    fn put(&mut self, cookie: u64, name: &[u8], attributes: impl FnOnce(&mut Encoder)) -> ControlFlow<()> {
        let before = self.to.position();
        self.to.bool(true);
        self.to.u64(cookie);
        self.to.opaque(name);
        attributes(self.to);
        if PAGE_HEAD + self.to.position() + TAIL > self.bound {
            self.to.truncate(before);
            self.is_full = true;
            return ControlFlow::Break(());
        }
        self.listed += 1;
        ControlFlow::Continue(())
    }
}

/// Appends the entries of a directory; the verifier, and whether its end was reached.
fn list(
    c: &Context<'_>,
    file: &File,
    cookie: u64,
    verifier: [u8; 8],
    requested: &Bitmap4,
    page: &mut Page<'_>,
) -> Result<([u8; 8], bool)> {
    // The entry of a nested export is that export's root.
    let inner: Vec<(Vec<u8>, File)> = if requested.is_empty() {
        Vec::new()
    } else {
        let nested = nested::in_directory(c, file).into_iter();
        nested.filter_map(|nested| Some((nested.name, export_root(c, &nested.inner).ok()?))).collect()
    };
    let user_context = file.user_context()?;
    let mut failed = None;
    let end = user_context.read_dir(&file.node, cookie, verifier, &mut |entry| {
        if matches!(entry.name, b"." | b"..") {
            return ControlFlow::Continue(());
        }
        let inner = inner.iter().find(|(name, _)| name == entry.name);
        let put = match inner {
            Some((_, root)) => {
                let cookie = entry.cookie.wrapping_add(FIRST_COOKIE);
                put_attributes(cookie, entry.name, root_attributes(c, root, requested), requested, page)
            }
            None => put_entry(c, file, &user_context, entry, requested, page),
        };
        match put {
            Ok(flow) => flow,
            Err(status) => {
                failed = Some(status);
                ControlFlow::Break(())
            }
        }
    });
    let end = end.map_err(status::of_store)?;
    // The entries before the failure are a result; the client's next page meets the failure.
    match failed {
        Some(status) if page.listed == 0 => Err(status),
        Some(_) => Ok((end.verifier, false)),
        None => Ok((end.verifier, end.eof)),
    }
}

fn put_entry(
    c: &Context<'_>,
    directory: &File,
    user_context: &UserContext<'_>,
    entry: DirEntry<'_>,
    requested: &Bitmap4,
    page: &mut Page<'_>,
) -> Result<ControlFlow<()>> {
    let cookie = entry.cookie.wrapping_add(FIRST_COOKIE);
    if requested.is_empty() {
        return Ok(page.put(cookie, entry.name, put_empty));
    }
    let there = match user_context.lookup(&directory.node, entry.name) {
        Err(Error::NestedExport(export)) => match nested::inner_root(c, export) {
            Ok(root) => {
                return put_attributes(
                    cookie,
                    entry.name,
                    root_attributes(c, &root, requested),
                    requested,
                    page,
                );
            }
            // A client that doesn't request RDATTR_ERROR can still list the rest of the directory.
            Err(_) if !requested.contains(RDATTR_ERROR) => return Ok(ControlFlow::Continue(())),
            Err(status) => Err(status),
        },
        found => found.map_err(status::of_store),
    };
    let looked_up = || -> Result<_> {
        let node = there?;
        let written = page.size_at_holder(c, user_context, &node, requested)?;
        let mut attributes = user_context.attributes(&node).map_err(status::of_store)?;
        attributes.size = written.unwrap_or(attributes.size);
        c.file_attributes(user_context, &directory.sibling(node), &attributes, requested)
    };
    put_attributes(cookie, entry.name, looked_up(), requested, page)
}

/// Appends an entry with its attributes, or with the error that prevents them if the client requests that.
fn put_attributes(
    cookie: u64,
    name: &[u8],
    attributes: Result<ObjectAttributes<'_>>,
    requested: &Bitmap4,
    page: &mut Page<'_>,
) -> Result<ControlFlow<()>> {
    match attributes {
        Ok(found) => Ok(page.put(cookie, name, |to| found.put(requested, to))),
        // Removed meanwhile.
        Err(Nfsstat4::Noent | Nfsstat4::Stale) => Ok(ControlFlow::Continue(())),
        Err(error) if requested.contains(RDATTR_ERROR) => Ok(page.put(cookie, name, |to| {
            to.put(&Bitmap4::of(&[RDATTR_ERROR]));
            to.length(UNIT);
            to.put(&error);
        })),
        Err(error) => Err(error),
    }
}

/// The attributes of the root of an export.
fn root_attributes<'k>(c: &Context<'k>, root: &File, requested: &Bitmap4) -> Result<ObjectAttributes<'k>> {
    let user_context = root.user_context()?;
    let attributes = user_context.attributes(&root.node).map_err(status::of_store)?;
    c.file_attributes(&user_context, root, &attributes, requested)
}

fn put_empty(to: &mut Encoder) {
    to.put(&Bitmap4::EMPTY);
    to.length(0);
}

/// Appends the entries of a directory of the pseudo-filesystem; whether its end was reached.
fn list_pseudo(
    c: &Context<'_>,
    id: PseudoId,
    cookie: u64,
    requested: &Bitmap4,
    page: &mut Page<'_>,
) -> Result<bool> {
    let namespace = namespace(c);
    let directory = namespace.directory(id).ok_or(Nfsstat4::Stale)?;
    for ((name, child), number) in directory.children.iter().zip(FIRST_COOKIE..) {
        if number <= cookie {
            continue;
        }
        let attributes = match child {
            Child::Pseudo(id) => c.pseudo_attributes(&namespace, *id),
            Child::Export(entry) => {
                export_root(c, entry).and_then(|root| root_attributes(c, &root, requested))
            }
        };
        match put_attributes(number, name, attributes, requested, page) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return Ok(false),
            // The entries before it are a result; the client's next page meets the failure.
            Err(_) if page.listed > 0 => return Ok(false),
            Err(status) => return Err(status),
        }
    }
    Ok(true)
}
