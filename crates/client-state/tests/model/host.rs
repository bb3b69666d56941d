//! The client: the parts of the crate put together as a client uses them, with applications, and a network
//! that delays, loses and repeats messages.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use client_state::{
    ByteRange, Delegations, LockAnswer, LockChange, LockChangeRequest, LockError, LockKind, Locks, NoState,
    OpenChange, OpenChangeRequest, OpenRef, Opening, Opens, SessionError, Share, SlotError, SlotTable,
    StateError, StateId, StateManager, Step, TakenSlot, Unanswered,
};
use state::{Direction, Error, SessionId};

use crate::server::{LEASE, Message, Operation, Reply, Server};

/// An application's open file.
pub struct App {
    pub open: OpenRef<u32, u8>,
    pub share: Share,
    /// Its READs, WRITEs and LOCKs that aren't done.
    io: u32,
}

/// A request until it is done, in one session or several.
#[derive(Debug)]
enum Task {
    /// SEQUENCE alone.
    Renew,
    ReclaimComplete,
    /// SEQUENCE alone, in the slot of an abandoned request.
    Probe,
    Open(Opening<u8>, u32, Share),
    Change(OpenChange<u32, u8>),
    /// LOCK for an application, which may not wait for it any more; or for none.
    Lock(LockChange<u32, u8>, Option<u64>, bool),
    /// The end of an application's open file, when its locks are free.
    Close(OpenRef<u32, u8>),
    /// I/O of an open file, with this state id.
    Io(u64, StateId),
    Return(u32, StateId),
    Test(Tested, u32, StateId),
}

/// The kinds of states, with the owner.
#[derive(Debug, Clone, Copy)]
enum Tested {
    Open(u8),
    Lock(u8),
    Delegation,
}

/// A request that was sent.
struct Sent {
    task: Task,
    taken: TakenSlot,
    message: Message,
    at: Instant,
    reply: Option<Result<Reply, Error>>,
}

pub struct Host {
    start: Instant,
    pub manager: StateManager,
    pub opens: Opens<u32, u8>,
    /// An open owner is a process, which is a lock owner, too.
    pub locks: Locks<u32, u8>,
    pub delegations: Delegations<u32>,
    is_testing: bool,
    /// The session's number and id, and its slots.
    session: Option<(u64, SessionId, SlotTable)>,
    /// The last losses that opens and locks were reclaimed for.
    losses: (u64, u64),
    queue: Vec<Task>,
    sent: Vec<Sent>,
    network: Vec<Message>,
    pub apps: BTreeMap<u64, App>,
    last_number: u64,
    /// The server has lost what the client had.
    pub has_lost_state: bool,
}

impl Host {
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            manager: StateManager::new(Duration::from_millis(LEASE)),
            opens: Opens::default(),
            locks: Locks::default(),
            delegations: Delegations::default(),
            is_testing: false,
            session: None,
            losses: (0, 0),
            queue: Vec::new(),
            sent: Vec::new(),
            network: Vec::new(),
            apps: BTreeMap::new(),
            last_number: 0,
            has_lost_state: false,
        }
    }

    pub fn now(&self, server: &Server) -> Instant {
        self.start + Duration::from_millis(server.now.0)
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// Whether a process has a lock of a byte that conflicts with another's, and may rely on that.
    pub fn relies_on_lock(&self, server: &Server, file: u32, byte: u64, kind: LockKind) -> bool {
        let conflicting = if kind == LockKind::Write { LockKind::Read } else { LockKind::Write };
        let byte = ByteRange { first: byte, last: byte };
        let holds = |owner| self.locks.holds(&file, &owner, byte, conflicting);
        !self.is_recalled(server, file)
            && self.manager.is_lease_valid(self.now(server))
            && (0..crate::OWNERS).any(holds)
    }

    /// The file is open and the client may rely on that.
    pub fn relies_on(&self, server: &Server, app: &App) -> bool {
        !self.is_recalled(server, *app.open.file())
            && self.manager.is_lease_valid(self.now(server))
            && self.opens.io_id(&app.open).is_ok()
    }

    /// The client has a delegation that was recalled, which may take too long: it is revoked then.
    fn is_recalled(&self, server: &Server, file: u32) -> bool {
        server.recalled.contains(&file) && self.delegations.state_ids().any(|(on, _)| *on == file)
    }

    pub fn open(&mut self, server: &Server, owner: u8, file: u32, share: Share) {
        if self.manager.is_lease_valid(self.now(server))
            && let Some(open) = self.delegations.open(&mut self.opens, &file, owner, share)
        {
            let number = self.number();
            self.apps.insert(number, App { open, share, io: 0 });
            return;
        }
        let opening = self.opens.opening(owner);
        self.queue.push(Task::Open(opening, file, share));
    }

    /// A CB_RECALL arrives. If its delegation isn't known yet it comes again.
    pub fn recall(&mut self, server: &mut Server, which: usize) {
        if let Some(at) = which.checked_rem(server.recalls.len()) {
            let (file, id) = server.recalls[at];
            let is_opening = self.has(|task| matches!(task, Task::Open(..)));
            if self.delegations.recall(&mut self.opens, &file, id) || !is_opening {
                server.recalls.swap_remove(at);
            }
        }
    }

    pub fn return_all(&mut self) {
        self.delegations.recall_any(&mut self.opens, 0);
    }

    /// An application closes a file, if none of its I/O is outstanding. That ends its process' locks.
    pub fn close(&mut self, which: usize) {
        let Some((number, app)) = pick(&self.apps, which).filter(|(_, app)| app.io == 0) else { return };
        let _ = app;
        let app = self.apps.remove(&number).expect("it was picked");
        self.locks.release(app.open.file(), app.open.owner());
        self.queue.push(Task::Close(app.open));
    }

    pub fn io(&mut self, which: usize) {
        let Some((number, _)) = pick(&self.apps, which) else { return };
        self.apps.get_mut(&number).expect("it was picked").io += 1;
        let none = StateId { seqid: 0, other: [0; 12] };
        self.queue.push(Task::Io(number, none));
    }

    pub fn lock(&mut self, which: usize, range: ByteRange) {
        let Some((number, app)) = pick(&self.apps, which) else { return };
        let kind = if app.share.access & 2 != 0 { LockKind::Write } else { LockKind::Read };
        if let LockAnswer::Ask(change) = self.locks.lock(*app.open.file(), *app.open.owner(), range, kind) {
            self.queue.push(Task::Lock(change, Some(number), false));
            self.apps.get_mut(&number).expect("it was picked").io += 1;
        }
    }

    pub fn unlock(&mut self, which: usize, range: ByteRange) {
        let Some((_, app)) = pick(&self.apps, which) else { return };
        self.locks.unlock(app.open.file(), app.open.owner(), range);
    }

    /// Signals interrupt all applications that wait for locks.
    pub fn interrupt(&mut self) {
        for task in self.queue.iter_mut().chain(self.sent.iter_mut().map(|sent| &mut sent.task)) {
            if let Task::Lock(_, Some(_), is_given_up) = task {
                *is_given_up = true;
            }
        }
    }

    /// A message arrives, and perhaps again later.
    pub fn deliver(&mut self, server: &mut Server, which: usize, again: bool) {
        if self.network.is_empty() {
            return;
        }
        let at = which % self.network.len();
        let message = if again { self.network[at] } else { self.network.swap_remove(at) };
        let reply = server.receive(&message);

        if let Some(sent) = self.sent.iter_mut().find(|sent| sent.message.request == message.request) {
            sent.reply = Some(reply);
        }
    }

    /// The connections are lost, and with them replies: everything is sent again.
    pub fn reconnect(&mut self, server: &Server) {
        for sent in &mut self.sent {
            sent.reply = None;
            self.network.push(sent.message);
        }
        self.manager.disconnected(self.now(server));
    }

    /// Nothing waits for the reply of an I/O request any more.
    pub fn abandon(&mut self, which: usize) {
        let io: Vec<_> =
            (0..self.sent.len()).filter(|at| matches!(self.sent[*at].task, Task::Io(..))).collect();
        let Some((_, _, slots)) = self.session.as_mut().filter(|_| !io.is_empty()) else { return };
        let sent = self.sent.swap_remove(io[which % io.len()]);
        slots.abandon(sent.taken);
        let Task::Io(number, _) = sent.task else { return };
        self.apps.get_mut(&number).expect("it waits for I/O").io -= 1;
    }

    /// A request that finds out whether the server still has the session.
    pub fn renew(&mut self) {
        self.queue.push(Task::Renew);
    }

    /// The session ends at the server. Not while an OPEN is on its way: if the server had executed it, and
    /// then refused its repetition, no request could close what it has opened.
    pub fn destroy_session(&mut self, server: &mut Server) {
        let is_opening = self.sent.iter().any(|sent| match &sent.task {
            Task::Open(..) => true,
            Task::Change(change) => matches!(change.request(), OpenChangeRequest::Open { .. }),
            _ => false,
        });
        if let Some((_, session, _)) = self.session.as_ref().filter(|_| !is_opening) {
            server.destroy_session(*session);
        }
    }

    /// Whether everything is done: nothing waits, and the server has had a request lately.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty() && self.sent.is_empty() && self.network.is_empty() && self.manager.is_ready()
    }

    /// Takes the steps of the state manager that can be taken, and sends what can be sent.
    pub fn run(&mut self, server: &mut Server) {
        loop {
            self.take_changes();
            match self.manager.step(self.now(server)) {
                Step::ExchangeId => {
                    let (client, sequence, confirmed) = server.exchange_id("host");
                    self.manager.exchanged(client, sequence, confirmed);
                }
                Step::CreateSession { client, sequence } => match server.create_session(client, sequence) {
                    Ok(session) => {
                        self.manager.session_created();
                        self.session = Some((self.manager.session(), session, SlotTable::new(4)));
                    }
                    Err(_) => self.manager.session_refused(),
                },
                Step::DestroySession => unreachable!("the slots agree"),
                Step::BindConnections => self.manager.bound(),
                Step::Reclaim { loss } => {
                    if loss != self.losses.0 {
                        self.losses.0 = loss;
                        self.recover();
                        self.has_lost_state |= self.has(is_reclaim);
                    } else if self.has(is_reclaim) {
                        break;
                    } else if loss != self.losses.1 {
                        self.losses.1 = loss;
                        self.locks.recover();
                    } else {
                        self.manager.reclaimed(loss);
                    }
                }
                Step::ReclaimComplete => {
                    if !self.has(|task| matches!(task, Task::ReclaimComplete)) {
                        self.queue.push(Task::ReclaimComplete);
                    }
                    break;
                }
                Step::TestStates => {
                    if self.has(|task| matches!(task, Task::Test(..))) {
                        break;
                    }
                    self.test();
                }
                Step::Renew => {
                    if !self.has(|task| matches!(task, Task::Renew)) {
                        self.queue.push(Task::Renew);
                    }
                    break;
                }
                Step::Wait(_) => break,
            }
        }
        self.send(server);
        // An application's close doesn't need to be sent, and leads to a CLOSE.
        self.take_changes();
        self.send(server);
    }

    /// Begins to test all states, or ends it.
    fn test(&mut self) {
        self.is_testing = !self.is_testing;
        if !self.is_testing {
            self.manager.tested();
            return;
        }
        let opens = self.opens.state_ids();
        self.queue.extend(opens.map(|(file, owner, id)| Task::Test(Tested::Open(*owner), *file, id)));
        let locks = self.locks.state_ids();
        self.queue.extend(locks.map(|(file, owner, id)| Task::Test(Tested::Lock(*owner), *file, id)));
        let delegations = self.delegations.state_ids();
        self.queue.extend(delegations.map(|(file, id)| Task::Test(Tested::Delegation, *file, id)));
    }

    /// The server doesn't have a state.
    fn gone(&mut self, tested: Tested, file: u32, id: StateId) {
        match tested {
            Tested::Open(owner) => self.opens.gone(&file, &owner, id),
            Tested::Lock(owner) => self.locks.gone(&file, &owner, id),
            Tested::Delegation => self.delegations.gone(&mut self.opens, &mut self.locks, &file, id),
        }
    }

    /// Begins to reclaim everything. Reclaims of an earlier session are over.
    fn recover(&mut self) {
        self.delegations.recover();
        self.opens.recover();
        for task in std::mem::take(&mut self.queue) {
            match task {
                Task::Change(change) if change.is_reclaim() => {
                    self.opens.changed(change, Err(StateError::Refused));
                }
                task => self.queue.push(task),
            }
        }
        self.take_changes();
    }

    fn take_changes(&mut self) {
        let returns = self.delegations.take_returns(&self.opens, &mut self.locks);
        self.queue.extend(returns.into_iter().map(|(file, id)| Task::Return(file, id)));
        self.queue.extend(self.opens.take_changes().into_iter().map(Task::Change));
        let locks = self.locks.take_changes().into_iter();
        self.queue.extend(locks.map(|change| Task::Lock(change, None, false)));
    }

    fn has(&self, is_it: fn(&Task) -> bool) -> bool {
        self.queue.iter().chain(self.sent.iter().map(|sent| &sent.task)).any(is_it)
    }

    fn send(&mut self, server: &Server) {
        let at = self.now(server);
        let Some((_, session, slots)) = &mut self.session else { return };
        let session = *session;
        let mut probes: Vec<_> = std::iter::from_fn(|| slots.take_abandoned()).collect();
        for taken in probes.drain(..) {
            self.transmit(at, session, Task::Probe, taken, Operation::Nothing);
        }
        for task in std::mem::take(&mut self.queue) {
            let may = self.manager.is_ready()
                || matches!(task, Task::Renew | Task::ReclaimComplete)
                || is_reclaim(&task);
            let Some((task, operation)) = self.prepare(task) else { continue };
            let Some((_, _, slots)) = self.session.as_mut().filter(|_| may) else {
                self.queue.push(task);
                continue;
            };
            match (operation, slots.available()) {
                (Some(operation), 1..) => {
                    let taken = slots.take().expect("there are some");
                    self.transmit(at, session, task, taken, operation);
                }
                _ => self.queue.push(task),
            }
        }
    }

    /// The operation of a task, if it can be sent now. `None` for a task that is done without.
    fn prepare(&mut self, task: Task) -> Option<(Task, Option<Operation>)> {
        let operation = match &task {
            Task::Renew | Task::Probe => Operation::Nothing,
            Task::ReclaimComplete => Operation::ReclaimComplete,
            Task::Open(opening, file, share) => Operation::Open(*opening.owner(), *file, *share),
            Task::Change(change) => Operation::Change(*change.owner(), *change.file(), change.request()),
            Task::Return(file, id) => Operation::Return(*file, *id),
            Task::Test(_, _, id) => Operation::Test(*id),
            Task::Lock(..) => return self.prepare_lock(task),
            Task::Close(open) => {
                let is_it = |app: &App| app.open.file() == open.file() && app.open.owner() == open.owner();
                let is_last = !self.apps.values().any(is_it);
                if is_last && !self.locks.is_free(open.file(), open.owner()) {
                    return Some((task, None));
                }
                let Task::Close(open) = task else { return None };
                self.opens.close(open);
                return None;
            }
            Task::Io(number, _) => {
                let app = self.apps.get_mut(number).expect("it waits for I/O");
                let direction = if app.share.access & 2 != 0 { Direction::Write } else { Direction::Read };
                match self.opens.io_id(&app.open) {
                    Ok(id) => {
                        let by_lock = self.locks.io_id(app.open.file(), app.open.owner());
                        let id = by_lock.unwrap_or(id);
                        let io = Operation::Io(*app.open.file(), id, direction);
                        return Some((Task::Io(*number, id), Some(io)));
                    }
                    Err(NoState::Recovering) => return Some((task, None)),
                    Err(NoState::Lost) => {
                        app.io -= 1;
                        return None;
                    }
                }
            }
        };
        Some((task, Some(operation)))
    }

    fn prepare_lock(&mut self, task: Task) -> Option<(Task, Option<Operation>)> {
        let Task::Lock(change, number, is_given_up) = task else { return None };
        let (file, owner) = (*change.file(), *change.owner());
        let Some(request) = self.locks.request(&change) else {
            self.end_io(number);
            return None;
        };
        let is_it = |app: &&App| *app.open.file() == file && *app.open.owner() == owner;
        let app = number.map_or_else(|| self.apps.values().find(is_it), |number| self.apps.get(&number));
        let open = app.map_or(Err(NoState::Lost), |app| self.opens.io_id(&app.open));
        let is_first = matches!(request, LockChangeRequest::Lock { id: None, .. });
        let open = match open {
            Ok(open) => open,
            Err(_) if !is_first => StateId { seqid: 0, other: [0; 12] },
            Err(NoState::Recovering) if !change.is_reclaim() => {
                return Some((Task::Lock(change, number, is_given_up), None));
            }
            Err(_) => {
                self.locks.changed(change, Err(LockError::State(StateError::Refused)));
                self.end_io(number);
                return None;
            }
        };
        let operation = Operation::Lock(owner, file, request, open);
        Some((Task::Lock(change, number, is_given_up), Some(operation)))
    }

    /// A request of an application is done.
    fn end_io(&mut self, number: Option<u64>) {
        if let Some(number) = number {
            self.apps.get_mut(&number).expect("it waits").io -= 1;
        }
    }

    fn transmit(
        &mut self,
        at: Instant,
        session: SessionId,
        task: Task,
        taken: TakenSlot,
        operation: Operation,
    ) {
        let (slot, sequence, highest) = (taken.slot(), taken.sequence(), taken.highest());
        let message = Message { request: self.number(), session, slot, sequence, highest, operation };
        self.network.push(message);
        self.sent.push(Sent { task, taken, message, at, reply: None });
    }

    /// A reply arrives.
    pub fn receive(&mut self, which: usize) {
        let replied: Vec<_> = (0..self.sent.len()).filter(|at| self.sent[*at].reply.is_some()).collect();
        if replied.is_empty() {
            return;
        }
        let sent = self.sent.swap_remove(replied[which % replied.len()]);
        let (number, _, slots) = self.session.as_mut().expect("it was sent in a session");
        let reply = match sent.reply.expect("it has a reply") {
            Ok(reply) => reply,
            Err(Error::BadSession) => {
                self.manager.failed(*number, SessionError::Unknown);
                self.session = None;
                self.queue.push(sent.task);
                // The others' replies would be the same.
                self.queue.extend(self.sent.drain(..).map(|sent| sent.task));
                self.queue.retain(|task| !matches!(task, Task::Probe | Task::Renew | Task::ReclaimComplete));
                return;
            }
            Err(Error::SeqFalseRetry) => {
                assert!(matches!(sent.task, Task::Probe), "{:?}", sent.task);
                assert_eq!(slots.failed(sent.taken, SlotError::SeqFalseRetry), Unanswered::ReplyLost);
                return;
            }
            Err(error) => panic!("{error}: {:?}", sent.message),
        };
        slots.answered(sent.taken, reply.highest, reply.highest);
        self.manager.sequenced(*number, sent.at, reply.flags);
        let delegation = reply.delegation.map(|delegation| (sent.message.operation, delegation));
        self.done(sent.task, reply.result);
        if let Some((Operation::Open(_, file, _), (id, kind))) = delegation {
            self.delegations.granted(&mut self.opens, &mut self.locks, file, id, kind);
        }
    }

    fn done(&mut self, task: Task, result: Result<StateId, Error>) {
        match (task, result) {
            (task, Err(Error::Grace | Error::Delay)) => self.queue.push(task),
            (Task::Renew | Task::Probe | Task::Close(_), _) => {}
            (Task::ReclaimComplete, result) => {
                // A session may end between the two.
                assert!(matches!(result, Ok(_) | Err(Error::CompleteAlready)), "{result:?}");
                self.manager.reclaim_completed();
            }
            (Task::Open(opening, file, share), Ok(id)) => {
                let open = self.opens.opened(opening, file, share, id);
                let number = self.number();
                self.apps.insert(number, App { open, share, io: 0 });
            }
            (Task::Open(opening, ..), Err(error)) => {
                assert_eq!(error, Error::ShareDenied);
                self.opens.not_opened(opening);
            }
            (Task::Change(change), result) => self.opens.changed(change, result.map_err(state_error)),
            (Task::Lock(change, number, is_given_up), result) => {
                match result {
                    Ok(id) if is_given_up => self.locks.given_up(change, id),
                    result => self.locks.changed(change, result.map(Some).map_err(lock_error)),
                }
                self.end_io(number);
            }
            (Task::Return(file, id), _) => self.delegations.returned(&mut self.opens, &file, id),
            (Task::Test(..), Ok(_)) => {}
            (Task::Test(tested, file, id), Err(_)) => {
                self.has_lost_state = true;
                self.gone(tested, file, id);
            }
            (Task::Io(number, _), Ok(_)) => self.end_io(Some(number)),
            (Task::Io(number, id), Err(error)) => {
                let app = &self.apps[&number];
                assert_eq!(state_error(error), StateError::Gone, "the state allows the I/O");
                // A lock's state ends with the lock. A delegation that isn't returned in time is revoked.
                let by_lock = self.locks.io_id(app.open.file(), app.open.owner());
                let is_current = by_lock == Some(id) || self.opens.io_id(&app.open) == Ok(id);
                let is_delegation = self.delegations.state_ids().any(|(_, revoked)| revoked == id);
                self.has_lost_state |= is_current && is_delegation;
                assert!(self.has_lost_state || !is_current, "it ends with the server's run or the lease");
                let (file, owner) = (*app.open.file(), *app.open.owner());
                for tested in [Tested::Open(owner), Tested::Lock(owner), Tested::Delegation] {
                    self.gone(tested, file, id);
                }
                self.queue.push(Task::Io(number, id));
            }
        }
    }
}

const fn is_reclaim(task: &Task) -> bool {
    match task {
        Task::Change(change) => change.is_reclaim(),
        Task::Lock(change, ..) => change.is_reclaim(),
        _ => false,
    }
}

fn lock_error(error: Error) -> LockError {
    if error == Error::Locked { LockError::Denied } else { LockError::State(state_error(error)) }
}

fn state_error(error: Error) -> StateError {
    match error {
        Error::OldStateid => StateError::Old,
        Error::BadStateid | Error::Expired | Error::DelegRevoked => StateError::Gone,
        Error::NoGrace | Error::ReclaimConflict => StateError::NoReclaim,
        _ => StateError::Refused,
    }
}

fn pick(apps: &BTreeMap<u64, App>, which: usize) -> Option<(u64, &App)> {
    let (number, app) = apps.iter().nth(which.checked_rem(apps.len())?)?;
    Some((*number, app))
}
