//! READDIR (RFC 8881 section 18.23), with the entries `.` and `..`, which NFSv4 doesn't list.
//!
//! The first page of a session with an attribute sink comes with the directory's access control lists: who
//! lists a directory mostly uses its names, and the lists say who may.

use proto::nfs4::{Fattr4, MAX_COMPONENT, Nfsstat4, Operation as Op, Readdir4Args, Verifier4};
use xdr::{Decode, Decoder};

use super::compound::{Compound, malformed};
use super::convert::{ENTRY, ENTRY_AND_ACL, ENTRY_NUMBER, FILE, FILE_AND_ACL, ReplyAttributes};
use super::{Nfs4, file_handle, reply_attributes};
use crate::error::Result;
use crate::types::{DirEntry, FileKind, Handle, Operation, Page, Plus};
use crate::user::User;

/// The cookies of `.` and `..`, which NFSv4's servers don't list: they don't use these numbers (RFC 8881
/// section 18.23.3).
const OWN_COOKIE: u64 = 1;
const PARENT_COOKIE: u64 = 2;

/// The number of an entry whose attributes the user may not see, as the kernel's client has it.
const UNKNOWN_FILEID: u64 = 1;

/// The operations of the request for a first page, SEQUENCE not counted. A session may permit fewer; then it
/// comes without the directory's lists.
const OPERATIONS_WITH_LISTS: usize = 6;

/// `entry4`, without the pointer to the next.
struct Entry<'a> {
    cookie: u64,
    name: &'a [u8],
    attributes: Fattr4<'a>,
}

impl<'a> Decode<'a> for Entry<'a> {
    fn decode(from: &mut Decoder<'a>) -> Result<Self, xdr::Error> {
        Ok(Self { cookie: from.u64()?, name: from.opaque(MAX_COMPONENT)?, attributes: from.get()? })
    }
}

/// An entry of a directory.
fn entry(from: &Entry<'_>, directory: &Handle, with_acls: bool) -> Result<DirEntry, xdr::Error> {
    let Entry { cookie, name, attributes } = *from;
    let attributes = ReplyAttributes::decode(&attributes)?;
    let is_known = attributes.error.is_none_or(|error| error == Nfsstat4::Ok);
    let handle = attributes.handle.and_then(|handle| file_handle(handle).ok());
    let file = attributes.file().filter(|_| is_known);
    if let (Some(handle), Some(_)) = (&handle, &file) {
        handle.note_birth(attributes.birth);
    }
    Ok(DirEntry {
        name: name.to_vec(),
        // C libraries leave out entries without a number.
        fileid: if is_known { attributes.fileid() } else { UNKNOWN_FILEID },
        cookie,
        kind: file.map(|file| file.kind),
        handle: handle.filter(|_| is_known).map(|handle| handle.found_at(directory, name)),
        attributes: file,
        acls: file.filter(|_| with_acls).map(|file| attributes.acls(file.kind == FileKind::Directory)),
    })
}

impl Nfs4 {
    /// READDIR.
    pub(super) async fn list_page(
        &self,
        user: &User,
        directory: &Handle,
        (cookie, cookieverf): (u64, [u8; 8]),
        count: u32,
        plus: Plus<'_>,
    ) -> Result<Page> {
        let report = self.report();
        let (operation, attr_request) = match plus {
            Plus::None => (Operation::Readdir, ENTRY_NUMBER),
            Plus::Acls => (Operation::Readdirplus, ENTRY_AND_ACL),
            _ => (Operation::Readdirplus, ENTRY),
        };
        let maxcount = count.min(self.client.max_transfers().0);
        // The client's own cookies are before the beginning of the server's.
        let (behind, cookieverf) = if cookie > PARENT_COOKIE { (cookie, cookieverf) } else { (0, [0; 8]) };
        let args = Readdir4Args { cookie: behind, cookieverf, dircount: maxcount, maxcount, attr_request };
        let mut compound = Compound::new().put_fh(directory).get_attributes(&FILE).then(Op::Readdir, &args);
        let asks_lists =
            cookie == 0 && report.to.is_some() && self.client.max_operations() >= OPERATIONS_WITH_LISTS;
        if asks_lists {
            // Behind the entries, because a server may fail it.
            compound = compound.get_attributes(&FILE_AND_ACL);
        }
        if cookie < PARENT_COOKIE {
            compound = compound.then(Op::Lookupp, &()).get_attributes(&ENTRY_NUMBER);
        }
        let reply = self.call(user, operation, &compound).await?;
        let mut results = reply.results()?;
        results.succeeded(Op::Putfh)?;
        let attributes = report.file(&mut results, directory, None);
        let verifier: Verifier4 = results.get(Op::Readdir)?;
        let mut listed = Vec::new();
        while results.value::<bool>(Op::Readdir)? {
            let name = results.value::<Entry<'_>>(Op::Readdir)?;
            let entry = entry(&name, directory, matches!(plus, Plus::Acls));
            listed.push(entry.map_err(|_| malformed(Op::Readdir.name()))?);
        }
        let eof = results.value(Op::Readdir)?;
        if asks_lists
            && let Ok(own) = reply_attributes(&mut results)
            && let Some(file) = own.file()
        {
            report.send(directory, None, Some(file));
            report.acls(directory, &file, &own.acls(true));
        }
        let mut entries = Vec::new();
        if cookie < PARENT_COOKIE {
            let own = attributes.map_or(UNKNOWN_FILEID, |attributes| attributes.fileid);
            // The server's root has no parent, and users need search permission to find it.
            let parent = results.succeeded(Op::Lookupp).and_then(|()| reply_attributes(&mut results));
            let parent = parent.map_or(own, |parent| parent.fileid());
            entries.extend([(&b"."[..], own, OWN_COOKIE), (b"..", parent, PARENT_COOKIE)].map(
                |(name, fileid, cookie)| DirEntry {
                    name: name.to_vec(),
                    fileid,
                    cookie,
                    kind: Some(FileKind::Directory),
                    handle: None,
                    attributes: None,
                    acls: None,
                },
            ));
            entries.retain(|entry| entry.cookie > cookie);
        }
        entries.append(&mut listed);
        for entry in &entries {
            if let (Some(handle), Some(attributes)) = (&entry.handle, &entry.attributes) {
                report.send(handle, None, entry.attributes);
                if let Some(acls) = &entry.acls {
                    report.acls(handle, attributes, acls);
                }
            }
        }
        Ok(Page { entries, verifier, eof })
    }
}
