//! READDIR and READDIRPLUS (RFC 1813 sections 3.3.16, 3.3.17): entries are encoded as they are read, up to
//! the size that the client allows.

use std::ops::ControlFlow;

use proto::nfs3::{
    DirlistTail, Entry3, Entryplus3, Nfsstat3, Outcome, PostOpAttr, Readdir3Args, ReaddirHead,
    ReaddirResHead, Readdirplus3Args,
};
use store::{DirEntry, Node, UserContext};
use xdr::{Encoder, Opaque, UNIT};

use super::convert::post_op;
use super::{Call, Done, Fault, Result, outcome};
use crate::export_table::ExportNesting;

/// The largest result, in bytes, even if the client allows more: it stays in memory until the client reads
/// it.
const MAX_RESULT: u32 = 128 << 10;

/// The arguments of both, and the limits of the reply.
struct Asked<'a> {
    directory: &'a [u8],
    cookie: u64,
    verifier: [u8; 8],
    /// Bytes of the whole ok body.
    maxcount: u32,
    /// READDIRPLUS: the bytes of it that READDIR would send, too.
    dircount: Option<u32>,
}

pub(super) fn readdir(call: &Call<'_>, args: Readdir3Args<'_>, to: &mut Encoder) -> Done {
    let asked = Asked {
        directory: args.dir.0,
        cookie: args.cookie,
        verifier: args.cookieverf,
        maxcount: args.count,
        dircount: None,
    };
    list(call, &asked, to, |_, _, _, entry, to| {
        to.put(&Entry3 { fileid: entry.fileid, name: Opaque(entry.name), cookie: entry.cookie });
    })
}

pub(super) fn readdirplus(call: &Call<'_>, args: Readdirplus3Args<'_>, to: &mut Encoder) -> Done {
    let asked = Asked {
        directory: args.dir.0,
        cookie: args.cookie,
        verifier: args.cookieverf,
        maxcount: args.maxcount,
        dircount: Some(args.dircount),
    };
    list(call, &asked, to, |user_context, directory, nested, entry, to| {
        // An entry that can't be looked up (removed since, on another filesystem) is listed without
        // attributes and handle. So is another export: LOOKUP finds out what the client sees there.
        let is_nested = nested.iter().any(|nested| nested.name == entry.name);
        let node = if is_nested { None } else { user_context.lookup(directory, entry.name).ok() };
        to.put(&Entryplus3 {
            fileid: entry.fileid,
            name: Opaque(entry.name),
            cookie: entry.cookie,
            name_attributes: node.as_ref().and_then(|node| call.current(user_context, node)),
            name_handle: node.as_ref().map(|node| Opaque(node.handle().as_bytes())),
        });
    })
}

/// Answers; `put` encodes one entry after its "value follows" word.
fn list(
    call: &Call<'_>,
    asked: &Asked<'_>,
    to: &mut Encoder,
    put: impl Fn(&UserContext<'_>, &Node, &[ExportNesting], DirEntry<'_>, &mut Encoder),
) -> Done {
    let start = to.position();
    let mut body: PostOpAttr = None;
    let status = match fill(call, asked, to, &mut body, put) {
        Ok(()) => Nfsstat3::Ok,
        Err(fault) => {
            to.truncate(start);
            to.put::<ReaddirResHead>(&outcome(Err(fault), body));
            fault.0
        }
    };
    Done { status, bytes: 0 }
}

/// Fills the reply, and `body` for failures.
fn fill(
    call: &Call<'_>,
    asked: &Asked<'_>,
    to: &mut Encoder,
    body: &mut PostOpAttr,
    put: impl Fn(&UserContext<'_>, &Node, &[ExportNesting], DirEntry<'_>, &mut Encoder),
) -> Result<()> {
    let admitted = call.admit(asked.directory)?;
    if asked.dircount.is_some() && admitted.options().nordirplus {
        return Err(Fault(Nfsstat3::Notsupp));
    }
    let directory = admitted.user_context()?.node(asked.directory)?;
    let nested = call.service.access.nested_in(&admitted, &directory);
    let user_context = admitted.user_context()?;
    *body = post_op(&user_context, &directory);
    let start = to.position();
    to.put::<ReaddirResHead>(&Outcome::Ok(ReaddirHead { dir_attributes: *body, cookieverf: [0; 8] }));
    // The client's bound applies to the ok body, without the status word.
    let bound = start + UNIT + asked.maxcount.min(MAX_RESULT) as usize;
    let verifier_at = to.position() - 8;
    let dircount = asked.dircount.map_or(usize::MAX, |count| count as usize);
    let (mut listed, mut refused, mut plain) = (0_usize, false, 0_usize);
    let page = user_context.read_dir(&directory, asked.cookie, asked.verifier, &mut |entry| {
        let before = to.position();
        let as_readdir = UNIT + Entry3::size(entry.name.len());
        // Checked first, so that entries that don't fit aren't looked up. The first entry is sent even if
        // dircount forbids it, since the client couldn't continue without one.
        let advised = listed == 0 || plain + as_readdir <= dircount;
        let fits = advised && before + as_readdir + DirlistTail::SIZE <= bound;
        if fits {
            to.bool(true);
            put(&user_context, &directory, &nested, entry, to);
        }
        if !fits || to.position() + DirlistTail::SIZE > bound {
            to.truncate(before);
            refused = true;
            return ControlFlow::Break(());
        }
        plain += as_readdir;
        listed += 1;
        ControlFlow::Continue(())
    })?;
    if to.position() + DirlistTail::SIZE > bound || (listed == 0 && refused) {
        return Err(Fault(Nfsstat3::Toosmall));
    }
    to.put(&DirlistTail { eof: page.eof && !refused });
    to.buffer()[verifier_at..verifier_at + 8].copy_from_slice(&page.verifier);
    Ok(())
}
