//! Owners and groups as strings (RFC 8881 section 5.9): numbers, and names of this host's users and groups.
//!
//! Servers send numbers to clients with AUTH_SYS, or `name@domain`. A name is looked up in this host's
//! databases (nsswitch.conf(5)). The domain isn't compared: with AUTH_SYS client and server have the same
//! users in any case. The first reply with a name waits for its lookup, for a limited time; then the name is
//! remembered.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, mpsc};
use std::time::{Duration, Instant};

use nix::unistd::{Group, User};
use parking_lot::Mutex;

/// The number for a name that isn't known here, as the kernel's client has it.
const NOBODY: u32 = 65_534;

/// How long a reply waits for a lookup. The lookup goes on, for the next reply.
const LOOKUP_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a name is remembered.
const MAX_AGE: Duration = Duration::from_secs(600);

/// The names that are remembered.
const MAX_REMEMBERED: usize = 1024;

/// The longest name, in bytes.
const MAX_NAME: usize = 256;

/// The lookups under way. Further names are nobody's until the next reply.
const MAX_LOOKUPS: usize = 8;

/// Whose name it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum OwnerKind {
    User,
    Group,
}

type Remembered = HashMap<(OwnerKind, String), (u32, Instant)>;

static REMEMBERED: LazyLock<Mutex<Remembered>> = LazyLock::new(Mutex::default);
static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

/// The number that a string from a server stands for.
pub(super) fn number(kind: OwnerKind, text: &[u8]) -> u32 {
    let Ok(text) = std::str::from_utf8(text) else { return NOBODY };
    if let Ok(number) = text.parse() {
        return number;
    }
    let name = text.split_once('@').map_or(text, |(name, _)| name);
    if name.is_empty() || name.len() > MAX_NAME || name.contains('\0') {
        return NOBODY;
    }
    let key = (kind, name.to_owned());
    if let Some((number, since)) = REMEMBERED.lock().get(&key)
        && since.elapsed() < MAX_AGE
    {
        return *number;
    }
    if LOOKUPS.fetch_add(1, Relaxed) >= MAX_LOOKUPS {
        LOOKUPS.fetch_sub(1, Relaxed);
        return NOBODY;
    }
    // A database may be on another host, so that the lookup may take any time.
    let (tell, told) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("owner-name".to_owned()).spawn(move || {
        let number = look_up(kind, &key.1).unwrap_or(NOBODY);
        let mut remembered = REMEMBERED.lock();
        if remembered.len() >= MAX_REMEMBERED {
            remembered.clear();
        }
        remembered.insert(key, (number, Instant::now()));
        drop(remembered);
        LOOKUPS.fetch_sub(1, Relaxed);
        // The reply may not wait any more.
        let _ = tell.send(number);
    });
    if thread.is_err() {
        LOOKUPS.fetch_sub(1, Relaxed);
    }
    told.recv_timeout(LOOKUP_TIMEOUT).unwrap_or(NOBODY)
}

/// The number in this host's databases.
fn look_up(kind: OwnerKind, name: &str) -> Option<u32> {
    match kind {
        OwnerKind::User => User::from_name(name).ok()?.map(|user| user.uid.as_raw()),
        OwnerKind::Group => Group::from_name(name).ok()?.map(|group| group.gid.as_raw()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_of_this_host_are_known() {
        assert_eq!(number(OwnerKind::User, b"4294967294"), 4_294_967_294);
        for text in [&b"root"[..], b"root@example.org", b"0"] {
            assert_eq!((number(OwnerKind::User, text), number(OwnerKind::Group, text)), (0, 0));
        }
        for text in [&b""[..], b"@example.org", b"no such user@example.org", b"\xff", &[b'x'; 1000], b"-1"] {
            assert_eq!(number(OwnerKind::User, text), NOBODY);
        }
    }
}
