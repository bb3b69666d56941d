//! READDIR (RFC 8881 section 18.23), with the entries `.` and `..`, which NFSv4 doesn't list.
//!
//! The first page of a session with an attribute sink comes with the directory's access control lists: who
//! lists a directory mostly uses its names, and the lists say who may.

use proto::nfs4::{Fattr4, MAX_COMPONENT, Nfsstat4, Operation as Op, Readdir4Args, Verifier4};
use xdr::{Decode, Decoder};

use super::compound::{Compound, Results, malformed};
use super::convert::{ENTRY, ENTRY_AND_ACL, ENTRY_NUMBER, FILE, FILE_AND_ACL, ReplyAttributes};
use super::{Nfs4, Report, file_handle, reply_attributes};
use crate::error::Result;
use crate::types::{Attributes, DirEntry, DirectoryPage, FileKind, Handle, Operation, Page, Plus, ReplyAcls};
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

/// The operations for one of several first pages.
const OPERATIONS_OF_PAGE: usize = 4;

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

/// What is requested of one directory.
struct PageRequest<'a> {
    directory: &'a Handle,
    /// The cookie behind which the page begins, and its verifier, as the server has them.
    behind: (u64, [u8; 8]),
    maxcount: u32,
    plus: Plus<'a>,
    /// Also the directory's access control lists.
    asks_lists: bool,
}

/// What the reply has of one directory.
struct ReadPage {
    page: Page,
    /// The directory's attributes from before the entries were read.
    before: Option<Attributes>,
    /// Those from after that, with its access control lists, where they were asked for.
    after: Option<(Attributes, ReplyAcls)>,
}

impl From<ReadPage> for DirectoryPage {
    fn from(ReadPage { page, before, after }: ReadPage) -> Self {
        let is_unchanged =
            |before: &Attributes| after.as_ref().is_none_or(|(after, _)| after.change == before.change);
        Self { page, attributes: before.filter(is_unchanged), acls: after.map(|(_, acls)| acls) }
    }
}

impl PageRequest<'_> {
    fn append_to(&self, compound: Compound) -> Compound {
        let attr_request = match self.plus {
            Plus::None => ENTRY_NUMBER,
            Plus::Acls => ENTRY_AND_ACL,
            _ => ENTRY,
        };
        let ((cookie, cookieverf), maxcount) = (self.behind, self.maxcount);
        let args = Readdir4Args { cookie, cookieverf, dircount: maxcount, maxcount, attr_request };
        let compound = compound.put_fh(self.directory).get_attributes(&FILE).then(Op::Readdir, &args);
        if !self.asks_lists {
            return compound;
        }
        // Behind the entries, because a server may fail it.
        compound.get_attributes(&FILE_AND_ACL)
    }

    /// Reads the page out of the results, and reports what it says about files.
    fn read_from(&self, results: &mut Results<'_>, report: &Report<'_>) -> Result<ReadPage> {
        results.succeeded(Op::Putfh)?;
        let before = report.file(results, self.directory, None);
        let verifier: Verifier4 = results.get(Op::Readdir)?;
        let (mut entries, mut after) = (Vec::new(), None);
        while results.value::<bool>(Op::Readdir)? {
            let name = results.value::<Entry<'_>>(Op::Readdir)?;
            let entry = entry(&name, self.directory, matches!(self.plus, Plus::Acls));
            entries.push(entry.map_err(|_| malformed(Op::Readdir.name()))?);
        }
        let eof = results.value(Op::Readdir)?;
        if self.asks_lists
            && let Ok(own) = reply_attributes(results)
            && let Some(file) = own.file()
        {
            let lists = own.acls(true);
            report.send(self.directory, None, Some(file));
            report.acls(self.directory, &file, &lists);
            after = Some((file, lists));
        }
        for entry in &entries {
            if let (Some(handle), Some(attributes)) = (&entry.handle, &entry.attributes) {
                report.send(handle, None, entry.attributes);
                if let Some(acls) = &entry.acls {
                    report.acls(handle, attributes, acls);
                }
            }
        }
        Ok(ReadPage { page: Page { entries, verifier, eof }, before, after })
    }
}

impl Nfs4 {
    /// READDIR.
    pub(super) async fn list_page(
        &self,
        user: &User,
        directory: &Handle,
        (cookie, verifier): (u64, [u8; 8]),
        count: u32,
        plus: Plus<'_>,
    ) -> Result<Page> {
        let report = self.report();
        let operation = if plus.is_wanted() { Operation::Readdirplus } else { Operation::Readdir };
        let request = PageRequest {
            directory,
            // The client's own cookies are before the beginning of the server's.
            behind: if cookie > PARENT_COOKIE { (cookie, verifier) } else { (0, [0; 8]) },
            maxcount: count.min(self.client.max_transfers().0),
            plus,
            asks_lists: cookie == 0
                && report.to.is_some()
                && self.client.max_operations() >= OPERATIONS_WITH_LISTS,
        };
        let mut compound = request.append_to(Compound::new());
        if cookie < PARENT_COOKIE {
            compound = compound.then(Op::Lookupp, &()).get_attributes(&ENTRY_NUMBER);
        }
        let reply = self.call(user, operation, &compound).await?;
        let mut results = reply.results()?;
        let ReadPage { mut page, before, .. } = request.read_from(&mut results, &report)?;
        if cookie < PARENT_COOKIE {
            let own = before.map_or(UNKNOWN_FILEID, |attributes| attributes.fileid);
            // The server's root has no parent, and users need search permission to find it.
            let parent = results.succeeded(Op::Lookupp).and_then(|()| reply_attributes(&mut results));
            let parent = parent.map_or(own, |parent| parent.fileid());
            let own = [(&b"."[..], own, OWN_COOKIE), (b"..", parent, PARENT_COOKIE)];
            let own = own.map(|(name, fileid, cookie)| DirEntry {
                name: name.to_vec(),
                fileid,
                cookie,
                kind: Some(FileKind::Directory),
                handle: None,
                attributes: None,
                acls: None,
            });
            page.entries.splice(0..0, own.into_iter().filter(|entry| entry.cookie > cookie));
        }
        Ok(page)
    }

    /// READDIR of several directories in one request.
    pub(super) async fn list_first_pages(
        &self,
        user: &User,
        directories: &[&Handle],
        count: u32,
    ) -> Result<Vec<DirectoryPage>> {
        let (max_reply, max_operations) = (self.client.max_transfers().0, self.client.max_operations());
        let maxcount = count.min(max_reply);
        let fit = (max_operations / OPERATIONS_OF_PAGE).min((max_reply / maxcount.max(1)) as usize).max(1);
        let report = self.report();
        let requests = directories.iter().take(fit).map(|directory| PageRequest {
            directory,
            behind: (0, [0; 8]),
            maxcount,
            plus: Plus::All,
            asks_lists: report.to.is_some() && max_operations >= OPERATIONS_OF_PAGE,
        });
        let requests: Vec<_> = requests.collect();
        let compound = requests.iter().fold(Compound::new(), |all, request| request.append_to(all));
        let reply = self.call(user, Operation::Readdirplus, &compound).await?;
        let mut results = reply.results()?;
        let mut pages = Vec::new();
        for request in &requests {
            match request.read_from(&mut results, &report) {
                Ok(page) => pages.push(page.into()),
                // The request ended with an error.
                Err(_) if !pages.is_empty() => break,
                Err(error) => return Err(error),
            }
        }
        Ok(pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_whether_the_directory_changed_meanwhile() {
        let with_change = |change| Attributes { change, ..Attributes::default() };
        let attributes = |after: Option<u64>| {
            let after = after.map(|change| (with_change(change), ReplyAcls::NotSupported));
            let has_acls = after.is_some();
            let read = ReadPage { page: Page::default(), before: Some(with_change(1)), after };
            let listed = DirectoryPage::from(read);
            assert_eq!(listed.acls.is_some(), has_acls);
            listed.attributes
        };
        assert_eq!(attributes(Some(1)), Some(with_change(1)));
        assert_eq!(attributes(Some(2)), None);
        assert_eq!(attributes(None), Some(with_change(1)), "nothing says so");
    }
}
