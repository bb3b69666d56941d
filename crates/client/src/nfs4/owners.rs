//! Owners and groups as strings (RFC 8881 section 5.9): numbers, and names of this host's users and groups.
//!
//! Servers send numbers to clients with AUTH_SYS, or `name@domain`. A name is looked up in this host's
//! databases (nsswitch.conf(5)). The domain isn't compared: with AUTH_SYS client and server have the same
//! users in any case. The first reply with a name waits for its lookup; then the name is remembered. The wait
//! blocks a thread of the runtime, so all waits together are a small part of the time
//! ([`WaitBudget`]): a server may send any number of names, and the databases may be slow.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{LazyLock, mpsc};
use std::time::{Duration, Instant};

use nix::unistd::{Group, User};
use parking_lot::Mutex;

/// The number for a name that isn't known here, as the kernel's client has it.
const NOBODY: u32 = 65_534;

/// How long replies wait for lookups in each [`WAIT_PERIOD`]. The lookups go on, for the next reply.
const MAX_WAIT: Duration = Duration::from_millis(500);

/// See [`MAX_WAIT`].
const WAIT_PERIOD: Duration = Duration::from_secs(10);

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

/// Names with their numbers; `None` for one that this host doesn't know.
type Remembered = HashMap<(OwnerKind, String), (Option<u32>, Instant)>;

/// How long replies may still wait for lookups in this period.
#[derive(Debug)]
struct WaitBudget {
    begun: Instant,
    left: Duration,
}

impl WaitBudget {
    const fn new(now: Instant) -> Self {
        Self { begun: now, left: MAX_WAIT }
    }

    /// How long a reply may wait now.
    fn available(&mut self, now: Instant) -> Duration {
        if now.saturating_duration_since(self.begun) >= WAIT_PERIOD {
            *self = Self::new(now);
        }
        self.left
    }

    fn spend(&mut self, waited: Duration) {
        self.left = self.left.saturating_sub(waited);
    }
}

static WAIT_BUDGET: LazyLock<Mutex<WaitBudget>> =
    LazyLock::new(|| Mutex::new(WaitBudget::new(Instant::now())));
static REMEMBERED: LazyLock<Mutex<Remembered>> = LazyLock::new(Mutex::default);
static LOOKUPS: AtomicUsize = AtomicUsize::new(0);

/// The number that a string from a server stands for.
pub(super) fn number(kind: OwnerKind, text: &[u8]) -> u32 {
    known_number(kind, text).unwrap_or(NOBODY)
}

/// As [`number`], if it is known.
pub(super) fn known_number(kind: OwnerKind, text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(number) = text.parse() {
        return Some(number);
    }
    let name = text.split_once('@').map_or(text, |(name, _)| name);
    if name.is_empty() || name.len() > MAX_NAME || name.contains('\0') {
        return None;
    }
    let key = (kind, name.to_owned());
    if let Some((number, since)) = REMEMBERED.lock().get(&key)
        && since.elapsed() < MAX_AGE
    {
        return *number;
    }
    if LOOKUPS.fetch_add(1, Relaxed) >= MAX_LOOKUPS {
        LOOKUPS.fetch_sub(1, Relaxed);
        return None;
    }
    // A database may be on another host, so that the lookup may take any time.
    let (tell, told) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new().name("owner-name".to_owned()).spawn(move || {
        let number = look_up(kind, &key.1);
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
    let begun = Instant::now();
    let available = WAIT_BUDGET.lock().available(begun);
    let number = told.recv_timeout(available).ok().flatten();
    WAIT_BUDGET.lock().spend(begun.elapsed());
    number
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
            let both = || (number(OwnerKind::User, text), number(OwnerKind::Group, text));
            // A busy machine may need more time than a reply waits.
            let started = Instant::now();
            while both() != (0, 0) {
                assert!(started.elapsed() < Duration::from_secs(60), "{text:?}");
                std::thread::sleep(Duration::from_millis(10));
            }
        }
        for text in [&b""[..], b"@example.org", b"no such user@example.org", b"\xff", &[b'x'; 1000], b"-1"] {
            assert_eq!(number(OwnerKind::User, text), NOBODY);
        }
    }

    #[test]
    fn many_slow_lookups_delay_no_more_than_one() {
        let mut now = Instant::now();
        let mut budget = WaitBudget::new(now);
        let (start, mut waited) = (now, Duration::ZERO);
        // A directory of files with unknown owners, each lookup of which takes 0.4 s.
        for _ in 0..1000 {
            let wait = budget.available(now).min(Duration::from_millis(400));
            budget.spend(wait);
            (waited, now) = (waited + wait, now + wait + Duration::from_millis(1));
        }
        assert_eq!(waited, MAX_WAIT);
        assert!(now < start + WAIT_PERIOD);
        assert_eq!(budget.available(start + WAIT_PERIOD), MAX_WAIT);
    }
}
