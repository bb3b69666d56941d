//! The attributes in a procedure's results, and which of the call's files each belongs to.

use std::time::Instant;

use proto::nfs3::{self, Fattr3, WccData};

use super::convert;
use crate::attribute_sink::{AttributeSink, AttributeUpdate, PreOpAttributes};
use crate::types::Handle;

/// One call's files, and the sink for their attributes.
pub(super) struct AttributeReport<'a> {
    pub(super) sink: &'a dyn AttributeSink,
    /// The files that the call names, in the order of its arguments.
    pub(super) files: &'a [&'a Handle],
    pub(super) sent: Instant,
}

impl AttributeReport<'_> {
    fn send(&self, file: &Handle, before: Option<PreOpAttributes>, attributes: Option<Fattr3>) {
        let seen = AttributeUpdate {
            before,
            attributes: attributes.as_ref().map(convert::attributes),
            asked: self.sent,
        };
        self.sink.attributes(file, &seen);
    }

    fn nth(&self, nth: usize, before: Option<PreOpAttributes>, attributes: Option<Fattr3>) {
        if let Some(file) = self.files.get(nth) {
            self.send(file, before, attributes);
        }
    }

    fn changed(&self, nth: usize, wcc: &WccData) {
        self.nth(nth, wcc.before.as_ref().map(Into::into), wcc.after);
    }

    fn other(&self, handle: Option<nfs3::NfsFh3<'_>>, attributes: Option<Fattr3>) {
        if let (Some(handle), Some(_)) = (handle.and_then(|handle| Handle::new(handle.0)), attributes) {
            self.send(&handle, None, attributes);
        }
    }
}

/// The results of a call, or the body of a failure.
pub(super) trait ReplyAttributes {
    fn report(&self, to: &AttributeReport<'_>);
}

impl ReplyAttributes for () {
    fn report(&self, _: &AttributeReport<'_>) {}
}

impl ReplyAttributes for Fattr3 {
    fn report(&self, to: &AttributeReport<'_>) {
        to.nth(0, None, Some(*self));
    }
}

impl ReplyAttributes for nfs3::PostOpAttr {
    fn report(&self, to: &AttributeReport<'_>) {
        to.nth(0, None, *self);
    }
}

impl ReplyAttributes for WccData {
    fn report(&self, to: &AttributeReport<'_>) {
        to.changed(0, self);
    }
}

impl ReplyAttributes for nfs3::Lookup3ResOk<'_> {
    fn report(&self, to: &AttributeReport<'_>) {
        self.dir_attributes.report(to);
        to.other(Some(self.object), self.obj_attributes);
    }
}

impl ReplyAttributes for nfs3::NewObject3<'_> {
    fn report(&self, to: &AttributeReport<'_>) {
        self.dir_wcc.report(to);
        to.other(self.obj, self.obj_attributes);
    }
}

impl ReplyAttributes for nfs3::Rename3Body {
    fn report(&self, to: &AttributeReport<'_>) {
        to.changed(0, &self.fromdir_wcc);
        to.changed(1, &self.todir_wcc);
    }
}

impl ReplyAttributes for nfs3::Link3Body {
    fn report(&self, to: &AttributeReport<'_>) {
        self.file_attributes.report(to);
        to.changed(1, &self.linkdir_wcc);
    }
}

impl ReplyAttributes for nfs3::Readdirplus3ResOk<'_> {
    fn report(&self, to: &AttributeReport<'_>) {
        self.head.dir_attributes.report(to);
        for entry in &self.reply.entries.0 {
            to.other(entry.name_handle, entry.name_attributes);
        }
    }
}

/// Results that carry attributes of the call's first file only.
macro_rules! first_file_attributes {
    ($($results:ty: $field:ident),* $(,)?) => {
        $(impl ReplyAttributes for $results {
            fn report(&self, to: &AttributeReport<'_>) {
                self.$field.report(to);
            }
        })*
    };
}

first_file_attributes! {
    nfs3::Access3ResOk: obj_attributes,
    nfs3::Readlink3ResOk<'_>: symlink_attributes,
    nfs3::Read3Head: attributes,
    nfs3::Write3ResOk: file_wcc,
    nfs3::Commit3ResOk: file_wcc,
    nfs3::Fsstat3ResOk: obj_attributes,
    nfs3::Fsinfo3ResOk: obj_attributes,
    nfs3::Pathconf3ResOk: obj_attributes,
}

impl ReplyAttributes for nfs3::Readdir3ResOk<'_> {
    fn report(&self, to: &AttributeReport<'_>) {
        self.head.dir_attributes.report(to);
    }
}
