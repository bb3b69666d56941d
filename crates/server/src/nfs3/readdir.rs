//! READDIR and READDIRPLUS (RFC 1813 sections 3.3.16, 3.3.17): entries are encoded as they come, until the reply is
//! as full as the client allows.

use std::ops::ControlFlow;

use proto::nfs3::{
    DirlistTail, Entry3, Entryplus3, Nfsstat3, Outcome, PostOpAttr, Readdir3Args, ReaddirHead,
    ReaddirResHead, Readdirplus3Args,
};
use store::{Acting, DirEntry, Node};
use xdr::{Encoder, Opaque, UNIT};

use super::convert::post_op;
use super::{Call, Fault, Result, outcome};

/// The largest result, in bytes, whatever the client allows: it waits in our memory until the client reads it.
const MAX_RESULT: u32 = 128 << 10;

/// How full the reply may become.
struct Room {
    /// The whole of the ok body.
    maxcount: usize,
    /// READDIRPLUS: what READDIR would have sent of it.
    dircount: usize,
}

pub(super) fn readdir(call: &Call<'_>, args: Readdir3Args<'_>, to: &mut Encoder) -> u64 {
    let room = Room { maxcount: args.count.min(MAX_RESULT) as usize, dircount: usize::MAX };
    list(call, args.dir.0, args.cookie, args.cookieverf, &room, to, |_, _, entry, to| {
        to.put(&Entry3 { fileid: entry.fileid, name: Opaque(entry.name), cookie: entry.cookie });
    })
}

pub(super) fn readdirplus(call: &Call<'_>, args: Readdirplus3Args<'_>, to: &mut Encoder) -> u64 {
    let room = Room { maxcount: args.maxcount.min(MAX_RESULT) as usize, dircount: args.dircount as usize };
    list(call, args.dir.0, args.cookie, args.cookieverf, &room, to, |acting, directory, entry, to| {
        // An entry that can't be looked up (gone since, another filesystem) is listed without its particulars.
        let node = acting.lookup(directory, entry.name).ok();
        to.put(&Entryplus3 {
            fileid: entry.fileid,
            name: Opaque(entry.name),
            cookie: entry.cookie,
            name_attributes: node.as_ref().and_then(|node| post_op(acting, node)),
            name_handle: node.as_ref().map(|node| Opaque(node.handle().as_bytes())),
        });
    })
}

/// Answers; `put` encodes one entry behind its "follows" word. Returns 0, the payload's bytes: a directory has none.
fn list(
    call: &Call<'_>,
    handle: &[u8],
    cookie: u64,
    verifier: [u8; 8],
    room: &Room,
    to: &mut Encoder,
    put: impl Fn(&Acting<'_>, &Node, DirEntry<'_>, &mut Encoder),
) -> u64 {
    let start = to.position();
    let mut body: PostOpAttr = None;
    let done = fill(call, handle, cookie, verifier, room, to, &mut body, put);
    if let Err(fault) = done {
        to.truncate(start);
        to.put::<ReaddirResHead>(&outcome(Err(fault), body));
    }
    0
}

#[allow(clippy::too_many_arguments, reason = "it is the second half of `list`")]
fn fill(
    call: &Call<'_>,
    handle: &[u8],
    cookie: u64,
    verifier: [u8; 8],
    room: &Room,
    to: &mut Encoder,
    body: &mut PostOpAttr,
    put: impl Fn(&Acting<'_>, &Node, DirEntry<'_>, &mut Encoder),
) -> Result<()> {
    let admitted = call.admit(handle)?;
    let acting = admitted.acting()?;
    let directory = acting.node(handle)?;
    *body = post_op(&acting, &directory);
    let start = to.position();
    to.put::<ReaddirResHead>(&Outcome::Ok(ReaddirHead { dir_attributes: *body, cookieverf: [0; 8] }));
    // The status word stands before the ok body, which is what the client's bound is about.
    let bound = start + UNIT + room.maxcount;
    let verifier_at = to.position() - 8;
    let (mut listed, mut refused, mut plain) = (0_usize, false, 0_usize);
    let page = acting.read_dir(&directory, cookie, verifier, &mut |entry| {
        let before = to.position();
        let as_readdir = UNIT + Entry3::size(entry.name.len());
        // Looked at first, so that nothing is looked up that has no room anyway.
        // The first entry goes out even if dircount forbids it: the client couldn't go on without.
        let advised = listed == 0 || plain + as_readdir <= room.dircount;
        let fits = advised && before + as_readdir + DirlistTail::SIZE <= bound;
        if fits {
            to.bool(true);
            put(&acting, &directory, entry, to);
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
