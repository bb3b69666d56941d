//! An operation that librados executes, and the memory that it writes the result to.
//!
//! Invariant: librados has one reference to the operation, but none to the connection, so that a callback
//! never shuts it down. It writes to the output until it has called the callback, and a caller reads the
//! output after that.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use rustix::io::Errno;

use super::functions::{AttributesPointer, CompletionPointer, Functions, OmapPointer, OperationPointer};
use super::session::Connected;

/// Keys and values of an object's omap, in the order of the keys; or names and values of its extended
/// attributes.
pub type Entries = Vec<(Vec<u8>, Vec<u8>)>;

/// What librados writes to.
pub(super) struct Output {
    /// The buffer for the object's data, allocated before the operation starts.
    pub data: Vec<u8>,
    pub data_length: usize,
    pub data_result: c_int,
    pub omap: OmapPointer,
    pub omap_goes_on: c_uchar,
    pub omap_result: c_int,
    pub attributes: AttributesPointer,
    pub attributes_result: c_int,
    /// The handle of a new watch.
    pub watch: u64,
    /// The answers to a notification.
    pub answers: *mut c_char,
    pub answers_length: usize,
}

/// An operation that was started.
pub(super) struct RadosOperation {
    functions: &'static Functions,
    /// The number of the connection's operations that librados isn't done with.
    in_flight: Arc<AtomicUsize>,
    /// The return value and the object's version, once librados is done.
    result: Mutex<Option<(c_int, u64)>>,
    done: Condvar,
    output: UnsafeCell<Output>,
    /// The read operation, released together with the output that it refers to.
    read: AtomicPtr<c_void>,
    completion: AtomicPtr<c_void>,
}

// SAFETY: the output is written by librados before `result` is set, and read afterwards. The pointers are
// librados's, whose functions may be called on any thread.
unsafe impl Send for RadosOperation {}
// SAFETY: as above.
unsafe impl Sync for RadosOperation {}

/// The result of an operation.
#[derive(Debug, Default)]
pub struct Completed {
    /// The object's version after the operation.
    pub version: u64,
    /// The data that was read.
    pub data: Vec<u8>,
    /// The part of the omap that was read.
    pub omap: Entries,
    /// The object has more omap keys than were read.
    pub omap_goes_on: bool,
    /// The extended attributes that were read.
    pub attributes: Entries,
    /// The handle of a new watch.
    pub(super) watch: u64,
}

/// Why there is no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperationError {
    /// The cluster hasn't answered in time. A change may take effect later.
    TimedOut,
    /// The cluster or librados has refused, and nothing is changed.
    Failed(Errno),
}

/// An operation in progress. Dropping it leaves the operation to librados, which ends it with the connection.
#[must_use]
pub struct Pending {
    operation: Arc<RadosOperation>,
    connected: Arc<Connected>,
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending").finish_non_exhaustive()
    }
}

impl RadosOperation {
    /// Creates an operation with a buffer for `data` bytes and starts it. `start` is given the completion and
    /// the output, whose address doesn't change; it returns librados's return value, and the read operation
    /// if there is one.
    pub fn start(
        connected: &Arc<Connected>,
        data: usize,
        start: impl FnOnce(CompletionPointer, &mut Output) -> (c_int, OperationPointer),
    ) -> Result<Pending, OperationError> {
        let functions = connected.functions;
        let output = Output {
            data: vec![0; data],
            data_length: 0,
            data_result: 0,
            omap: null_mut(),
            omap_goes_on: 0,
            omap_result: 0,
            attributes: null_mut(),
            attributes_result: 0,
            watch: 0,
            answers: null_mut(),
            answers_length: 0,
        };
        let operation = Arc::new(Self {
            functions,
            in_flight: Arc::clone(&connected.in_flight),
            result: Mutex::new(None),
            done: Condvar::new(),
            output: UnsafeCell::new(output),
            read: AtomicPtr::new(null_mut()),
            completion: AtomicPtr::new(null_mut()),
        });
        let callback = Arc::into_raw(Arc::clone(&operation));
        let mut completion = null_mut();
        // SAFETY: `completion` outlives the call. `callback` is a reference that [`complete`] takes over.
        let created = unsafe {
            (functions.rados_aio_create_completion2)(
                callback.cast_mut().cast(),
                complete,
                &raw mut completion,
            )
        };
        let started = super::check(created).and_then(|_| {
            operation.completion.store(completion, Ordering::Release);
            operation.in_flight.fetch_add(1, Ordering::AcqRel);
            // SAFETY: no other thread has the output before the operation starts, and librados is given
            // pointers to it only.
            let (started, read) = start(completion, unsafe { &mut *operation.output.get() });
            operation.read.store(read, Ordering::Release);
            super::check(started).inspect_err(|_| {
                operation.in_flight.fetch_sub(1, Ordering::AcqRel);
            })
        });
        if let Err(error) = started {
            // SAFETY: what wasn't started is not called back, so the callback's reference is this one's.
            drop(unsafe { Arc::from_raw(callback) });
            return Err(OperationError::Failed(error));
        }
        Ok(Pending { operation, connected: Arc::clone(connected) })
    }

    /// Copies the output.
    fn completed(&self, version: u64) -> Result<Completed, Errno> {
        // SAFETY: the result is set, so librados has written everything. [`Pending::wait`] consumes the only
        // `Pending`, and the callback doesn't use the output.
        let output = unsafe { &mut *self.output.get() };
        super::check(output.data_result)?;
        super::check(output.omap_result)?;
        super::check(output.attributes_result)?;
        let mut data = std::mem::take(&mut output.data);
        data.truncate(output.data_length);
        let functions = self.functions;
        let omap = entries(output.omap, |iterator, entry| {
            let IteratorEntry { name, value, name_length, value_length } = entry;
            // SAFETY: the iterator is the output of a completed operation, and the entry's fields are valid
            // for the call.
            unsafe { (functions.rados_omap_get_next2)(iterator, name, value, name_length, value_length) }
        })?;
        let attributes = entries(output.attributes, |iterator, entry| {
            let IteratorEntry { name, value, name_length, value_length } = entry;
            let (name, value) = (std::ptr::from_mut(name), std::ptr::from_mut(value));
            // SAFETY: as above. librados returns pointers to what it owns, and the name as a string.
            unsafe {
                let found =
                    (functions.rados_getxattrs_next)(iterator, name.cast(), value.cast(), value_length);
                if found >= 0 && !(*name).is_null() {
                    *name_length = CStr::from_ptr(*name).count_bytes();
                }
                found
            }
        })?;
        let omap_goes_on = output.omap_goes_on != 0;
        Ok(Completed { version, data, omap, omap_goes_on, attributes, watch: output.watch })
    }
}

/// Where an iterator of librados stores an entry.
struct IteratorEntry {
    name: *mut c_char,
    value: *mut c_char,
    name_length: usize,
    value_length: usize,
}

/// Copies all entries of an iterator, if there is one. `next` stores the next entry; the end has no name.
fn entries(
    iterator: *mut c_void,
    next: impl Fn(*mut c_void, &mut IteratorEntry) -> c_int,
) -> Result<Entries, Errno> {
    let mut entries = Entries::new();
    if iterator.is_null() {
        return Ok(entries);
    }
    loop {
        let mut entry =
            IteratorEntry { name: null_mut(), value: null_mut(), name_length: 0, value_length: 0 };
        super::check(next(iterator, &mut entry))?;
        if entry.name.is_null() {
            return Ok(entries);
        }
        // SAFETY: name and value have these lengths, until the iterator is released.
        entries
            .push(unsafe { (bytes(entry.name, entry.name_length), bytes(entry.value, entry.value_length)) });
    }
}

/// Copies bytes of librados.
///
/// # Safety
/// `start` points to `length` bytes, or is null.
unsafe fn bytes(start: *const c_char, length: usize) -> Vec<u8> {
    if start.is_null() {
        return Vec::new();
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(start.cast::<u8>(), length) }.to_vec()
}

/// librados's callback: the operation is completed.
///
/// # Safety
/// librados calls it once, with the reference of [`RadosOperation::start`].
unsafe extern "C" fn complete(completion: CompletionPointer, operation: *mut c_void) {
    // SAFETY: as librados promises.
    let operation = unsafe { Arc::from_raw(operation.cast_const().cast::<RadosOperation>()) };
    let functions = operation.functions;
    // SAFETY: the completion is valid during its callback.
    let result = unsafe {
        ((functions.rados_aio_get_return_value)(completion), (functions.rados_aio_get_version)(completion))
    };
    *operation.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    operation.done.notify_all();
    operation.in_flight.fetch_sub(1, Ordering::AcqRel);
}

impl Drop for RadosOperation {
    fn drop(&mut self) {
        let functions = self.functions;
        let output = self.output.get_mut();
        // SAFETY: librados is done with all of them, and each is released once.
        unsafe {
            if !output.omap.is_null() {
                (functions.rados_omap_get_end)(output.omap);
            }
            if !output.attributes.is_null() {
                (functions.rados_getxattrs_end)(output.attributes);
            }
            if !output.answers.is_null() {
                (functions.rados_buffer_free)(output.answers);
            }
            let read = *self.read.get_mut();
            if !read.is_null() {
                (functions.rados_release_read_op)(read);
            }
            let completion = *self.completion.get_mut();
            if !completion.is_null() {
                (functions.rados_aio_release)(completion);
            }
        }
    }
}

impl Pending {
    /// Waits for the result. When the time is up the operation is cancelled as far as it can be, and left to
    /// librados.
    ///
    /// # Errors
    /// [`OperationError`].
    pub fn wait(self, timeout: Duration) -> Result<Completed, OperationError> {
        let operation = &self.operation;
        let result = operation.result.lock().unwrap_or_else(PoisonError::into_inner);
        let (result, _) = operation
            .done
            .wait_timeout_while(result, timeout, |result| result.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        let Some((returned, version)) = *result else {
            drop(result);
            let completion = operation.completion.load(Ordering::Acquire);
            let connected = &self.connected;
            // SAFETY: the operation holds the completion, and the connection is open. Cancelling what is
            // completed meanwhile does nothing.
            unsafe { (connected.functions.rados_aio_cancel)(connected.io, completion) };
            return Err(OperationError::TimedOut);
        };
        drop(result);
        super::check(returned).map_err(OperationError::Failed)?;
        operation.completed(version).map_err(OperationError::Failed)
    }
}
