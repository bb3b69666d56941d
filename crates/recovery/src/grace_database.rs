//! The grace database of a cluster, as the object `grace` in RADOS.

use std::ffi::{CStr, CString};

use cluster::{ChangeRefused, Damage, Database, GRACE_OBJECT, Versioned};
use rados::{Guard, ObjectChange, ObjectError, ObjectNamespace, ObjectWatch, Reason};

/// The grace database. Each change is written under the condition that the object is as it was read, and
/// announced to the nodes that watch it.
#[derive(Debug, Clone)]
pub struct GraceDatabase {
    objects: ObjectNamespace,
}

/// Why the grace database can't be used.
#[derive(Debug, thiserror::Error)]
pub enum GraceError {
    /// RADOS.
    #[error(transparent)]
    Object(#[from] ObjectError),
    /// The object isn't a grace database.
    #[error("{address}: object {GRACE_OBJECT} is not a grace database: {damage}; move it away")]
    Damaged {
        /// The object's namespace.
        address: rados::ClusterAddress,
        /// What is wrong with it.
        damage: Damage,
    },
    /// The change isn't permitted.
    #[error(transparent)]
    Refused(#[from] ChangeRefused),
}

impl GraceError {
    /// Why the operation on the object failed, if it did.
    #[must_use]
    pub fn reason(&self) -> Option<Reason> {
        match self {
            Self::Object(error) => Some(error.reason),
            Self::Damaged { .. } | Self::Refused(_) => None,
        }
    }
}

impl GraceDatabase {
    /// The database in this namespace, which need not exist yet.
    #[must_use]
    pub const fn new(objects: ObjectNamespace) -> Self {
        Self { objects }
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`GraceError`]; the reason is [`Reason::Missing`] for a cluster without nodes.
    pub fn read(&self) -> Result<Versioned, GraceError> {
        let object = self.objects.read(GRACE_OBJECT)?;
        let damaged = |damage| GraceError::Damaged { address: self.objects.address().clone(), damage };
        let text = |(name, value): (Vec<u8>, Vec<u8>)| (String::from_utf8_lossy(&name).into_owned(), value);
        let (omap, attributes) = (object.omap.into_iter().map(text), object.attributes.into_iter().map(text));
        let database = Database::decode(&object.data, omap, attributes).map_err(damaged)?;
        Ok(Versioned { version: object.version, database })
    }

    /// Changes the database that had `version` and the content `old`, and wakes all nodes. Returns the new
    /// version.
    ///
    /// # Errors
    /// [`Reason::Changed`] if it isn't that of `version` any more; after [`Reason::TimedOut`] it may have
    /// been written, or be written later while the version is that.
    pub fn write(&self, version: u64, old: &Database, new: &Database) -> Result<u64, GraceError> {
        self.change(Guard::Version(version), old, new)
    }

    fn change(&self, guard: Guard, old: &Database, new: &Database) -> Result<u64, GraceError> {
        let difference = old.difference(new);
        let data = new.data();
        let names =
            |all: &[(String, Vec<u8>)]| all.iter().map(|(name, _)| c_string(name)).collect::<Vec<_>>();
        let set_names = names(&difference.set_attributes);
        let removed_names: Vec<_> = difference.removed_attributes.iter().map(|name| c_string(name)).collect();
        let removed: Vec<_> = difference.removed_keys.iter().map(String::as_bytes).collect();
        let set: Vec<_> =
            difference.set_keys.iter().map(|(key, value)| (key.as_bytes(), value.as_slice())).collect();
        let values = difference.set_attributes.iter().map(|(_, value)| value.as_slice());
        let set_attributes: Vec<(&CStr, &[u8])> =
            set_names.iter().map(CString::as_c_str).zip(values).collect();
        let remove_attributes: Vec<_> = removed_names.iter().map(CString::as_c_str).collect();
        let change = ObjectChange {
            // A new object needs its data.
            data: (guard == Guard::Absent || difference.data.is_some()).then_some(&data),
            clear: false,
            remove: &removed,
            set: &set,
            remove_attributes: &remove_attributes,
            set_attributes: &set_attributes,
        };
        let version = self.objects.change(GRACE_OBJECT, guard, change)?;
        // The change is made. Nodes that don't hear of it notice it when they next read.
        let _ = self.objects.notify(GRACE_OBJECT);
        Ok(version)
    }

    /// Makes a change, again if another process was quicker. A database that doesn't exist is created if
    /// `creates`. Returns the new content.
    ///
    /// # Errors
    /// [`GraceError`]; [`Reason::Changed`] if it is being changed again and again.
    pub fn update(
        &self,
        creates: bool,
        change: impl Fn(&Database) -> Result<Database, ChangeRefused>,
    ) -> Result<Database, GraceError> {
        /// How often the change is tried.
        const TRIES: u32 = 32;
        let mut last = None;
        for _ in 0..TRIES {
            let (guard, old) = match self.read() {
                Ok(Versioned { version, database }) => (Guard::Version(version), database),
                Err(error) if creates && error.reason() == Some(Reason::Missing) => {
                    (Guard::Absent, Database::default())
                }
                Err(error) => return Err(error),
            };
            let new = change(&old)?;
            match self.change(guard, &old, &new) {
                Ok(_) => return Ok(new),
                Err(error) if matches!(error.reason(), Some(Reason::Changed | Reason::Exists)) => {
                    last = Some(error);
                }
                Err(error) => return Err(error),
            }
        }
        Err(last.unwrap_or_else(|| self.objects.error(GRACE_OBJECT, "change", Reason::Changed).into()))
    }

    /// Watches it.
    ///
    /// # Errors
    /// [`Reason::Missing`] and others.
    pub fn watch(&self) -> Result<ObjectWatch, GraceError> {
        Ok(self.objects.watch(GRACE_OBJECT)?)
    }
}

/// The name of an extended attribute, which has no zero byte: nodes' names have no control characters.
fn c_string(name: &str) -> CString {
    CString::new(name.replace('\0', "")).unwrap_or_default()
}
