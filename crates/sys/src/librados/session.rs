//! A connection to one namespace of a RADOS pool, and the operations on its objects.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::functions::{ClusterPointer, Functions, IoPointer};
use super::operation::{OperationError, Output, Pending, RadosOperation};
use super::watch::WatchContext;

/// How long dropping a connection waits until it is shut down.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(1);
/// The time between two looks at operations in flight.
const LOOK_AGAIN: Duration = Duration::from_millis(2);
/// `LIBRADOS_CREATE_EXCLUSIVE`.
const CREATE_EXCLUSIVE: c_int = 1;
/// `LIBRADOS_CREATE_IDEMPOTENT`.
const CREATE_IDEMPOTENT: c_int = 0;

/// A step of a write operation. All steps of an operation take effect together, or none does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriteStep<'a> {
    /// The operation fails with `ERANGE` or `EOVERFLOW` unless the object has this version.
    AssertVersion(u64),
    /// Creates the object; the operation fails with `EXIST` if it exists.
    CreateNew,
    /// Creates the object if it doesn't exist.
    Create,
    /// Replaces the object's data.
    WriteFull(&'a [u8]),
    /// Sets keys of the omap.
    SetOmap(&'a [(&'a [u8], &'a [u8])]),
    /// Removes keys of the omap.
    RemoveOmap(&'a [&'a [u8]]),
    /// Removes all keys of the omap.
    ClearOmap,
    /// Sets extended attributes.
    SetAttributes(&'a [(&'a CStr, &'a [u8])]),
    /// Removes extended attributes.
    RemoveAttributes(&'a [&'a CStr]),
    /// Removes the object; the operation fails with `NOENT` if it doesn't exist.
    Remove,
}

/// The parts of an object that are read in one operation.
#[derive(Debug, Clone, Copy, Default)]
pub struct ReadParts<'a> {
    /// At most so many bytes of data, from the start.
    pub data: usize,
    /// At most so many entries of the omap. librados may return fewer.
    pub omap: u64,
    /// The omap's entries after this key; empty for all.
    pub omap_after: &'a CStr,
    /// All extended attributes.
    pub attributes: bool,
}

/// A connected cluster handle and the I/O context for a pool and namespace.
pub(super) struct Connected {
    pub functions: &'static Functions,
    cluster: ClusterPointer,
    pub io: IoPointer,
    /// The number of operations that librados isn't done with.
    pub in_flight: Arc<AtomicUsize>,
    /// The contexts of all watches, to which librados has pointers until the shutdown.
    pub watches: Mutex<Vec<Arc<WatchContext>>>,
}

// SAFETY: librados's functions may be called on any thread.
unsafe impl Send for Connected {}
// SAFETY: as above.
unsafe impl Sync for Connected {}

/// A connection to one namespace of a pool. Dropping the last clone closes it, and waits for that for a
/// second at most.
#[derive(Clone)]
pub struct RadosSession {
    pub(super) connected: Arc<Connected>,
}

impl std::fmt::Debug for RadosSession {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RadosSession").finish_non_exhaustive()
    }
}

/// A cluster handle that is shut down unless it is taken.
struct ClusterHandle(&'static Functions, ClusterPointer);

impl Drop for ClusterHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is valid, and used no more.
        unsafe { (self.0.rados_shutdown)(self.1) };
    }
}

impl RadosSession {
    /// Connects as the Ceph user `user` (`client.` is prepended) and opens `pool`, in which objects are those
    /// of `namespace`. Without `configuration` librados reads /etc/ceph/ceph.conf. `options` are set after
    /// that. Blocks until the cluster answers, bounded by the option `client_mount_timeout`.
    ///
    /// # Errors
    /// The step that failed, and why: `NOENT` of "read the configuration" if there is no file; of "connect"
    /// if there is no key; of "open the pool" if there is no pool.
    pub fn connect(
        functions: &'static Functions,
        user: &CStr,
        configuration: Option<&CStr>,
        options: &[(&CStr, &CStr)],
        pool: &CStr,
        namespace: &CStr,
    ) -> Result<Self, (&'static str, Errno)> {
        let failed = |step| move |error| (step, error);
        let mut cluster = null_mut();
        // SAFETY: the pointers are valid for the call, here and below. `handle` keeps the cluster handle.
        let created = unsafe { (functions.rados_create)(&raw mut cluster, user.as_ptr()) };
        super::check(created).map_err(failed("make a handle"))?;
        let handle = ClusterHandle(functions, cluster);
        let configuration = configuration.map_or(null(), CStr::as_ptr);
        // SAFETY: as above.
        let read = unsafe { (functions.rados_conf_read_file)(cluster, configuration) };
        super::check(read).map_err(failed("read the configuration"))?;
        for (name, value) in options {
            // SAFETY: as above.
            let set = unsafe { (functions.rados_conf_set)(cluster, name.as_ptr(), value.as_ptr()) };
            super::check(set).map_err(failed("set an option"))?;
        }
        // SAFETY: as above.
        super::check(unsafe { (functions.rados_connect)(cluster) }).map_err(failed("connect"))?;
        let mut io = null_mut();
        // SAFETY: as above.
        let opened = unsafe { (functions.rados_ioctx_create)(cluster, pool.as_ptr(), &raw mut io) };
        super::check(opened).map_err(failed("open the pool"))?;
        // SAFETY: as above.
        unsafe { (functions.rados_ioctx_set_namespace)(io, namespace.as_ptr()) };
        std::mem::forget(handle);
        let connected =
            Connected { functions, cluster, io, in_flight: Arc::default(), watches: Mutex::default() };
        Ok(Self { connected: Arc::new(connected) })
    }

    /// The global id that the monitors have given to this connection.
    #[must_use]
    pub fn instance_id(&self) -> u64 {
        let connected = &self.connected;
        // SAFETY: the cluster handle is connected.
        unsafe { (connected.functions.rados_get_instance_id)(connected.cluster) }
    }

    /// The addresses of this connection as the cluster's blocklist names them; `None` if librados has none.
    #[must_use]
    pub fn addresses(&self) -> Option<String> {
        let connected = &self.connected;
        let mut addresses: *mut c_char = null_mut();
        // SAFETY: the cluster handle is connected, and `addresses` outlives the call.
        let found = unsafe { (connected.functions.rados_getaddrs)(connected.cluster, &raw mut addresses) };
        if found < 0 || addresses.is_null() {
            return None;
        }
        // SAFETY: librados has allocated a string, which is released here.
        unsafe {
            let text = CStr::from_ptr(addresses).to_string_lossy().into_owned();
            (connected.functions.rados_buffer_free)(addresses);
            Some(text)
        }
    }

    /// Reads parts of an object at one version.
    ///
    /// # Errors
    /// `Failed` if it can't be started.
    pub fn read(&self, object: &CStr, parts: ReadParts<'_>) -> Result<Pending, OperationError> {
        let connected = &self.connected;
        let functions = connected.functions;
        RadosOperation::start(connected, parts.data, |completion, output: &mut Output| {
            // SAFETY: librados writes to the output until the operation is completed, and copies the object's
            // name and the key. The caller releases the read operation together with the output.
            unsafe {
                let operation = (functions.rados_create_read_op)();
                if parts.data > 0 {
                    let buffer = output.data.as_mut_ptr().cast();
                    let (length, result) = (&raw mut output.data_length, &raw mut output.data_result);
                    (functions.rados_read_op_read)(operation, 0, parts.data, buffer, length, result);
                }
                if parts.omap > 0 {
                    (functions.rados_read_op_omap_get_vals2)(
                        operation,
                        parts.omap_after.as_ptr(),
                        c"".as_ptr(),
                        parts.omap,
                        &raw mut output.omap,
                        &raw mut output.omap_goes_on,
                        &raw mut output.omap_result,
                    );
                }
                if parts.attributes {
                    let result = &raw mut output.attributes_result;
                    (functions.rados_read_op_getxattrs)(operation, &raw mut output.attributes, result);
                }
                let started = (functions.rados_aio_read_op_operate)(
                    operation,
                    connected.io,
                    completion,
                    object.as_ptr(),
                    0,
                );
                (started, operation)
            }
        })
    }

    /// Changes an object. The result has its new version.
    ///
    /// # Errors
    /// `Failed` if it can't be started.
    pub fn write(&self, object: &CStr, steps: &[WriteStep<'_>]) -> Result<Pending, OperationError> {
        let connected = &self.connected;
        let functions = connected.functions;
        RadosOperation::start(connected, 0, |completion, _| {
            // SAFETY: librados copies what the steps and the name point to, and takes the operation's content
            // when it starts, so that it is released here.
            unsafe {
                let operation = (functions.rados_create_write_op)();
                for step in steps {
                    add_step(functions, operation, step);
                }
                let started = (functions.rados_aio_write_op_operate)(
                    operation,
                    connected.io,
                    completion,
                    object.as_ptr(),
                    null_mut(),
                    0,
                );
                (functions.rados_release_write_op)(operation);
                (started, null_mut())
            }
        })
    }

    /// Notifies all who watch an object. It is completed when all have answered, or after `timeout_ms`
    /// milliseconds, and then fails with `TIMEDOUT`.
    ///
    /// # Errors
    /// `Failed` if it can't be started.
    pub fn notify(&self, object: &CStr, timeout_ms: u64) -> Result<Pending, OperationError> {
        let connected = &self.connected;
        RadosOperation::start(connected, 0, |completion, output| {
            // SAFETY: librados writes to the output until the operation is completed, and copies the name.
            let started = unsafe {
                (connected.functions.rados_aio_notify)(
                    connected.io,
                    object.as_ptr(),
                    completion,
                    null(),
                    0,
                    timeout_ms,
                    &raw mut output.answers,
                    &raw mut output.answers_length,
                )
            };
            (started, null_mut())
        })
    }
}

/// Adds a step to a write operation.
///
/// # Safety
/// `operation` is a write operation that hasn't been released.
unsafe fn add_step(
    functions: &Functions,
    operation: super::functions::OperationPointer,
    step: &WriteStep<'_>,
) {
    let pointers = |slices: &mut dyn Iterator<Item = &[u8]>| -> (Vec<*const c_char>, Vec<usize>) {
        slices.map(|bytes| (bytes.as_ptr().cast::<c_char>(), bytes.len())).unzip()
    };
    // SAFETY: as the caller promises; librados copies what the arguments point to.
    unsafe {
        match *step {
            WriteStep::AssertVersion(version) => {
                (functions.rados_write_op_assert_version)(operation, version);
            }
            WriteStep::CreateNew => {
                (functions.rados_write_op_create)(operation, CREATE_EXCLUSIVE, null());
            }
            WriteStep::Create => {
                (functions.rados_write_op_create)(operation, CREATE_IDEMPOTENT, null());
            }
            WriteStep::WriteFull(bytes) => {
                (functions.rados_write_op_write_full)(operation, bytes.as_ptr().cast(), bytes.len());
            }
            WriteStep::SetOmap(entries) => {
                let (keys, key_lengths) = pointers(&mut entries.iter().map(|(key, _)| *key));
                let (values, value_lengths) = pointers(&mut entries.iter().map(|(_, value)| *value));
                (functions.rados_write_op_omap_set2)(
                    operation,
                    keys.as_ptr(),
                    values.as_ptr(),
                    key_lengths.as_ptr(),
                    value_lengths.as_ptr(),
                    entries.len(),
                );
            }
            WriteStep::RemoveOmap(keys) => {
                let (keys, lengths) = pointers(&mut keys.iter().copied());
                (functions.rados_write_op_omap_rm_keys2)(
                    operation,
                    keys.as_ptr(),
                    lengths.as_ptr(),
                    keys.len(),
                );
            }
            WriteStep::ClearOmap => (functions.rados_write_op_omap_clear)(operation),
            WriteStep::SetAttributes(attributes) => {
                for (name, value) in attributes {
                    let (start, length) = (value.as_ptr().cast(), value.len());
                    (functions.rados_write_op_setxattr)(operation, name.as_ptr(), start, length);
                }
            }
            WriteStep::RemoveAttributes(names) => {
                for name in names {
                    (functions.rados_write_op_rmxattr)(operation, name.as_ptr());
                }
            }
            WriteStep::Remove => (functions.rados_write_op_remove)(operation),
        }
    }
}

/// The pointers of a connection that is no longer used.
struct Closing {
    functions: &'static Functions,
    cluster: ClusterPointer,
    io: IoPointer,
    in_flight: Arc<AtomicUsize>,
    watches: Vec<Arc<WatchContext>>,
}

// SAFETY: librados's functions may be called on any thread.
unsafe impl Send for Closing {}

impl Closing {
    /// Shuts the connection down, and blocks while librados waits for its threads. A connection with
    /// operations that aren't answered stays open until the process ends: librados may crash otherwise.
    fn close(self) {
        let Self { functions, cluster, io, in_flight, watches } = self;
        let deadline = Instant::now() + SHUTDOWN_TIMEOUT;
        while in_flight.load(Ordering::Acquire) > 0 {
            if Instant::now() >= deadline {
                std::mem::forget(watches);
                return;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        // A notification that arrives from now on isn't answered.
        watches.iter().for_each(|watch| watch.end());
        // SAFETY: no operation uses them any more, and no watch.
        unsafe {
            (functions.rados_ioctx_destroy)(io);
            (functions.rados_shutdown)(cluster);
        }
        drop(watches);
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        let watches = std::mem::take(&mut *self.watches.lock().unwrap_or_else(PoisonError::into_inner));
        let closing = Closing {
            functions: self.functions,
            cluster: self.cluster,
            io: self.io,
            in_flight: Arc::clone(&self.in_flight),
            watches,
        };
        // A shutdown may wait for a cluster that doesn't answer. Without a thread the connection stays open
        // until the process ends.
        let (done, wait) = std::sync::mpsc::sync_channel(1);
        let close = move || {
            closing.close();
            let _ = done.send(());
        };
        if std::thread::Builder::new().name("rados-shutdown".to_owned()).spawn(close).is_ok() {
            let _ = wait.recv_timeout(SHUTDOWN_TIMEOUT);
        }
    }
}
