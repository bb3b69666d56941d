//! READDIR (RFC 8881 section 18.23): entries are encoded as they come, until the reply is as full as the
//! client allows.
//!
//! Cookies are the store's, moved by three, for 0, 1 and 2 have meanings of their own.

use std::ops::ControlFlow;

use proto::nfs4::attributes::RDATTR_ERROR;
use proto::nfs4::{Bitmap4, Nfsstat4, Readdir4Args};
use store::{Acting, DirEntry, Error, Node};
use xdr::{Encoder, UNIT};

use super::attributes::{known_file, known_pseudo};
use super::delegation;
use super::handles::{enter, must_be_directory, namespace};
use crate::nfs4::attributes::{Known, WRITE_ONLY, supported};
use crate::nfs4::compound::Compound;
use crate::nfs4::namespace::{Child, PseudoId};
use crate::nfs4::object::{File, Object};
use crate::nfs4::{Result, nested, status};

/// The largest result, in bytes, whatever the client allows: it waits in our memory until the client reads
/// it.
const MAX_RESULT: usize = 128 << 10;
/// "No more entries", and whether that is the end.
const TAIL: usize = 2 * UNIT;
/// The first cookie without a meaning of its own.
const FIRST_COOKIE: u64 = 3;

pub(in crate::programs::nfs4) fn readdir(c: &mut Compound<'_>, args: Readdir4Args) -> Result<()> {
    let wanted = args.attr_request;
    let cookie = match args.cookie {
        0 => 0,
        cookie => cookie.checked_sub(FIRST_COOKIE).ok_or(Nfsstat4::BadCookie)?,
    };
    let object = c.object()?.clone();
    if !wanted.and(&WRITE_ONLY).and(&supported(c.minor)).is_empty() {
        return Err(Nfsstat4::Inval);
    }
    let room = (args.maxcount as usize).min(MAX_RESULT).min(c.room());
    // The result is made apart: attributes are asked for through the COMPOUND meanwhile.
    let mut to = Encoder::new();
    let mut page = Page { to: &mut to, bound: room, listed: 0, refused: false, is_late: false };
    let (verifier, eof) = match &object {
        Object::Pseudo(id) => (PSEUDO_VERIFIER, list_pseudo(c, *id, args.cookie, &wanted, &mut page)?),
        Object::Gone(_) => return Err(Nfsstat4::Stale),
        Object::File(file) => {
            must_be_directory(file)?;
            list(c, file, cookie, args.cookieverf, &wanted, &mut page)?
        }
    };
    if page.listed == 0 && page.refused || page.bound < PAGE_HEAD + TAIL {
        return Err(c.no_room_for((args.maxcount as usize).min(MAX_RESULT), Nfsstat4::Toosmall));
    }
    let eof = eof && !page.refused;
    let reply = c.reply.encoder();
    reply.fixed(&verifier);
    reply.raw(to.as_slice());
    reply.bool(false);
    reply.bool(eof);
    Ok(())
}

/// The verifier.
const PAGE_HEAD: usize = 8;
/// Pseudo directories' cookies are positions in an order of names; a reload that moves them is caught by the
/// client's next look.
const PSEUDO_VERIFIER: [u8; 8] = [0; 8];

/// A page in the making.
struct Page<'a> {
    to: &'a mut Encoder,
    /// The most bytes of the result.
    bound: usize,
    listed: usize,
    /// There was an entry without room.
    refused: bool,
    /// A delegation's holder didn't answer: no other is asked for this page.
    is_late: bool,
}

impl Page<'_> {
    /// As GETATTR asks, but one holder that doesn't answer is enough to wait for.
    fn ask_writer(
        &mut self,
        c: &Compound<'_>,
        acting: &Acting<'_>,
        node: &Node,
        wanted: &Bitmap4,
    ) -> Result<Option<u64>> {
        if self.is_late && c.service.state.is_written_elsewhere(node) {
            return Err(Nfsstat4::Delay);
        }
        let answer = delegation::ask_writer(c, acting, node, wanted);
        self.is_late |= answer.is_err();
        answer
    }

    /// Appends an entry, if there is room.
    fn put(&mut self, cookie: u64, name: &[u8], attributes: impl FnOnce(&mut Encoder)) -> ControlFlow<()> {
        let before = self.to.position();
        self.to.bool(true);
        self.to.u64(cookie);
        self.to.opaque(name);
        attributes(self.to);
        if PAGE_HEAD + self.to.position() + TAIL > self.bound {
            self.to.truncate(before);
            self.refused = true;
            return ControlFlow::Break(());
        }
        self.listed += 1;
        ControlFlow::Continue(())
    }
}

/// The verifier, and whether the end was reached.
fn list(
    c: &Compound<'_>,
    file: &File,
    cookie: u64,
    verifier: [u8; 8],
    wanted: &Bitmap4,
    page: &mut Page<'_>,
) -> Result<([u8; 8], bool)> {
    // Where an export lies in the directory the entry is that export's root.
    let inner: Vec<(Vec<u8>, File)> = if wanted.is_empty() {
        Vec::new()
    } else {
        let nested = nested::in_directory(c, file).into_iter();
        nested.filter_map(|nested| Some((nested.name, enter(c, &nested.inner).ok()?))).collect()
    };
    let acting = file.acting()?;
    let mut failed = None;
    let end = acting.read_dir(&file.node, cookie, verifier, &mut |entry| {
        if matches!(entry.name, b"." | b"..") {
            return ControlFlow::Continue(());
        }
        let inner = inner.iter().find(|(name, _)| name == entry.name);
        let put = match inner {
            Some((_, root)) => {
                let cookie = entry.cookie.wrapping_add(FIRST_COOKIE);
                put_known(cookie, entry.name, known_root(c, root, wanted), wanted, page)
            }
            None => put_entry(c, file, &acting, entry, wanted, page),
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
    // What came before the failure is an answer; the client meets the failure with its next page.
    match failed {
        Some(status) if page.listed == 0 => Err(status),
        Some(_) => Ok((end.verifier, false)),
        None => Ok((end.verifier, end.eof)),
    }
}

fn put_entry(
    c: &Compound<'_>,
    directory: &File,
    acting: &Acting<'_>,
    entry: DirEntry<'_>,
    wanted: &Bitmap4,
    page: &mut Page<'_>,
) -> Result<ControlFlow<()>> {
    let cookie = entry.cookie.wrapping_add(FIRST_COOKIE);
    if wanted.is_empty() {
        return Ok(page.put(cookie, entry.name, put_empty));
    }
    let there = match acting.lookup(&directory.node, entry.name) {
        Err(Error::OtherExport(export)) => match nested::enter(c, export) {
            Ok(root) => return put_known(cookie, entry.name, known_root(c, &root, wanted), wanted, page),
            // A client that takes no error with an entry isn't kept from the whole directory by it.
            Err(_) if !wanted.contains(RDATTR_ERROR) => return Ok(ControlFlow::Continue(())),
            Err(status) => Err(status),
        },
        found => found.map_err(status::of_store),
    };
    let looked_up = || -> Result<_> {
        let node = there?;
        let written = page.ask_writer(c, acting, &node, wanted)?;
        let mut attributes = acting.attributes(&node).map_err(status::of_store)?;
        attributes.size = written.unwrap_or(attributes.size);
        known_file(c, acting, &directory.sibling(node), &attributes, wanted)
    };
    let known = looked_up();
    put_known(cookie, entry.name, known, wanted, page)
}

/// Appends an entry with its attributes or, where the client has asked for that, with what is in their way.
fn put_known(
    cookie: u64,
    name: &[u8],
    known: Result<Known<'_>>,
    wanted: &Bitmap4,
    page: &mut Page<'_>,
) -> Result<ControlFlow<()>> {
    match known {
        Ok(known) => Ok(page.put(cookie, name, |to| known.put(wanted, to))),
        // Gone since.
        Err(Nfsstat4::Noent | Nfsstat4::Stale) => Ok(ControlFlow::Continue(())),
        Err(error) if wanted.contains(RDATTR_ERROR) => Ok(page.put(cookie, name, |to| {
            to.put(&Bitmap4::of(&[RDATTR_ERROR]));
            to.length(UNIT);
            to.put(&error);
        })),
        Err(error) => Err(error),
    }
}

/// The attributes of the root of an export.
fn known_root<'k>(c: &Compound<'k>, root: &File, wanted: &Bitmap4) -> Result<Known<'k>> {
    let acting = root.acting()?;
    let attributes = acting.attributes(&root.node).map_err(status::of_store)?;
    known_file(c, &acting, root, &attributes, wanted)
}

fn put_empty(to: &mut Encoder) {
    to.put(&Bitmap4::EMPTY);
    to.length(0);
}

/// Whether the end was reached.
fn list_pseudo(
    c: &Compound<'_>,
    id: PseudoId,
    cookie: u64,
    wanted: &Bitmap4,
    page: &mut Page<'_>,
) -> Result<bool> {
    let namespace = namespace(c);
    let directory = namespace.directory(id).ok_or(Nfsstat4::Stale)?;
    for ((name, child), number) in directory.children.iter().zip(FIRST_COOKIE..) {
        if number <= cookie {
            continue;
        }
        let known = match child {
            Child::Pseudo(id) => known_pseudo(c, &namespace, *id),
            Child::Export(entry) => enter(c, entry).and_then(|root| known_root(c, &root, wanted)),
        };
        match put_known(number, name, known, wanted, page) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return Ok(false),
            // What came before it is an answer; the client meets the failure with its next page.
            Err(_) if page.listed > 0 => return Ok(false),
            Err(status) => return Err(status),
        }
    }
    Ok(true)
}
