//! Whom a thread acts as.
//!
//! The kernel checks permissions by the calling thread's filesystem ids and groups. Changing them takes three
//! to five system calls, so a thread wears an identity until somebody else's turn comes; a server's worker
//! that serves one user changes nothing at all. What stays on the thread between requests is always the
//! lesser right: an ordinary user's, not the process's.
//!
//! 1. `UserIds::assume_ids`: set groups, then group, then user; nothing when worn already.
//! 2. `as_process_user`: for what needs the process's own capabilities (opening by handle, searching the
//!    tree), its user id for the length of a closure.
//! 3. [`restore_process_ids`]: everything back as it was.

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::LazyLock;

use rustix::fs::{Gid, Uid};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities, set_thread_groups};
use sys::credentials::{set_fsgid, set_fsuid};

use crate::error::{Error, Result};

/// A user as the filesystem sees one, after squashing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

/// Whether a store can act as users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Privilege {
    /// It acts as any user.
    Full,
    /// It does everything as the process's own user.
    Unprivileged {
        /// What is missing, for the administrator.
        reason: String,
    },
}

impl Privilege {
    /// Tries on a thread of its own whether acting as another user works and drops the process's rights.
    pub(crate) fn detect() -> Privilege {
        match can_act_as_others() {
            Ok(()) => Privilege::Full,
            Err(reason) => Privilege::Unprivileged { reason },
        }
    }
}

/// An identity on the thread that made it.
#[derive(Debug)]
pub(crate) struct UserIds {
    pub identity: Identity,
    /// Stands for the identity in caches. From a secret that changes with every start, so two identities with
    /// the same fingerprint can't be constructed.
    pub fingerprint: u64,
    /// Belongs to this thread.
    not_send: PhantomData<*const ()>,
}

/// What this thread wears now.
struct ThreadIds {
    who: Option<Rc<UserIds>>,
    /// The ids in the kernel; `None` when unknown after a failure.
    uid: Option<u32>,
    gid: Option<u32>,
    /// Whose groups; `None` when unknown or the process's own.
    groups: Option<Vec<u32>>,
    /// What it goes back to.
    own: Option<ProcessIds>,
}

struct ProcessIds {
    uid: u32,
    gid: u32,
    groups: Vec<Gid>,
    /// `CAP_SYS_RESOURCE` was effective.
    resource: bool,
}

thread_local! {
    static THREAD_IDS: RefCell<ThreadIds> =
        const { RefCell::new(ThreadIds { who: None, uid: None, gid: None, groups: None, own: None }) };
}

static FINGERPRINTS: LazyLock<RandomState> = LazyLock::new(RandomState::new);

impl UserIds {
    /// The identity, on this thread; the same object as last time when it is the same identity.
    pub fn of(identity: &Identity) -> Rc<UserIds> {
        THREAD_IDS.with_borrow_mut(|worn| {
            if let Some(who) = &worn.who
                && who.identity == *identity
            {
                return Rc::clone(who);
            }
            let fingerprint = FINGERPRINTS.hash_one(identity);
            let who = Rc::new(UserIds { identity: identity.clone(), fingerprint, not_send: PhantomData });
            worn.who = Some(Rc::clone(&who));
            who
        })
    }

    /// Makes this thread's filesystem ids and groups those of the identity.
    pub fn assume_ids(&self) -> Result<()> {
        THREAD_IDS.with_borrow_mut(|worn| {
            let Identity { uid, gid, groups } = &self.identity;
            if worn.uid == Some(*uid) && worn.gid == Some(*gid) && worn.groups.as_ref() == Some(groups) {
                return Ok(());
            }
            worn.change(*uid, *gid, groups).map_err(|_| Error::Access)
        })
    }
}

impl ThreadIds {
    fn change(&mut self, uid: u32, gid: u32, groups: &Vec<u32>) -> rustix::io::Result<()> {
        if self.own.is_none() {
            self.own = Some(ProcessIds::leave()?);
        }
        if self.groups.as_ref() != Some(groups) {
            self.groups = None;
            let raw: Vec<Gid> = groups.iter().map(|group| Gid::from_raw(*group)).collect();
            set_thread_groups(&raw)?;
            self.groups = Some(groups.clone());
        }
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
    /// Remembers what the process is, and lays down the right to exceed quotas and take reserved blocks: it
    /// isn't among those that setfsuid takes away.
    fn leave() -> rustix::io::Result<ProcessIds> {
        let mut sets = capabilities(None)?;
        let resource = sets.effective.contains(CapabilitySet::SYS_RESOURCE);
        if resource {
            sets.effective.remove(CapabilitySet::SYS_RESOURCE);
            set_capabilities(None, sets)?;
        }
        // The effective ids, not the filesystem's: a thread inherits those of the one that started it, which
        // may be acting as a user.
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        Ok(ProcessIds { uid, gid, groups: rustix::process::getgroups()?, resource })
    }
}

/// Runs `work` with the process's own filesystem user id, and so with its capabilities, on this thread.
/// Afterwards, also when `work` panics, the user's is back.
///
/// # Errors
/// What `work` returns; `Access` if the thread's ids are unknown.
pub fn as_process_user<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    /// Puts a user id back.
    struct Back(u32);
    impl Drop for Back {
        fn drop(&mut self) {
            THREAD_IDS.with_borrow_mut(|worn| worn.uid = set_fsuid(self.0).ok().map(|()| self.0));
        }
    }
    let user = THREAD_IDS.with_borrow_mut(|worn| match (&worn.own, worn.uid) {
        (None, _) => Ok(None),
        // Whose ids these are is unknown since taking some on failed: nobody's turn.
        (Some(_), None) => Err(Error::Access),
        (Some(own), Some(uid)) if uid == own.uid => Ok(None),
        (Some(own), Some(uid)) => {
            let own = own.uid;
            worn.uid = None;
            Ok(Some((own, uid)))
        }
    })?;
    let Some((own, uid)) = user else { return work() };
    let back = Back(uid);
    set_fsuid(own)?;
    let result = work();
    drop(back);
    // Going back can't be refused to who could go; should it be, nothing more may happen on this thread as
    // root.
    if THREAD_IDS.with_borrow(|worn| worn.uid) == Some(uid) { result } else { Err(Error::Access) }
}

/// Gives this thread back the filesystem ids, groups and capabilities that it had before it first acted as a
/// user. For threads that do other things, too; a server's workers never need it.
pub fn restore_process_ids() {
    THREAD_IDS.with_borrow_mut(|worn| {
        let Some(own) = worn.own.take() else { return };
        // Going back to what the process is can't be refused; should it be, the thread keeps the lesser
        // right.
        let _ = set_fsuid(own.uid)
            .and_then(|()| set_fsgid(own.gid))
            .and_then(|()| set_thread_groups(&own.groups));
        if own.resource
            && let Ok(mut sets) = capabilities(None)
        {
            sets.effective.insert(CapabilitySet::SYS_RESOURCE);
            let _ = set_capabilities(None, sets);
        }
        *worn = ThreadIds { who: None, uid: None, gid: None, groups: None, own: None };
    });
}

/// The process's own user, for a store that can't act as others.
pub(crate) fn process_identity() -> Identity {
    Identity {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        groups: rustix::process::getgroups()
            .map_or_else(|_| Vec::new(), |all| all.iter().map(|g| g.as_raw()).collect()),
    }
}

/// Whether acting as others would work and be safe; the answer says what is missing. Tried on a thread of its
/// own.
fn can_act_as_others() -> std::result::Result<(), String> {
    let trial = || -> std::result::Result<(), String> {
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
    fn a_thread_started_by_one_that_acts_as_a_user_finds_back_to_the_process() {
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
                    Ok(())
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
    fn a_thread_wears_what_it_was_told_last_and_can_take_it_off() {
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
                Ok(())
            })
            .expect("root may");
            assert_eq!(fsuid(), 1001);
            let panicked =
                std::panic::catch_unwind(|| as_process_user(|| -> Result<()> { panic!("in the middle") }));
            assert!(panicked.is_err());
            assert_eq!(fsuid(), 1001);
            one.assume_ids().expect("root may");
            assert_eq!((fsuid(), fsgid()), (1000, 1000));
            assert_eq!(UserIds::of(&user(u32::MAX, &[])).assume_ids(), Err(Error::Access));
            restore_process_ids();
            assert_eq!((fsuid(), fsgid(), rustix::process::getgroups().expect("groups")), before);
        })
        .join()
        .expect("ran");
    }
}
