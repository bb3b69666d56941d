//! The server: its engine, which keeps replies as a session's slots do, and which restarts.

use std::collections::BTreeSet;

use client_state::{
    ByteRange, DelegationKind, LockChangeRequest, LockKind, OpenChangeRequest, OpenClaim, Share, StateId,
};
use fairness::Peer;
use state::{
    ChannelAttrs, ClientId, ClientRecord, CreateSession, DelegationRequest, Direction, Engine, EngineConfig,
    EngineLimits, Error, ExchangeId, LockRequest, Locker, OpenRequest, Principal, Requester, Sequence,
    SequenceResult, SessionId, Time,
};

pub const LEASE: u64 = 1000;
const PRINCIPAL: Principal = Principal::Sys(0);
const CHANNEL: ChannelAttrs =
    ChannelAttrs { request: 4096, response: 4096, cached: 1024, operations: 8, slots: 4 };

/// What a COMPOUND does after SEQUENCE.
#[derive(Debug, Clone, Copy)]
pub enum Operation {
    Nothing,
    ReclaimComplete,
    /// OPEN by name: the client knows only which name that is.
    Open(u8, u32, Share),
    Change(u8, u32, OpenChangeRequest),
    /// The open is that which a first lock is made through.
    Lock(u8, u32, LockChangeRequest, StateId),
    Io(u32, StateId, Direction),
    /// DELEGRETURN.
    Return(u32, StateId),
    /// TEST_STATEID, and FREE_STATEID if it fails.
    Test(StateId),
}

/// A COMPOUND on its way to the server.
#[derive(Debug, Clone, Copy)]
pub struct Message {
    pub request: u64,
    pub session: SessionId,
    pub slot: u32,
    pub sequence: u32,
    pub highest: u32,
    pub operation: Operation,
}

/// The reply to a COMPOUND whose SEQUENCE has succeeded.
#[derive(Debug, Clone, Copy)]
pub struct Reply {
    pub highest: u32,
    pub flags: u32,
    /// The state id of an OPEN, OPEN_DOWNGRADE, LOCK or LOCKU. `Locked` stands for `NFS4ERR_DENIED`.
    pub result: Result<StateId, Error>,
    /// The delegation that an OPEN has given.
    pub delegation: Option<(StateId, DelegationKind)>,
}

pub struct Server {
    engine: Engine<u32, ()>,
    boot: u32,
    records: BTreeSet<Vec<u8>>,
    pub now: Time,
    /// The cached replies: the engine keeps their numbers.
    replies: Vec<Reply>,
    /// Whether OPENs give delegations.
    delegates: bool,
    /// CB_RECALLs on their way.
    pub recalls: Vec<(u32, StateId)>,
    /// Files whose last delegation was recalled.
    pub recalled: BTreeSet<u32>,
    rivals_opens: Vec<(ClientId, u32, state::StateId)>,
}

fn engine(boot: u32, records: &BTreeSet<Vec<u8>>, now: Time) -> Engine<u32, ()> {
    // No number of another run.
    let mut next = u64::from(boot) << 32;
    let random = Box::new(move || {
        next += 1;
        next
    });
    let limits = EngineLimits { descriptors: 1 << 20, channel: CHANNEL, ..EngineLimits::DEFAULT };
    let config = EngineConfig { boot, lease: LEASE, courtesy: 2 * LEASE, distrust: LEASE, limits };
    let recovered = records.iter().map(|instance| ClientRecord { instance: instance.clone(), holder: None });
    Engine::new(config, random, recovered, now.plus(LEASE))
}

const fn theirs(id: StateId) -> state::StateId {
    state::StateId { seqid: id.seqid, other: id.other }
}

const fn ours(id: state::StateId) -> StateId {
    StateId { seqid: id.seqid, other: id.other }
}

const fn by(client: ClientId) -> Requester {
    Requester { client, principal: PRINCIPAL }
}

impl Server {
    pub fn new(delegates: bool) -> Self {
        let (records, now) = (BTreeSet::new(), Time(0));
        Self {
            engine: engine(1, &records, now),
            boot: 1,
            records,
            now,
            replies: Vec::new(),
            delegates,
            recalls: Vec::new(),
            recalled: BTreeSet::new(),
            rivals_opens: Vec::new(),
        }
    }

    pub fn restart(&mut self) {
        self.apply_effects();
        self.boot += 1;
        (self.recalls, self.rivals_opens) = Default::default();
        self.engine = engine(self.boot, &self.records, self.now);
    }

    pub fn wait(&mut self, milliseconds: u64) {
        self.now = self.now.plus(milliseconds);
        self.engine.tick(self.now);
        self.apply_effects();
    }

    fn apply_effects(&mut self) {
        let effects = self.engine.take_effects(self.now);
        self.records.retain(|record| !effects.forget.contains(record));
        self.records.extend(effects.remember.into_iter().map(|record| record.instance));
        self.recalled.extend(effects.recalls.iter().map(|recall| recall.key));
        self.recalls.extend(effects.recalls.into_iter().map(|recall| (recall.key, ours(recall.id))));
    }

    /// EXCHANGE_ID: the client id, the sequence id, and whether it is confirmed.
    pub fn exchange_id(&mut self, owner: &str) -> (u64, u32, bool) {
        let (peer, owner) = (Peer::V4([192, 0, 2, 1]), owner.as_bytes());
        let args = ExchangeId { owner, peer, verifier: [1; 8], principal: &PRINCIPAL, update: false };
        let exchanged = self.engine.exchange_id(self.now, &args).expect("room for a client");
        self.apply_effects();
        (exchanged.client.0, exchanged.sequence, exchanged.confirmed)
    }

    /// CREATE_SESSION.
    pub fn create_session(&mut self, client: u64, sequence: u32) -> Result<SessionId, Error> {
        let args =
            CreateSession { client: ClientId(client), sequence, principal: &PRINCIPAL, channel: CHANNEL };
        let created = self.engine.create_session(self.now, &args);
        self.apply_effects();
        created.map(|created| created.session)
    }

    /// DESTROY_SESSION.
    pub fn destroy_session(&mut self, session: SessionId) {
        let _ = self.engine.destroy_session(session, &PRINCIPAL, None);
    }

    /// A COMPOUND arrives.
    pub fn receive(&mut self, message: &Message) -> Result<Reply, Error> {
        let Message { session, slot, sequence, highest, request, .. } = *message;
        let args = Sequence {
            session,
            sequence,
            slot,
            highest_slot: highest,
            fingerprint: request,
            length: 100,
            operations: 2,
        };
        let reply = match self.engine.sequence(self.now, &args)? {
            SequenceResult::Replay(cached) => self.replies[cached[0] as usize * 256 + cached[1] as usize],
            SequenceResult::New(ticket) => {
                let reclaim_needed = if ticket.reclaim_needed { 0x100 } else { 0 };
                let flags = reclaim_needed | if ticket.revoked { 0x40 } else { 0 };
                let result = self.run(ticket.client, message.operation);
                let delegation = match message.operation {
                    Operation::Open(_, file, share) if self.delegates && result.is_ok() => {
                        self.delegate(ticket.client, file, share)
                    }
                    _ => None,
                };
                let reply = Reply { highest: ticket.highest_slot, flags, result, delegation };
                let number = self.replies.len();
                self.engine.finish(&ticket, Some(&[(number / 256) as u8, (number % 256) as u8]));
                self.replies.push(reply);
                reply
            }
        };
        self.apply_effects();
        Ok(reply)
    }

    fn run(&mut self, client: ClientId, operation: Operation) -> Result<StateId, Error> {
        const NONE: StateId = StateId { seqid: 0, other: [0; 12] };
        let (now, by) = (self.now, by(client));
        match operation {
            Operation::Nothing => Ok(NONE),
            Operation::ReclaimComplete => self.engine.reclaim_complete(&by).map(|()| NONE),
            Operation::Open(owner, file, share) => self.open(client, owner, file, share, false),
            Operation::Change(owner, file, OpenChangeRequest::Open { share, claim }) => {
                if let OpenClaim::Delegation(id) = claim {
                    self.engine.check_delegation(client, &theirs(id), &file, share.access)?;
                }
                self.open(client, owner, file, share, claim == OpenClaim::Previous)
            }
            Operation::Change(_, file, OpenChangeRequest::Downgrade { id, to }) => {
                let to = state::Share { access: to.access, deny: to.deny };
                self.engine.downgrade(&by, &theirs(id), &file, to).map(ours)
            }
            Operation::Change(_, file, OpenChangeRequest::Close { id }) => {
                self.engine.close(&by, &theirs(id), &file).map(|()| NONE)
            }
            Operation::Return(file, id) => {
                self.engine.delegreturn(now, &by, &theirs(id), &file).map(|()| NONE)
            }
            Operation::Test(id) => {
                self.engine.test_stateid(client, &theirs(id)).map(|()| NONE).inspect_err(|_| {
                    let _ = self.engine.free_stateid(&by, &theirs(id));
                })
            }
            Operation::Lock(owner, file, request, open) => self.lock(client, owner, file, &request, open),
            Operation::Io(file, id, direction) => {
                self.engine.check_io(now, Some(client), &theirs(id), &file, direction).map(|()| NONE)
            }
        }
    }

    fn open(
        &mut self,
        client: ClientId,
        owner: u8,
        file: u32,
        share: Share,
        reclaim: bool,
    ) -> Result<StateId, Error> {
        let share = state::Share { access: share.access, deny: share.deny };
        let (by, owner) = (by(client), [owner]);
        let args =
            OpenRequest { by: &by, owner: &owner, key: &file, share, reclaim, under_delegation: false };
        self.engine.open(self.now, &args).map(ours)
    }

    fn delegate(&mut self, client: ClientId, key: u32, share: Share) -> Option<(StateId, DelegationKind)> {
        let writes = share.access & 2 != 0;
        let (by, peer) = (&by(client), Peer::V4([192, 0, 2, 1]));
        let args = DelegationRequest { by, peer, key: &key, writes, may_write: true, reclaim: false };
        let pending = self.engine.delegate_begin(self.now, &args).ok()?;
        let id = self.engine.delegate_done(&pending)?;
        self.recalled.remove(&key);
        Some((ours(id), if writes { DelegationKind::Write } else { DelegationKind::Read }))
    }

    fn lock(
        &mut self,
        client: ClientId,
        owner: u8,
        file: u32,
        request: &LockChangeRequest,
        open: StateId,
    ) -> Result<StateId, Error> {
        let (by, key) = (&by(client), &file);
        match *request {
            LockChangeRequest::Lock { id, range, kind, reclaim } => {
                let owner = [owner];
                let new = Locker::New { open: theirs(open), owner: &owner };
                let locker = id.map_or(new, |id| Locker::Existing(theirs(id)));
                let args = LockRequest { by, key, locker, range, kind, reclaim, waits: false };
                let pending = self.engine.lock_begin(self.now, &args)?.map_err(|_| Error::Locked)?;
                self.engine.lock_done(&pending, range, kind).map(ours)
            }
            LockChangeRequest::Unlock { id, range } => {
                let pending = self.engine.unlock_begin(by, &theirs(id), key, range)?;
                self.engine.unlock_done(&pending, range).map(ours)
            }
            LockChangeRequest::Free { id } => self.engine.free_stateid(by, &theirs(id)).map(|()| id),
        }
    }

    /// The rival locks a range, and unlocks it at once. Returns whether it could, if it could open the file.
    pub fn lock_by_rival(&mut self, file: u32, range: ByteRange, kind: LockKind) -> Option<bool> {
        if !self.open_by_rival(file, Share { access: 3, deny: 0 }) {
            return None;
        }
        let (client, _, id) = self.rivals_opens.pop().expect("it was opened");
        let lock = LockChangeRequest::Lock { id: None, range, kind, reclaim: false };
        let locked = self.lock(client, 0, file, &lock, ours(id));
        // This ends the lock.
        self.engine.close(&by(client), &id, &file).expect("it is open");
        self.apply_effects();
        Some(locked.is_ok())
    }

    /// The rival, another client, which isn't tested, opens a file. Returns whether it could.
    pub fn open_by_rival(&mut self, file: u32, share: Share) -> bool {
        let (client, sequence, confirmed) = self.exchange_id("rival");
        let id = ClientId(client);
        if !confirmed {
            self.create_session(client, sequence).expect("room for a session");
            self.engine.reclaim_complete(&by(id)).expect("the first time");
        }
        let owner = self.rivals_opens.len() as u8;
        let opened = self.open(id, owner, file, share, false);
        self.apply_effects();
        self.rivals_opens.extend(opened.map(|open| (id, file, theirs(open))));
        opened.is_ok()
    }

    /// The rival closes everything.
    pub fn close_by_rival(&mut self) {
        for (client, file, id) in std::mem::take(&mut self.rivals_opens) {
            // Its lease may have expired.
            let _ = self.engine.close(&by(client), &id, &file);
        }
        self.apply_effects();
    }

    /// The number of states.
    pub fn states(&self) -> usize {
        self.engine.counts().2
    }
}
