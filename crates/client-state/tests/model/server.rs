//! The server: its engine, which keeps replies as a session's slots do, and which restarts.

use std::collections::{BTreeMap, BTreeSet};

use client_state::{DelegationKind, LockChangeRequest, OpenChangeRequest, OpenClaim, Share, StateId};
use fairness::Peer;
use state::{
    ChannelAttrs, ClientId, ClientRecord, CreateSession, DelegationRequest, Engine, EngineConfig,
    EngineLimits, Error, ExchangeId, LockRequest, Locker, OpenRequest, Principal, RecordHolder, Requester,
    Sequence, SequenceResult, SessionId, Time,
};

use crate::messages::{Call, Compound, Executed, Message, Operation, Reply};
use crate::rival::Rival;

pub const LEASE: u64 = 1000;
pub const PRINCIPAL: Principal = Principal::Sys(0);
const CHANNEL: ChannelAttrs =
    ChannelAttrs { request: 4096, response: 4096, cached: 1024, operations: 8, slots: 4 };

pub struct Server {
    pub engine: Engine<u32, ()>,
    boot: u32,
    records: Records,
    pub now: Time,
    /// The cached replies: the engine keeps their numbers.
    replies: Vec<Executed>,
    /// The requests that were executed.
    executed: BTreeSet<u64>,
    /// The sessions by the client id and the sequence id of their CREATE_SESSION.
    created: BTreeMap<(u64, u32), SessionId>,
    /// The host's last client id that has had a session.
    confirmed: Option<u64>,
    /// When the host's lease was renewed last.
    renewed: Time,
    /// Sessions with a fault of their back channel.
    faulty: Vec<SessionId>,
    /// Whether OPENs give delegations.
    delegates: bool,
    /// CB_RECALLs on their way.
    pub recalls: Vec<(u32, StateId)>,
    /// CB_RECALLs don't arrive.
    loses_recalls: bool,
    /// Files whose last delegation was recalled.
    pub recalled: BTreeSet<u32>,
    pub rival: Rival,
}

/// The clients on stable storage, by instance.
type Records = BTreeMap<Vec<u8>, Option<RecordHolder>>;

fn engine(boot: u32, records: &Records, now: Time) -> Engine<u32, ()> {
    // No number of another run.
    let mut next = u64::from(boot) << 32;
    let random = Box::new(move || {
        next += 1;
        next
    });
    let limits = EngineLimits { descriptors: 1 << 20, channel: CHANNEL, ..EngineLimits::DEFAULT };
    let config = EngineConfig { boot, lease: LEASE, courtesy: 2 * LEASE, distrust: LEASE, limits };
    let record = |(instance, holder): (&Vec<u8>, &Option<RecordHolder>)| ClientRecord {
        instance: instance.clone(),
        holder: holder.clone(),
    };
    let recovered = records.iter().map(record);
    Engine::new(config, random, recovered, now.plus(LEASE))
}

pub const fn theirs(id: StateId) -> state::StateId {
    state::StateId { seqid: id.seqid, other: id.other }
}

pub const fn ours(id: state::StateId) -> StateId {
    StateId { seqid: id.seqid, other: id.other }
}

pub const fn by(client: ClientId) -> Requester {
    Requester { client, principal: PRINCIPAL }
}

impl Server {
    pub fn new(delegates: bool) -> Self {
        let (records, now) = (Records::new(), Time(0));
        Self {
            engine: engine(1, &records, now),
            boot: 1,
            records,
            now,
            replies: Vec::new(),
            executed: BTreeSet::new(),
            created: BTreeMap::new(),
            confirmed: None,
            renewed: now,
            faulty: Vec::new(),
            delegates,
            recalls: Vec::new(),
            loses_recalls: false,
            recalled: BTreeSet::new(),
            rival: Rival::default(),
        }
    }

    pub fn restart(&mut self) {
        self.apply_effects();
        self.boot += 1;
        self.recalls.clear();
        self.confirmed = None;
        self.rival.lose();
        self.engine = engine(self.boot, &self.records, self.now);
    }

    pub fn wait(&mut self, milliseconds: u64) {
        self.now = self.now.plus(milliseconds);
        self.engine.tick(self.now);
        self.apply_effects();
    }

    pub fn apply_effects(&mut self) {
        let effects = self.engine.take_effects(self.now);
        self.records.retain(|instance, _| !effects.forget.contains(instance));
        self.records.extend(effects.remember.into_iter().map(|record| (record.instance, record.holder)));
        self.recalled.extend(effects.recalls.iter().map(|recall| recall.key));
        if !self.loses_recalls {
            self.recalls.extend(effects.recalls.into_iter().map(|recall| (recall.key, ours(recall.id))));
        }
    }

    /// No CB_RECALL arrives before the client has another session.
    pub fn lose_recalls(&mut self) {
        self.loses_recalls = true;
        self.recalls.clear();
    }

    /// EXCHANGE_ID: the client id, the sequence id, and whether it is confirmed.
    pub fn exchange_id(&mut self, owner: &str, verifier: [u8; 8]) -> (u64, u32, bool) {
        let (peer, owner) = (Peer::V4([192, 0, 2, 1]), owner.as_bytes());
        let args = ExchangeId { owner, peer, verifier, principal: &PRINCIPAL, update: false };
        let exchanged = self.engine.exchange_id(self.now, &args).expect("room for a client");
        (exchanged.client.0, exchanged.sequence, exchanged.confirmed)
    }

    /// CREATE_SESSION. A repeated one names the same session.
    pub fn create_session(&mut self, client: u64, sequence: u32) -> Result<SessionId, Error> {
        let args =
            CreateSession { client: ClientId(client), sequence, principal: &PRINCIPAL, channel: CHANNEL };
        let session = self.engine.create_session(self.now, &args)?.session;
        assert_eq!(*self.created.entry((client, sequence)).or_insert(session), session, "it is done twice");
        Ok(session)
    }

    /// The session ends at the server.
    pub fn lose_session(&mut self, session: SessionId) {
        let _ = self.engine.destroy_session(session, &PRINCIPAL, None);
    }

    /// The session's back channel has a fault.
    pub fn break_session(&mut self, session: SessionId) {
        self.faulty.push(session);
    }

    /// A call of the host arrives.
    pub fn receive(&mut self, message: &Message) -> Result<Reply, Error> {
        if let Call::Compound(compound) = &message.call {
            let executed = self.execute(message.number, compound).map(Reply::Executed);
            self.apply_effects();
            return executed;
        }
        let rivals = self.rivals_states();
        let reply = self.establish(&message.call);
        self.apply_effects();
        assert_eq!(self.rivals_states(), rivals, "{message:?} is about another client");
        reply
    }

    /// A call that isn't in a session.
    fn establish(&mut self, call: &Call) -> Result<Reply, Error> {
        match *call {
            Call::ExchangeId(verifier) => {
                let (client, sequence, confirmed) = self.exchange_id("host", verifier);
                Ok(Reply::Exchanged { client, sequence, confirmed })
            }
            Call::CreateSession { client, sequence } => {
                let session = self.create_session(client, sequence)?;
                self.loses_recalls = false;
                if self.confirmed.replace(client) != Some(client) {
                    assert_eq!(self.states(), self.rivals_states(), "what the former instance had");
                }
                Ok(Reply::Created(session))
            }
            Call::DestroySession(session) => {
                self.engine.destroy_session(session, &PRINCIPAL, None)?;
                Ok(Reply::Destroyed)
            }
            Call::DestroyClientid(client) => {
                self.engine.destroy_clientid(&by(ClientId(client)))?;
                Ok(Reply::Destroyed)
            }
            Call::Compound(_) => unreachable!("it is in a session"),
        }
    }

    /// A COMPOUND is executed, or was before.
    fn execute(&mut self, number: u64, compound: &Compound) -> Result<Executed, Error> {
        let Compound { session, slot, sequence, highest, operation } = *compound;
        let args = Sequence {
            session,
            sequence,
            slot,
            highest_slot: highest,
            fingerprint: number,
            length: 100,
            operations: 2,
        };
        let ticket = match self.engine.sequence(self.now, &args)? {
            SequenceResult::Replay(cached) => {
                return Ok(self.replies[cached[0] as usize * 256 + cached[1] as usize]);
            }
            SequenceResult::New(ticket) => ticket,
        };
        assert!(self.executed.insert(number), "{compound:?} is executed twice");
        self.renewed = self.now;
        let reclaim_needed = if ticket.reclaim_needed { 0x100 } else { 0 };
        let fault = if self.faulty.contains(&session) { 0x400 } else { 0 };
        let flags = reclaim_needed | fault | if ticket.revoked { 0x40 } else { 0 };
        let result = self.run(ticket.client, operation);
        let delegation = match operation {
            Operation::Open(_, file, share) if self.delegates && result.is_ok() => {
                self.delegate(ticket.client, file, share)
            }
            _ => None,
        };
        let reply = Executed { highest: ticket.highest_slot, flags, result, delegation };
        let cached = self.replies.len();
        self.engine.finish(&ticket, Some(&[(cached / 256) as u8, (cached % 256) as u8]));
        self.replies.push(reply);
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

    pub fn open(
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

    pub fn lock(
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

    /// The sessions that have a fault.
    pub fn faulty_sessions(&self) -> usize {
        let is_there = |session: &&SessionId| self.engine.session_of(**session, &PRINCIPAL).is_ok();
        self.faulty.iter().filter(is_there).count()
    }

    /// Whether the host's lease hasn't expired, at this server or in its former run.
    pub fn has_lease(&self) -> bool {
        self.now < self.renewed.plus(LEASE)
    }

    /// Whether the server has a state of the host, or none of the host's because it has restarted since.
    pub fn has_state(&self, id: StateId) -> bool {
        let client = self.confirmed.map(ClientId);
        client.is_none_or(|client| self.engine.test_stateid(client, &theirs(id)).is_ok())
    }

    /// The host's sessions.
    pub fn sessions(&self) -> usize {
        self.engine.counts().1 - usize::from(self.has_rivals_session())
    }

    /// The number of states.
    pub fn states(&self) -> usize {
        self.engine.counts().2
    }
}
