//! The rival: another client, which isn't tested, and whose calls are executed at once.

use client_state::{ByteRange, LockChangeRequest, LockKind, Share};
use state::{ClientId, SessionId, StateId};

use crate::server::{PRINCIPAL, Server, by, ours, theirs};

/// What the rival has at the server.
#[derive(Default)]
pub struct Rival {
    /// How often it has restarted.
    restarts: u8,
    session: Option<SessionId>,
    opens: Vec<(ClientId, u32, StateId)>,
}

impl Rival {
    /// The server has nothing of it any more.
    pub fn lose(&mut self) {
        self.session = None;
        self.opens.clear();
    }
}

impl Server {
    /// The rival's client id.
    fn rival(&mut self) -> ClientId {
        let (client, sequence, confirmed) = self.exchange_id("rival", [self.rival.restarts; 8]);
        let id = ClientId(client);
        if !confirmed {
            let session = self.create_session(client, sequence).expect("room for a session");
            self.rival.session = Some(session);
            self.engine.reclaim_complete(&by(id)).expect("the first time");
        }
        id
    }

    /// The rival restarts. That ends its own state, and nothing else.
    pub fn restart_rival(&mut self) {
        let others = self.states() - self.rivals_states();
        self.rival.restarts += 1;
        self.rival.opens.clear();
        self.rival();
        self.apply_effects();
        assert_eq!(self.states(), others, "states of the rival's former run, or of others");
    }

    /// The rival locks a range, and unlocks it at once. Returns whether it could, if it could open the file.
    pub fn lock_by_rival(&mut self, file: u32, range: ByteRange, kind: LockKind) -> Option<bool> {
        if !self.open_by_rival(file, Share { access: 3, deny: 0 }) {
            return None;
        }
        let (client, _, id) = self.rival.opens.pop().expect("it was opened");
        let lock = LockChangeRequest::Lock { id: None, range, kind, reclaim: false };
        let locked = self.lock(client, 0, file, &lock, ours(id));
        // This ends the lock.
        self.engine.close(&by(client), &id, &file).expect("it is open");
        self.apply_effects();
        Some(locked.is_ok())
    }

    /// The rival opens a file. Returns whether it could.
    pub fn open_by_rival(&mut self, file: u32, share: Share) -> bool {
        let client = self.rival();
        let owner = self.rival.opens.len() as u8;
        let opened = self.open(client, owner, file, share, false);
        self.apply_effects();
        self.rival.opens.extend(opened.map(|open| (client, file, theirs(open))));
        opened.is_ok()
    }

    /// The rival closes everything.
    pub fn close_by_rival(&mut self) {
        for (client, file, id) in std::mem::take(&mut self.rival.opens) {
            // Its lease may have expired.
            let _ = self.engine.close(&by(client), &id, &file);
        }
        self.apply_effects();
    }

    /// The number of the rival's states.
    pub fn rivals_states(&self) -> usize {
        let opens = self.rival.opens.iter();
        opens.filter(|(client, _, id)| self.engine.test_stateid(*client, id).is_ok()).count()
    }

    pub fn has_rivals_session(&self) -> bool {
        self.rival.session.is_some_and(|session| self.engine.session_of(session, &PRINCIPAL).is_ok())
    }
}
