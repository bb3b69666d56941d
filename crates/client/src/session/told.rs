//! Which attributes a procedure's results tell, of which of the files that the call was about.

use std::time::Instant;

use proto::nfs3::{self, Fattr3, WccData};

use crate::convert;
use crate::observer::{Before, Observer, Seen};
use crate::types::Handle;

/// Where what is told goes.
pub(crate) struct Listener<'a> {
    pub(super) observer: &'a dyn Observer,
    /// The files that the call names, in the order of its arguments.
    pub(super) about: &'a [&'a Handle],
    pub(super) asked: Instant,
}

impl Listener<'_> {
    fn tell(&self, file: &Handle, before: Option<Before>, attributes: Option<Fattr3>) {
        let seen =
            Seen { before, attributes: attributes.as_ref().map(convert::attributes), asked: self.asked };
        self.observer.seen(file, &seen);
    }

    fn nth(&self, nth: usize, before: Option<Before>, attributes: Option<Fattr3>) {
        if let Some(file) = self.about.get(nth) {
            self.tell(file, before, attributes);
        }
    }

    fn changed(&self, nth: usize, wcc: &WccData) {
        self.nth(nth, wcc.before.as_ref().map(Into::into), wcc.after);
    }

    fn other(&self, handle: Option<nfs3::NfsFh3<'_>>, attributes: Option<Fattr3>) {
        if let (Some(handle), Some(_)) = (handle.and_then(|handle| Handle::new(handle.0)), attributes) {
            self.tell(&handle, None, attributes);
        }
    }
}

/// Results, or what comes with a failure.
pub(crate) trait Tells {
    fn tells(&self, to: &Listener<'_>);
}

impl Tells for () {
    fn tells(&self, _: &Listener<'_>) {}
}

impl Tells for Fattr3 {
    fn tells(&self, to: &Listener<'_>) {
        to.nth(0, None, Some(*self));
    }
}

impl Tells for nfs3::PostOpAttr {
    fn tells(&self, to: &Listener<'_>) {
        to.nth(0, None, *self);
    }
}

impl Tells for WccData {
    fn tells(&self, to: &Listener<'_>) {
        to.changed(0, self);
    }
}

impl Tells for nfs3::Lookup3ResOk<'_> {
    fn tells(&self, to: &Listener<'_>) {
        self.dir_attributes.tells(to);
        to.other(Some(self.object), self.obj_attributes);
    }
}

impl Tells for nfs3::NewObject3<'_> {
    fn tells(&self, to: &Listener<'_>) {
        self.dir_wcc.tells(to);
        to.other(self.obj, self.obj_attributes);
    }
}

impl Tells for nfs3::Rename3Body {
    fn tells(&self, to: &Listener<'_>) {
        to.changed(0, &self.fromdir_wcc);
        to.changed(1, &self.todir_wcc);
    }
}

impl Tells for nfs3::Link3Body {
    fn tells(&self, to: &Listener<'_>) {
        self.file_attributes.tells(to);
        to.changed(1, &self.linkdir_wcc);
    }
}

impl Tells for nfs3::Readdirplus3ResOk<'_> {
    fn tells(&self, to: &Listener<'_>) {
        self.head.dir_attributes.tells(to);
        for entry in &self.reply.entries.0 {
            to.other(entry.name_handle, entry.name_attributes);
        }
    }
}

/// Results whose only attributes are those of the first file.
macro_rules! tell_of_the_first {
    ($($results:ty: $field:ident),* $(,)?) => {
        $(impl Tells for $results {
            fn tells(&self, to: &Listener<'_>) {
                self.$field.tells(to);
            }
        })*
    };
}

tell_of_the_first! {
    nfs3::Access3ResOk: obj_attributes,
    nfs3::Readlink3ResOk<'_>: symlink_attributes,
    nfs3::Read3Head: attributes,
    nfs3::Write3ResOk: file_wcc,
    nfs3::Commit3ResOk: file_wcc,
    nfs3::Fsstat3ResOk: obj_attributes,
    nfs3::Fsinfo3ResOk: obj_attributes,
    nfs3::Pathconf3ResOk: obj_attributes,
}

impl Tells for nfs3::Readdir3ResOk<'_> {
    fn tells(&self, to: &Listener<'_>) {
        self.head.dir_attributes.tells(to);
    }
}
