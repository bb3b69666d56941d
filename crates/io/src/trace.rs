//! Trace events for the steps of READ, WRITE and COMMIT, named as in Linux's knfsd.
//!
//! Each event has two outputs. As a `tracing` event at TRACE level it goes to the log
//! (`SAMEHOST_LOG=samehost_io=trace`). As a USDT probe of the provider `samehost` it can be attached to in a
//! running process by perf, bpftrace, gdb or SystemTap, with the arguments handle hash, offset, length (for
//! errors: handle hash, offset, errno or NFS status). A disabled event costs two loads and two branches: a
//! probe's instruction is behind its semaphore, and the hash is only computed when needed.
//!
//! The functions aren't inlined. Each inlined copy would be a probe of its own, and one whose code the linker
//! discards leaves a note with an invalid address, which confuses perf and bpftrace.
//!
//! The hash is the CRC-32 of the handle's bytes, as in Wireshark's `nfs.fh.hash` and the `fh_hash` of knfsd's
//! trace points, so that a file can be followed through all three.

use tracing::level_filters::LevelFilter;

/// The CRC-32 (IEEE 802.3) of a file handle's bytes.
#[must_use]
#[inline(always)] // A call would have every event save registers, wanted or not.
pub fn handle_hash(handle: &[u8]) -> u32 {
    !handle.iter().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg()))
    })
}

/// Defines one function per event.
macro_rules! events {
    ($($(#[doc = $doc:literal])+ $name:ident($third:ident);)*) => {
        /// The names of all events.
        pub const EVENTS: &[&str] = &[$(stringify!($name)),*];

        $(
            $(#[doc = $doc])+
            #[inline(never)]
            pub fn $name(handle: &[u8], offset: u64, $third: u64) {
                /// Out of line for the same reason.
                #[cold]
                #[inline(never)]
                fn log(handle: &[u8], offset: u64, $third: u64) {
                    let hash = handle_hash(handle);
                    let fh_hash = format_args!("{hash:#010x}");
                    tracing::trace!(fh_hash, offset, $third, "{}", stringify!($name));
                }
                probe::probe_lazy!(samehost, $name, handle_hash(handle), offset, $third);
                if LevelFilter::current() == LevelFilter::TRACE {
                    log(handle, offset, $third);
                }
            }
        )*
    };
}

events! {
    /// A READ begins.
    read_start(length);
    /// The payload goes from the page cache to the socket by sendfile(2).
    read_splice(length);
    /// A read through the page cache, DONTCACHE or not.
    read_vector(length);
    /// A read by O_DIRECT: the range after it was expanded to whole blocks.
    read_direct(length);
    /// A READ's bytes have been read, this many.
    read_io_done(length);
    /// A READ failed.
    read_err(status);
    /// A READ has been answered.
    read_done(length);
    /// A WRITE begins.
    write_start(length);
    /// The file is open and the user may write to it.
    write_opened(length);
    /// A segment is written by O_DIRECT.
    write_direct(length);
    /// A segment is written through the page cache, DONTCACHE or not.
    write_vector(length);
    /// A WRITE's bytes have been written, this many.
    write_io_done(length);
    /// A WRITE failed.
    write_err(status);
    /// A WRITE has been answered.
    write_done(length);
    /// A COMMIT begins.
    commit_start(length);
    /// A COMMIT has been answered.
    commit_done(length);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_crc32() {
        assert_eq!(handle_hash(b"123456789"), 0xCBF4_3926, "the check value of CRC-32/ISO-HDLC");
        assert_eq!(handle_hash(b""), 0);
    }

    #[test]
    fn every_event_has_a_name_of_its_own() {
        let mut names = EVENTS.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), EVENTS.len());
        read_start(b"handle", 0, 1);
    }
}
