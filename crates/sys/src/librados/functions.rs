//! The functions of librados that are used, found at run time with dlopen(3).
//!
//! The library is loaded once and never unloaded: its threads run its code until the process ends.

use std::ffi::{CStr, c_char, c_int, c_uchar, c_void};
use std::sync::OnceLock;

/// `rados_t`.
pub(super) type ClusterPointer = *mut c_void;
/// `rados_ioctx_t`.
pub(super) type IoPointer = *mut c_void;
/// `rados_completion_t`.
pub(super) type CompletionPointer = *mut c_void;
/// `rados_read_op_t` and `rados_write_op_t`.
pub(super) type OperationPointer = *mut c_void;
/// `rados_omap_iter_t`.
pub(super) type OmapPointer = *mut c_void;
/// `rados_xattrs_iter_t`.
pub(super) type AttributesPointer = *mut c_void;
/// `rados_callback_t`.
pub(super) type Completed = unsafe extern "C" fn(CompletionPointer, *mut c_void);
/// `rados_watchcb2_t`: context, notification, watch, notifier, data and its length.
pub(super) type Notified = unsafe extern "C" fn(*mut c_void, u64, u64, u64, *mut c_void, usize);
/// `rados_watcherrcb_t`: context, watch, error.
pub(super) type Broken = unsafe extern "C" fn(*mut c_void, u64, c_int);

/// The library's name with its ABI version, which has been 2 since 2008.
const LIBRARY: &CStr = c"librados.so.2";

/// Declares [`Functions`] and its lookup. Each entry has librados's signature, from `rados/librados.h` of
/// Ceph 15 (Octopus), the first release with all of them.
macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The addresses of librados's functions.
        #[derive(Debug)]
        pub struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn find(library: *mut c_void) -> Result<Self, LoadError> {
                Ok(Self {
                    $($name: {
                        let name = concat!(stringify!($name), "\0");
                        // SAFETY: `name` ends with a zero byte, and the library is never unloaded.
                        let found = unsafe { libc::dlsym(library, name.as_ptr().cast()) };
                        if found.is_null() {
                            return Err(LoadError::Outdated { function: stringify!($name) });
                        }
                        // SAFETY: librados declares the function with this signature.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(found)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    rados_create: fn(*mut ClusterPointer, *const c_char) -> c_int;
    rados_conf_read_file: fn(ClusterPointer, *const c_char) -> c_int;
    rados_conf_set: fn(ClusterPointer, *const c_char, *const c_char) -> c_int;
    rados_connect: fn(ClusterPointer) -> c_int;
    rados_shutdown: fn(ClusterPointer);
    rados_get_instance_id: fn(ClusterPointer) -> u64;
    rados_getaddrs: fn(ClusterPointer, *mut *mut c_char) -> c_int;
    rados_buffer_free: fn(*mut c_char);
    rados_ioctx_create: fn(ClusterPointer, *const c_char, *mut IoPointer) -> c_int;
    rados_ioctx_set_namespace: fn(IoPointer, *const c_char);
    rados_ioctx_destroy: fn(IoPointer);
    rados_aio_create_completion2: fn(*mut c_void, Completed, *mut CompletionPointer) -> c_int;
    rados_aio_get_return_value: fn(CompletionPointer) -> c_int;
    rados_aio_get_version: fn(CompletionPointer) -> u64;
    rados_aio_cancel: fn(IoPointer, CompletionPointer) -> c_int;
    rados_aio_release: fn(CompletionPointer);
    rados_create_read_op: fn() -> OperationPointer;
    rados_release_read_op: fn(OperationPointer);
    rados_read_op_read: fn(OperationPointer, u64, usize, *mut c_char, *mut usize, *mut c_int);
    rados_read_op_omap_get_vals2: fn(
        OperationPointer, *const c_char, *const c_char, u64, *mut OmapPointer, *mut c_uchar, *mut c_int
    );
    rados_aio_read_op_operate: fn(
        OperationPointer, IoPointer, CompletionPointer, *const c_char, c_int
    ) -> c_int;
    rados_omap_get_next2: fn(
        OmapPointer, *mut *mut c_char, *mut *mut c_char, *mut usize, *mut usize
    ) -> c_int;
    rados_omap_get_end: fn(OmapPointer);
    rados_read_op_getxattrs: fn(OperationPointer, *mut AttributesPointer, *mut c_int);
    rados_getxattrs_next: fn(
        AttributesPointer, *mut *const c_char, *mut *const c_char, *mut usize
    ) -> c_int;
    rados_getxattrs_end: fn(AttributesPointer);
    rados_create_write_op: fn() -> OperationPointer;
    rados_release_write_op: fn(OperationPointer);
    rados_write_op_assert_version: fn(OperationPointer, u64);
    rados_write_op_create: fn(OperationPointer, c_int, *const c_char);
    rados_write_op_write_full: fn(OperationPointer, *const c_char, usize);
    rados_write_op_remove: fn(OperationPointer);
    rados_write_op_omap_clear: fn(OperationPointer);
    rados_write_op_omap_set2: fn(
        OperationPointer, *const *const c_char, *const *const c_char, *const usize, *const usize, usize
    );
    rados_write_op_omap_rm_keys2: fn(OperationPointer, *const *const c_char, *const usize, usize);
    rados_write_op_setxattr: fn(OperationPointer, *const c_char, *const c_char, usize);
    rados_write_op_rmxattr: fn(OperationPointer, *const c_char);
    rados_aio_write_op_operate: fn(
        OperationPointer, IoPointer, CompletionPointer, *const c_char, *mut libc::time_t, c_int
    ) -> c_int;
    rados_aio_watch2: fn(
        IoPointer, *const c_char, CompletionPointer, *mut u64, Notified, Broken, u32, *mut c_void
    ) -> c_int;
    rados_aio_unwatch: fn(IoPointer, u64, CompletionPointer) -> c_int;
    rados_watch_check: fn(IoPointer, u64) -> c_int;
    rados_notify_ack: fn(IoPointer, *const c_char, u64, u64, *const c_char, c_int) -> c_int;
    rados_aio_notify: fn(
        IoPointer, *const c_char, CompletionPointer, *const c_char, c_int, u64, *mut *mut c_char, *mut usize
    ) -> c_int;
}

/// Why librados can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadError {
    /// dlopen(3) can't load it, with its explanation.
    Missing {
        /// The explanation.
        reason: String,
    },
    /// It is older than Ceph 15 (Octopus).
    Outdated {
        /// The first function that it lacks.
        function: &'static str,
    },
}

static FUNCTIONS: OnceLock<Result<Functions, LoadError>> = OnceLock::new();

/// Ends the process without its exit handlers if librados is loaded, and else does nothing. The handlers
/// destroy what threads of librados use that are still running: those of connections that were abandoned.
pub fn exit_with_librados(code: u8) {
    if let Some(Ok(_)) = FUNCTIONS.get() {
        // SAFETY: `_exit` has no preconditions.
        unsafe { libc::_exit(code.into()) }
    }
}

/// Loads librados if that hasn't been done yet.
///
/// # Errors
/// [`LoadError`], the same for each call.
pub fn load() -> Result<&'static Functions, LoadError> {
    FUNCTIONS.get_or_init(open).as_ref().map_err(Clone::clone)
}

fn open() -> Result<Functions, LoadError> {
    // SAFETY: the name ends with a zero byte. The library's initialisers only set up its own data.
    let library = unsafe { libc::dlopen(LIBRARY.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if library.is_null() {
        // SAFETY: dlerror(3) returns a string of this thread, or null if there was no error.
        let reason = unsafe {
            let reason = libc::dlerror();
            if reason.is_null() { None } else { Some(CStr::from_ptr(reason).to_string_lossy().into_owned()) }
        };
        return Err(LoadError::Missing { reason: reason.unwrap_or_else(|| "no reason given".to_owned()) });
    }
    Functions::find(library)
}
