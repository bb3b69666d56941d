//! The order of CLOSEs, with the clock passed in.

use client_state::{Opens, Share};

use super::*;
use crate::Credential;
use crate::calling_session::CallingSession;
use crate::user::User;

const SHARE: Share = Share { access: 1, deny: 0 };

/// Opens that are closed by users 1 and 2.
struct Closing {
    opens: Opens<Handle, OpenOwner>,
    queued: QueuedCloses,
    start: Instant,
    last_file: u32,
    session: Arc<CallingSession>,
}

impl Closing {
    fn new() -> Self {
        let (opens, queued) = (Opens::default(), QueuedCloses::default());
        Self { opens, queued, start: Instant::now(), last_file: 0, session: Arc::default() }
    }

    fn at(&self, milliseconds: u64) -> Instant {
        self.start + Duration::from_millis(milliseconds)
    }

    /// A user opens and closes another file.
    fn close(&mut self, uid: u32, at: u64) {
        let user = User::new(Credential::Sys { uid, gid: uid, groups: Vec::new() }, &self.session);
        let opening = self.opens.opening(OpenOwner::new(&user));
        self.last_file += 1;
        let number = self.last_file.to_be_bytes();
        let id = StateId { seqid: 1, other: [number; 3].concat().try_into().unwrap() };
        let open = self.opens.opened(opening, Handle::new(&number).unwrap(), SHARE, id);
        self.opens.close(open);
        let now = self.at(at);
        for change in self.opens.take_changes() {
            self.queued.push(change, now);
        }
    }

    /// The users of the CLOSEs that are sent at this time.
    fn sent(&mut self, at: u64) -> Vec<u32> {
        let now = self.at(at);
        if self.queued.delayed_until(now).is_some() {
            return Vec::new();
        }
        let taken = self.queued.take(MAX_CLOSES, now);
        let uid =
            |(_, close): &(Due, Close)| u32::from_be_bytes(close.owner().user().ids[..4].try_into().unwrap());
        taken.iter().map(uid).collect()
    }
}

#[test]
fn a_close_by_itself_is_sent_at_once_and_further_ones_together() {
    let mut it = Closing::new();
    it.close(1, 0);
    assert_eq!(it.sent(0), [1]);
    it.close(1, 1);
    it.close(1, 40);
    assert_eq!(it.sent(49), [0_u32; 0]);
    assert_eq!(it.queued.delayed_until(it.at(49)), Some(it.at(50)));
    assert_eq!(it.sent(50), [1, 1]);
    it.close(1, 100);
    assert_eq!(it.sent(100), [1]);
    // What is removed waits for nothing.
    it.close(1, 101);
    it.queued.make_due(it.at(102));
    assert_eq!(it.sent(102), [1]);
}

#[test]
fn users_take_turns() {
    let mut it = Closing::new();
    it.close(1, 0);
    assert_eq!(it.sent(0), [1]);
    for number in 0..MAX_CLOSES as u64 {
        it.close(1, 1 + number);
        if number < 3 {
            it.close(2, 1 + number);
        }
    }
    // Those of one user fill a request, which isn't delayed any more.
    let first = it.sent(40);
    assert_eq!(first, vec![1; MAX_CLOSES]);
    // The others don't wait for a further request's time.
    assert_eq!(it.sent(49), [0_u32; 0]);
    assert_eq!(it.sent(50), [2, 2, 2]);
    assert_eq!(it.sent(50), [0_u32; 0], "the sender ends");
    it.close(2, 60);
    it.close(1, 61);
    assert_eq!(it.sent(99), [0_u32; 0]);
    assert_eq!(it.sent(100), [2]);
    assert_eq!(it.sent(100), [1]);
}

#[test]
fn a_full_queue_of_one_user_delays_nobody() {
    let mut it = Closing::new();
    it.close(1, 0);
    assert_eq!(it.sent(0), [1]);
    it.close(2, 1);
    for _ in 0..10 * MAX_CLOSES {
        it.close(1, 2);
    }
    assert_eq!(it.sent(2), [2], "its turn is first");
    for _ in 0..10 {
        assert_eq!(it.sent(2), vec![1; MAX_CLOSES]);
    }
}

#[test]
fn what_is_put_back_is_first() {
    let mut it = Closing::new();
    it.close(1, 0);
    it.close(1, 0);
    let mut taken = it.queued.take(MAX_CLOSES, it.start);
    let files: Vec<_> = taken.iter().map(|(_, close)| close.file().clone()).collect();
    assert_eq!(it.queued.under_way, files);
    let rest = taken.split_off(1);
    it.queued.put_back(rest);
    it.close(1, 1);
    let again = it.queued.take(MAX_CLOSES, it.at(1));
    assert_eq!(again[0].1.file(), &files[1]);
    assert_eq!(again.len(), 2);
}

#[test]
fn an_open_takes_closes_of_its_user_along() {
    let mut it = Closing::new();
    it.close(1, 0);
    assert_eq!(it.sent(0), [1]);
    for _ in 0..=MAX_ALONG {
        it.close(1, 1);
    }
    it.close(2, 1);
    let user = User::new(Credential::Sys { uid: 1, gid: 1, groups: Vec::new() }, &it.session);
    let owner = OpenOwner::new(&user);
    assert!(it.queued.take_along(&owner, 0, it.at(10)).is_empty(), "there is no room");
    let taken = it.queued.take_along(&owner, MAX_ALONG, it.at(10));
    assert_eq!(taken.len(), MAX_ALONG);
    assert_eq!(it.queued.along.len(), MAX_ALONG);
    // The next ones wait for a further OPEN; those that were closed before wait no longer for that.
    it.close(1, 11);
    assert_eq!(it.sent(49), [0_u32; 0]);
    assert_eq!(it.sent(50), [1, 1]);
    assert_eq!(it.sent(50), [2]);
    // What wasn't executed is sent later.
    it.queued.end_along(&taken);
    assert!(it.queued.along.is_empty());
    it.queued.put_back(taken);
    assert_eq!(it.sent(100), vec![1; MAX_ALONG]);
}
