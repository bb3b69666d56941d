//! A namespace of a pool: its objects are read and changed here.

use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use sys::librados::{Completed, Entries, OperationError, RadosSession, ReadParts, WriteStep, load};

use crate::{ClusterAddress, Error, ObjectError, Reason};

/// The most bytes of an object's data that are read.
pub const MAX_DATA: usize = 4096;
/// The most omap entries that one operation reads; the cluster's own limit is
/// `osd_max_omap_entries_per_request`, 1024.
const PAGE: u64 = 1024;
/// The most omap entries of an object that are read: more than a server can have clients.
const MAX_ENTRIES: usize = 1 << 17;

/// How to connect.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the objects are.
    pub address: ClusterAddress,
    /// The Ceph user without `client.`.
    pub user: String,
    /// The Ceph configuration; `None` for librados's default, /etc/ceph/ceph.conf.
    pub configuration: Option<PathBuf>,
    /// The longest time that a call waits for the cluster.
    pub timeout: Duration,
}

/// An object as it was at one version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its version.
    pub version: u64,
    /// Its data, at most [`MAX_DATA`] bytes.
    pub data: Vec<u8>,
    /// Its omap, in the order of the keys.
    pub omap: Entries,
    /// Its extended attributes.
    pub attributes: Entries,
}

/// What must hold for a change to take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guard {
    /// Nothing. The object is created if it doesn't exist.
    None,
    /// The object doesn't exist.
    Absent,
    /// The object has this version.
    Version(u64),
}

/// A change of an object, whose parts take effect together: first the removals, then the rest.
#[derive(Debug, Clone, Copy, Default)]
pub struct ObjectChange<'a> {
    /// The object's new data; `None` leaves it.
    pub data: Option<&'a [u8]>,
    /// All omap keys are removed.
    pub clear: bool,
    /// These omap keys are removed.
    pub remove: &'a [&'a [u8]],
    /// These omap keys are set.
    pub set: &'a [(&'a [u8], &'a [u8])],
    /// These extended attributes are removed.
    pub remove_attributes: &'a [&'a CStr],
    /// These extended attributes are set.
    pub set_attributes: &'a [(&'a CStr, &'a [u8])],
}

/// A connection to a namespace of a pool. Clones share the connection.
#[derive(Debug, Clone)]
pub struct ObjectNamespace {
    pub(crate) session: RadosSession,
    pub(crate) address: ClusterAddress,
    pub(crate) timeout: Duration,
}

impl ObjectNamespace {
    /// Connects to the cluster and opens the pool.
    ///
    /// # Errors
    /// [`Error`]; [`Error::Unreachable`] when the time is up. librados goes on trying on another thread for
    /// about as long, and then gives up.
    pub fn connect(settings: &Settings) -> Result<Self, Error> {
        let functions = load()?;
        let Settings { address, user, configuration, timeout } = settings.clone();
        let name = |what, text: &[u8]| CString::new(text).map_err(|_| Error::Name { what });
        let c_user = name("the Ceph user", user.as_bytes())?;
        let c_configuration = configuration
            .as_ref()
            .map(|path| name("the path of the Ceph configuration", path.as_os_str().as_bytes()))
            .transpose()?;
        let c_pool = name("the pool", address.pool.as_bytes())?;
        let c_namespace = name("the namespace", address.namespace.as_bytes())?;
        let seconds = name("the time", timeout.as_secs().max(1).to_string().as_bytes())?;
        let (sender, receiver) = mpsc::sync_channel(1);
        // librados can't be interrupted while it connects.
        let connect = move || {
            let options: [(&CStr, &CStr); 5] = [
                (c"client_mount_timeout", &seconds),
                (c"rados_mon_op_timeout", &seconds),
                (c"rados_osd_op_timeout", &seconds),
                // Errors are returned, and this process's standard error isn't librados's.
                (c"log_to_stderr", c"false"),
                (c"err_to_stderr", c"false"),
            ];
            let configuration = c_configuration.as_deref();
            let _ = sender.send(RadosSession::connect(
                functions,
                &c_user,
                configuration,
                &options,
                &c_pool,
                &c_namespace,
            ));
        };
        thread::Builder::new().name("rados-connect".to_owned()).spawn(connect).map_err(Error::Thread)?;
        match receiver.recv_timeout(timeout) {
            Ok(Ok(session)) => Ok(Self { session, address, timeout }),
            Ok(Err((_, Errno::TIMEDOUT))) | Err(_) => Err(Error::Unreachable { address, user, timeout }),
            Ok(Err((step, reason))) => Err(Error::Connect { address, user, configuration, step, reason }),
        }
    }

    /// Where the objects are.
    #[must_use]
    pub fn address(&self) -> &ClusterAddress {
        &self.address
    }

    /// The global id that the cluster has given to this connection.
    #[must_use]
    pub fn instance_id(&self) -> u64 {
        self.session.instance_id()
    }

    /// The addresses of this connection as the cluster's blocklist names them.
    #[must_use]
    pub fn addresses(&self) -> Option<String> {
        self.session.addresses()
    }

    /// An error with an object of this namespace.
    pub fn error(&self, object: &str, action: &'static str, reason: impl Into<Reason>) -> ObjectError {
        let (address, object) = (self.address.clone(), object.to_owned());
        ObjectError { address, object, action, reason: reason.into() }
    }

    pub(crate) fn name(&self, object: &str) -> Result<CString, ObjectError> {
        let invalid = |_| self.error(object, "name", Reason::Invalid("a name with a zero byte"));
        CString::new(object).map_err(invalid)
    }

    /// All of an object. If the omap is too large for one operation, the operations are repeated
    /// until all of them see the same version.
    ///
    /// # Errors
    /// [`Reason::Missing`], [`Reason::TimedOut`] and others; [`Reason::Invalid`] for an object that is larger
    /// than it may be; [`Reason::Changed`] if it is being changed again and again.
    pub fn read(&self, object: &str) -> Result<Object, ObjectError> {
        /// How often a large object is read.
        const TRIES: u32 = 8;
        for _ in 0..TRIES {
            if let Some(read) = self.read_once(object)? {
                return Ok(read);
            }
        }
        Err(self.error(object, "read", Reason::Changed))
    }

    /// All of an object; `None` if it has changed between two operations.
    fn read_once(&self, object: &str) -> Result<Option<Object>, ObjectError> {
        let failed = |reason: Reason| self.error(object, "read", reason);
        let name = self.name(object)?;
        let part = |data, attributes, after: &CStr| -> Result<Completed, ObjectError> {
            let parts = ReadParts { data, omap: PAGE, omap_after: after, attributes };
            let pending = self.session.read(&name, parts);
            pending.and_then(|pending| pending.wait(self.timeout)).map_err(|error| failed(error.into()))
        };
        let mut first = part(MAX_DATA + 1, true, c"")?;
        if first.data.len() > MAX_DATA {
            return Err(failed(Reason::Invalid("more than 4096 bytes of data")));
        }
        let (mut omap, mut goes_on) = (std::mem::take(&mut first.omap), first.omap_goes_on);
        while goes_on {
            let Some((last, _)) = omap.last() else { break };
            let after = CString::new(&**last);
            let after = after.map_err(|_| failed(Reason::Invalid("an omap key with a zero byte")))?;
            let next = part(0, false, &after)?;
            if next.version != first.version {
                return Ok(None);
            }
            goes_on = next.omap_goes_on && !next.omap.is_empty();
            omap.extend(next.omap);
            if omap.len() > MAX_ENTRIES {
                return Err(failed(Reason::Invalid("more than 131072 omap keys")));
            }
        }
        let Completed { version, data, attributes, .. } = first;
        Ok(Some(Object { version, data, omap, attributes }))
    }

    /// Changes an object, or creates it, if `guard` holds; returns its new version.
    ///
    /// # Errors
    /// [`Reason::Exists`] if it isn't [`Guard::Absent`]; [`Reason::Changed`] or [`Reason::Missing`] if it
    /// hasn't the version of [`Guard::Version`]. Nothing is changed then. [`Reason::TimedOut`]: the change
    /// may take effect later.
    pub fn change(&self, object: &str, guard: Guard, change: ObjectChange<'_>) -> Result<u64, ObjectError> {
        let mut steps = vec![match guard {
            Guard::None => WriteStep::Create,
            Guard::Absent => WriteStep::CreateNew,
            Guard::Version(version) => WriteStep::AssertVersion(version),
        }];
        if change.clear {
            steps.push(WriteStep::ClearOmap);
        }
        if !change.remove.is_empty() {
            steps.push(WriteStep::RemoveOmap(change.remove));
        }
        if !change.set.is_empty() {
            steps.push(WriteStep::SetOmap(change.set));
        }
        if !change.remove_attributes.is_empty() {
            steps.push(WriteStep::RemoveAttributes(change.remove_attributes));
        }
        if !change.set_attributes.is_empty() {
            steps.push(WriteStep::SetAttributes(change.set_attributes));
        }
        if let Some(data) = change.data {
            steps.push(WriteStep::WriteFull(data));
        }
        self.write(object, "change", &steps)
    }

    /// Removes an object.
    ///
    /// # Errors
    /// [`Reason::Missing`] and others.
    pub fn remove(&self, object: &str) -> Result<(), ObjectError> {
        self.write(object, "remove", &[WriteStep::Remove]).map(drop)
    }

    fn write(&self, object: &str, action: &'static str, steps: &[WriteStep<'_>]) -> Result<u64, ObjectError> {
        let name = self.name(object)?;
        let written = self.session.write(&name, steps).and_then(|pending| pending.wait(self.timeout));
        written.map(|done| done.version).map_err(|error| self.error(object, action, error))
    }

    /// Wakes all who watch an object, without waiting for them.
    ///
    /// # Errors
    /// If it can't be started.
    pub fn notify(&self, object: &str) -> Result<(), ObjectError> {
        let name = self.name(object)?;
        let millis = u64::try_from(self.timeout.as_millis()).unwrap_or(u64::MAX);
        let started = self.session.notify(&name, millis).map(drop);
        started.map_err(|error: OperationError| self.error(object, "notify those who watch", error))
    }
}
