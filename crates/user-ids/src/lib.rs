//! Acting as a user: the filesystem ids of threads.
//!
//! The kernel checks permissions by the calling thread's filesystem ids and groups. Changing them takes three
//! to five system calls, so a thread keeps a user's ids until it needs another's; a worker that serves one
//! user changes nothing. Between requests a thread has an ordinary user's rights, never the process's.
//!
//! - [`UserIds::assume_ids`] sets groups, group and user, or does nothing if they are set already.
//! - [`as_process_user`] runs a closure with the process's own user id, for operations that need its
//!   capabilities (opening by handle, searching the tree).
//! - [`restore_process_ids`] undoes everything.

mod set_id;

pub use set_id::{drop_fsetid, with_set_id_kept};

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::LazyLock;

use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_thread_groups};
use sys::credentials::{set_fsgid, set_fsuid};

/// Why a thread doesn't have the ids that it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The kernel refused a change of ids or groups.
    #[error("the thread's filesystem ids can't be changed: {0}")]
    Refused(Errno),
    /// An earlier change failed, so the current ids are unknown.
    #[error("the thread's filesystem ids are unknown")]
    Unknown,
}

/// A user as the filesystem sees it, after squashing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Whether the process can act as users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// Its threads act as any user.
    Full,
    /// They do everything as the process's own user.
    Unprivileged {
        /// What is missing, for the administrator.
        reason: String,
    },
}

impl Privilege {
    /// Tries on a thread of its own whether acting as another user works and drops the process's rights.
    #[must_use]
    pub fn detect() -> Privilege {
        match can_act_as_others() {
            Ok(()) => Privilege::Full,
            Err(reason) => Privilege::Unprivileged { reason },
        }
    }
}

/// An identity that the thread which made it may assume.
#[derive(Debug)]
pub struct UserIds {
    /// The user.
    pub identity: Identity,
    /// Identifies the user in caches. Derived from a secret that changes with every start, so that a client
    /// can't construct two identities with one fingerprint.
    pub fingerprint: u64,
    /// Belongs to one thread.
    not_send: PhantomData<*const ()>,
}

/// The ids that this thread has now.
struct ThreadIds {
    who: Option<Rc<UserIds>>,
    /// The ids in the kernel; `None` when a change failed and they are unknown.
    uid: Option<u32>,
    gid: Option<u32>,
    /// The identity whose supplementary groups the thread has; `None` when they are unknown or the process's
    /// own.
    groups: Option<Rc<UserIds>>,
    /// The ids to restore.
    own: Option<ProcessIds>,
}

struct ProcessIds {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
    /// Those of [`RESTORED`] that were effective.
    capabilities: CapabilitySet,
}

/// The capabilities that setfsuid(2) doesn't restore as they were: it leaves `CAP_SYS_RESOURCE` alone, and
/// raises `CAP_FSETID` with the other rights over files, also for a thread that had dropped it.
const RESTORED: CapabilitySet = CapabilitySet::SYS_RESOURCE.union(CapabilitySet::FSETID);

thread_local! {
    static THREAD_IDS: RefCell<ThreadIds> =
        const { RefCell::new(ThreadIds { who: None, uid: None, gid: None, groups: None, own: None }) };
}

static FINGERPRINTS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// Whether two identities are equal. The groups are compared one by one: for two empty lists `==` would call
/// memcmp(3) with dangling pointers. With AVX-512 glibc's does a masked load from there even of no bytes, and
/// the processor takes 0.2 µs to suppress the page fault.
fn is_same(one: &Identity, other: &Identity) -> bool {
    (one.uid, one.gid) == (other.uid, other.gid) && one.groups.iter().eq(&other.groups)
}

impl UserIds {
    /// The identity for this thread; the same object as last time for the same identity.
    #[must_use]
    pub fn of(identity: &Identity) -> Rc<UserIds> {
        THREAD_IDS.with_borrow_mut(|ids| {
            if let Some(who) = &ids.who
                && is_same(&who.identity, identity)
            {
                return Rc::clone(who);
            }
            let fingerprint = FINGERPRINTS.hash_one(identity);
            let who = Rc::new(UserIds { identity: identity.clone(), fingerprint, not_send: PhantomData });
            ids.who = Some(Rc::clone(&who));
            who
        })
    }

    /// Makes this thread's filesystem ids and groups those of the identity.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub fn assume_ids(self: &Rc<Self>) -> Result<(), Error> {
        THREAD_IDS.with_borrow_mut(|ids| {
            let has_groups = ids.groups.as_ref().is_some_and(|other| Rc::ptr_eq(other, self));
            if has_groups && ids.uid == Some(self.identity.uid) && ids.gid == Some(self.identity.gid) {
                return Ok(());
            }
            ids.change(self).map_err(Error::Refused)
        })
    }
}

impl ThreadIds {
    fn change(&mut self, to: &Rc<UserIds>) -> rustix::io::Result<()> {
        if self.own.is_none() {
            self.own = Some(ProcessIds::leave()?);
        }
        let Identity { uid, gid, ref groups } = to.identity;
        let has_groups = self.groups.take().is_some_and(|other| other.identity.groups == *groups);
        if !has_groups {
            let raw: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
            set_thread_groups(&raw)?;
        }
        self.groups = Some(Rc::clone(to));
        if self.gid != Some(gid) {
            self.gid = None;
            set_fsgid(gid)?;
            self.gid = Some(gid);
        }
        if self.uid != Some(uid) {
            self.uid = None;
            set_fsuid(uid)?;
            self.uid = Some(uid);
        }
        Ok(())
    }
}

impl ProcessIds {
    /// Saves the process's ids and drops `CAP_SYS_RESOURCE`, the right to exceed quotas and use reserved
    /// blocks: setfsuid(2) doesn't drop it.
    fn leave() -> rustix::io::Result<ProcessIds> {
        let mut sets = capabilities(None)?;
        let restored = sets.effective & RESTORED;
        if restored.contains(CapabilitySet::SYS_RESOURCE) {
            sets.effective.remove(CapabilitySet::SYS_RESOURCE);
            set_capabilities(None, sets)?;
        }
        // The effective ids, not the filesystem ids: a thread inherits the latter from its parent thread,
        // which may be acting as a user.
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Ok(ProcessIds { uid, gid, groups: rustix::process::getgroups()?, capabilities: restored })
    }
}

/// Drops `CAP_SYS_RESOURCE` from this thread's effective set: for a thread that writes for other users with
/// the process's own ids, and so could exceed their quotas.
pub fn drop_sys_resource() {
    drop_effective(CapabilitySet::SYS_RESOURCE);
}

/// Drops capabilities from this thread's effective set.
fn drop_effective(dropped: CapabilitySet) {
    // A thread may always read its own sets and reduce the effective one.
    if let Ok(sets) = capabilities(None) {
        let effective = sets.effective - dropped;
        let _ = set_capabilities(None, CapabilitySets { effective, ..sets });
    }
}

/// Runs `work` on this thread with the process's own filesystem user id and therefore its capabilities.
/// Restores the user's id afterwards, also when `work` panics.
///
/// # Errors
/// Those of `work`, and [`Error`].
pub fn as_process_user<T, E: From<Error>>(work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
    /// Restores a user id on drop.
    struct Back(u32);
    impl Drop for Back {
        fn drop(&mut self) {
            THREAD_IDS.with_borrow_mut(|ids| ids.uid = set_fsuid(self.0).ok().map(|()| self.0));
        }
    }
    let user = THREAD_IDS.with_borrow_mut(|ids| match (&ids.own, ids.uid) {
        (None, _) => Ok(None),
        (Some(_), None) => Err(Error::Unknown),
        (Some(own), Some(uid)) if uid == own.uid => Ok(None),
        (Some(own), Some(uid)) => {
            let own = own.uid;
            ids.uid = None;
            Ok(Some((own, uid)))
        }
    })?;
    let Some((own, uid)) = user else { return work() };
    let back = Back(uid);
    set_fsuid(own).map_err(Error::Refused)?;
    let result = work();
    drop(back);
    // Returning to the user's id can't fail. If it did, nothing more may run on this thread as root.
    if THREAD_IDS.with_borrow(|ids| ids.uid) == Some(uid) { result } else { Err(Error::Unknown.into()) }
}

/// Restores the filesystem ids, groups and capabilities that this thread had before it first acted as a user.
/// For threads with other duties; a server's workers don't need it.
pub fn restore_process_ids() {
    THREAD_IDS.with_borrow_mut(|ids| {
        let Some(own) = ids.own.take() else { return };
        // Returning to the process's ids can't fail. If it did, the thread would keep the lesser rights.
        let _ = set_fsuid(own.uid)
            .and_then(|()| set_fsgid(own.gid))
            .and_then(|()| set_thread_groups(&own.groups));
        if let Ok(mut sets) = capabilities(None)
            && sets.effective & RESTORED != own.capabilities
        {
            sets.effective = (sets.effective - RESTORED) | own.capabilities;
            let _ = set_capabilities(None, sets);
        }
        *ids = ThreadIds { who: None, uid: None, gid: None, groups: None, own: None };
    });
}

/// The identity of the process: its effective ids and its groups.
#[must_use]
pub fn process_identity() -> Identity {
    Identity {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: rustix::process::getgroups()
            .map_or_else(|_| Vec::new(), |all| all.iter().map(|g| g.as_raw()).collect()),
    }
}

/// Whether acting as others works and drops the process's rights; the error says what is missing. Runs on a
/// thread of its own.
fn can_act_as_others() -> Result<(), String> {
    let trial = || -> Result<(), String> {
        if rustix::process::geteuid() != Uid::ROOT {
            return Err("not started as root".into());
        }
        let effective =
            capabilities(None).map_err(|error| format!("capabilities can't be read ({error})"))?.effective;
        for (needed, name) in [
            (CapabilitySet::SETUID, "CAP_SETUID"),
            (CapabilitySet::SETGID, "CAP_SETGID"),
            (CapabilitySet::DAC_READ_SEARCH, "CAP_DAC_READ_SEARCH"),
        ] {
            if !effective.contains(needed) {
                return Err(format!("{name} is missing"));
            }
        }
        set_thread_groups(&[]).map_err(|error| format!("groups can't be set ({error})"))?;
        set_fsuid(65534).map_err(|error| format!("the filesystem user id can't be set ({error})"))?;
        let left =
            capabilities(None).map_err(|error| format!("capabilities can't be read ({error})"))?.effective;
        let dangerous = CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH | CapabilitySet::FOWNER;
        if left.intersects(dangerous) {
            return Err("acting as a user doesn't drop root's rights here (securebits)".into());
        }
        Ok(())
    };
    std::thread::scope(|scope| scope.spawn(trial).join())
        .unwrap_or_else(|_| Err("the trial of acting as a user failed".into()))
}

#[cfg(test)]
mod tests {
    use sys::credentials::{fsgid, fsuid};

    use super::*;

    fn user(uid: u32, groups: &[u32]) -> Identity {
        Identity { uid, gid: uid, groups: groups.to_vec() }
    }

    #[test]
    fn a_child_thread_of_an_acting_thread_can_restore_the_process_ids() {
        if can_act_as_others().is_err() {
            return;
        }
        std::thread::spawn(|| {
            UserIds::of(&user(1000, &[])).assume_ids().expect("root may");
            std::thread::spawn(|| {
                assert_eq!(fsuid(), 1000, "inherited");
                UserIds::of(&user(1001, &[])).assume_ids().expect("root may");
                as_process_user(|| {
                    assert_eq!(fsuid(), rustix::process::geteuid().as_raw());
                    let effective = capabilities(None).expect("capabilities").effective;
                    assert!(effective.contains(CapabilitySet::DAC_READ_SEARCH));
                    Ok::<(), Error>(())
                })
                .expect("root may");
            })
            .join()
            .expect("ran");
        })
        .join()
        .expect("ran");
    }

    #[test]
    fn a_thread_assumes_and_restores_ids() {
        if can_act_as_others().is_err() {
            return;
        }
        std::thread::spawn(|| {
            let before = (fsuid(), fsgid(), rustix::process::getgroups().expect("groups"));
            let one = UserIds::of(&user(1000, &[5, 6]));
            one.assume_ids().expect("root may");
            assert_eq!((fsuid(), fsgid()), (1000, 1000));
            assert_eq!(rustix::process::getgroups().expect("groups").len(), 2);
            assert!(Rc::ptr_eq(&one, &UserIds::of(&user(1000, &[5, 6]))));
            let two = UserIds::of(&user(1001, &[]));
            assert_ne!(one.fingerprint, two.fingerprint);
            two.assume_ids().expect("root may");
            assert_eq!(rustix::process::getgroups().expect("groups").len(), 0);
            as_process_user(|| {
                assert_eq!((fsuid(), fsgid()), (before.0, 1001));
                Ok::<(), Error>(())
            })
            .expect("root may");
            assert_eq!(fsuid(), 1001);
            let panicked = std::panic::catch_unwind(|| {
                as_process_user(|| -> Result<(), Error> { panic!("in the middle") })
            });
            assert!(panicked.is_err());
            assert_eq!(fsuid(), 1001);
            one.assume_ids().expect("root may");
            assert_eq!((fsuid(), fsgid()), (1000, 1000));
            let no_user = UserIds::of(&user(u32::MAX, &[])).assume_ids();
            assert_eq!(no_user, Err(Error::Refused(Errno::INVAL)));
            restore_process_ids();
            assert_eq!((fsuid(), fsgid(), rustix::process::getgroups().expect("groups")), before);
        })
        .join()
        .expect("ran");
    }

    /// Quotas would be exceeded after the thread has acted as a user, too.
    #[test]
    fn the_right_to_exceed_quotas_stays_dropped() {
        std::thread::spawn(|| {
            let before = capabilities(None).expect("capabilities");
            drop_sys_resource();
            let expected =
                CapabilitySets { effective: before.effective - CapabilitySet::SYS_RESOURCE, ..before };
            assert_eq!(capabilities(None).expect("capabilities"), expected);
            if can_act_as_others().is_ok() {
                UserIds::of(&user(1000, &[])).assume_ids().expect("root may");
                restore_process_ids();
                assert_eq!(capabilities(None).expect("capabilities"), expected);
            }
        })
        .join()
        .expect("ran");
    }

    /// Set-id bits would survive writes on behalf of users who may not keep them.
    #[test]
    fn a_dropped_capability_stays_dropped() {
        if can_act_as_others().is_err() {
            return;
        }
        std::thread::spawn(|| {
            let mut before = capabilities(None).expect("capabilities");
            before.effective.remove(CapabilitySet::FSETID);
            set_capabilities(None, before).expect("a thread may drop its own");
            UserIds::of(&user(1000, &[])).assume_ids().expect("root may");
            restore_process_ids();
            assert_eq!(capabilities(None).expect("capabilities").effective, before.effective);
        })
        .join()
        .expect("ran");
    }
}
