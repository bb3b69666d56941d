//! An engine with small limits; the test controls its clock and random numbers.

use fairness::Peer;
use state::{
    ChannelAttrs, ClientId, ClientRecord, CreateSession, CreatedSession, DelegationRequest, Engine,
    EngineConfig, EngineLimits, ExchangeId, OpenRequest, Principal, Random, RecordHolder, Requester,
    Sequence, SequenceResult, SessionId, Share, SlotRequest, StateId, Time,
};

pub const LEASE: u64 = 1000;
pub const COURTESY: u64 = 10_000;
pub const DISTRUST: u64 = 5 * LEASE;

/// The principal of clients, and another one.
pub const ROOT: Principal = Principal::Sys(0);
pub const OTHER: Principal = Principal::Sys(1000);

/// A client's own principal.
pub const fn root(client: ClientId) -> Requester {
    Requester { client, principal: ROOT }
}

/// A request for a delegation by a client with its own address, whose user may write to the file.
pub const fn wants<'a>(by: &'a Requester, key: &'a u32, writes: bool) -> DelegationRequest<'a, u32> {
    let peer = Peer::Local(by.client.0 as u32);
    DelegationRequest { by, peer, key, writes, may_write: true, reclaim: false }
}

/// The same with a static lifetime, as requests borrow it.
pub fn leaked(client: ClientId) -> &'static Requester {
    Box::leak(Box::new(root(client)))
}

/// An engine whose files are numbers, and whose lock owners hold nothing open.
pub type Machine = Engine<u32, ()>;

pub const CHANNEL: ChannelAttrs =
    ChannelAttrs { request: 4096, response: 4096, cached: 1024, operations: 8, slots: 4 };

pub const LIMITS: EngineLimits = EngineLimits {
    clients: 16,
    sessions: 4,
    states: 16,
    all: 1 << 20,
    descriptors: 1 << 20,
    delegations: 8,
    client_delegations: 4,
    ranges: 8,
    waiting: 12,
    channel: CHANNEL,
    ..EngineLimits::DEFAULT
};

fn new(limits: EngineLimits, recovered: impl IntoIterator<Item = ClientRecord>) -> Machine {
    let mut next = 0;
    let random: Random = Box::new(move || {
        next += 1;
        next
    });
    let config = EngineConfig { boot: 7, lease: LEASE, courtesy: COURTESY, distrust: DISTRUST, limits };
    Engine::new(config, random, recovered, Time(LEASE))
}

/// The record on stable storage of a client of that name, as [`client`] makes it.
pub fn record(owner: &str) -> ClientRecord {
    ClientRecord { instance: recorded(owner), holder: RecordHolder::new(HERE, &ROOT) }
}

/// The instance of a client of that name, with the verifier that [`client`] gives it.
pub fn recorded(owner: &str) -> Vec<u8> {
    state::instance(owner.as_bytes(), [1; 8])
}

/// An engine after a restart with these clients recorded.
pub fn after(recovered: &[&str]) -> Machine {
    with_records(recovered.iter().map(|owner| record(owner)))
}

/// An engine after a restart with these records.
pub fn with_records(recovered: impl IntoIterator<Item = ClientRecord>) -> Machine {
    new(LIMITS, recovered)
}

/// An engine with other limits.
pub fn bounded(limits: EngineLimits) -> Machine {
    new(limits, [])
}

pub fn engine() -> Machine {
    after(&[])
}

/// The address of clients, and another one.
pub const HERE: Peer = Peer::V4([192, 0, 2, 1]);
pub const THERE: Peer = Peer::V4([192, 0, 2, 2]);

pub const fn named(owner: &str, verifier: u8) -> ExchangeId<'_> {
    ExchangeId {
        owner: owner.as_bytes(),
        peer: HERE,
        verifier: [verifier; 8],
        principal: &ROOT,
        update: false,
    }
}

pub const fn creation<'a>(client: ClientId, sequence: u32) -> CreateSession<'a> {
    CreateSession { client, sequence, principal: &ROOT, channel: CHANNEL }
}

/// One of many hosts.
pub const fn host(number: u32) -> Peer {
    Peer::V4(number.to_be_bytes())
}

/// As [`client`], at `peer`.
pub fn client_at(engine: &mut Machine, now: Time, peer: Peer, owner: &str) -> (ClientId, SessionId) {
    let exchanged =
        engine.exchange_id(now, &ExchangeId { peer, ..named(owner, 1) }).expect("room for a client");
    let created = engine.create_session(now, &creation(exchanged.client, exchanged.sequence));
    engine.reclaim_complete(&root(exchanged.client)).expect("the first time");
    (exchanged.client, created.expect("a session").session)
}

/// A client with one session that has nothing to reclaim.
pub fn client(engine: &mut Machine, now: Time, owner: &str) -> (ClientId, SessionId) {
    let (client, session) = fresh(engine, now, owner);
    engine.reclaim_complete(&root(client)).expect("the first time");
    (client, session)
}

/// A client with one session that may still have something to reclaim.
pub fn fresh(engine: &mut Machine, now: Time, owner: &str) -> (ClientId, SessionId) {
    let exchanged = engine.exchange_id(now, &named(owner, 1)).expect("room for a client");
    let created: CreatedSession =
        engine.create_session(now, &creation(exchanged.client, exchanged.sequence)).expect("a session");
    (exchanged.client, created.session)
}

pub const fn request(session: SessionId, slot: u32, sequence: u32) -> Sequence {
    Sequence { session, sequence, slot, highest_slot: 3, fingerprint: 1, length: 100, operations: 2 }
}

/// A request that runs.
pub fn begin(engine: &mut Machine, now: Time, session: SessionId, slot: u32, sequence: u32) -> SlotRequest {
    match engine.sequence(now, &request(session, slot, sequence)) {
        Ok(SequenceResult::New(ticket)) => ticket,
        other => panic!("not new: {other:?}"),
    }
}

pub fn open<'a>(
    client: ClientId,
    owner: &'a str,
    key: &'a u32,
    access: u8,
    deny: u8,
) -> OpenRequest<'a, u32> {
    open_as(leaked(client), owner, key, access, deny)
}

/// An open by one of a client's users.
pub const fn open_as<'a>(
    by: &'a Requester,
    owner: &'a str,
    key: &'a u32,
    access: u8,
    deny: u8,
) -> OpenRequest<'a, u32> {
    let share = Share { access, deny };
    OpenRequest { by, owner: owner.as_bytes(), key, share, reclaim: false, under_delegation: false }
}

/// The same state with any `seqid`.
pub const fn any(id: StateId) -> StateId {
    StateId { seqid: 0, ..id }
}
