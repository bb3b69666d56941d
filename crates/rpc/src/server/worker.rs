//! A worker: waits for an event and drives the connection that it concerns.

use std::{
    mem::MaybeUninit,
    sync::{Arc, atomic::Ordering},
};

use rustix::{
    event::epoll::{self, EventFlags},
    io::Errno,
};

use super::{
    Verdict, accepting,
    callbacks::PendingCallbacks,
    connection::Connection,
    dispatch::{CallOutcome, Caller, Dispatcher},
    engine::{Engine, FIRST_LISTENER, STOP},
    memory::{BATCH, Chunk},
    receive::{Next, Received},
    send::Flushed,
    turn::Ticket,
};

/// The most receives in a row before other connections get their turn.
const ROUNDS: usize = 32;

/// One worker thread's state.
pub struct Worker {
    engine: Arc<Engine>,
    index: usize,
    dispatcher: Dispatcher,
    /// The buffer for small calls.
    spare: Option<Arc<Chunk>>,
    /// Empty reply buffers.
    replies: Vec<Vec<u8>>,
}

/// Why a drive ended.
enum DriveEnd {
    /// Nothing is left to do for now.
    Release,
    /// Another worker drives.
    Detached,
    /// The peer broke the protocol, the connection is lost, or it is to be closed.
    Broken,
}

impl Worker {
    /// The worker number `index`.
    pub fn new(engine: Arc<Engine>, index: usize) -> Self {
        Self { engine, index, dispatcher: Dispatcher::new(), spare: None, replies: Vec::new() }
    }

    /// Works until the engine ends.
    pub fn run(mut self) {
        let mut events = [MaybeUninit::uninit(); 1];
        while !self.engine.ended.load(Ordering::Acquire) {
            let event = match epoll::wait(&self.engine.epoll, &mut events, None) {
                Ok((events, _)) => events.first().copied(),
                Err(Errno::INTR) => continue,
                Err(error) => {
                    tracing::error!(%error, "epoll_wait failed; this worker ends");
                    return;
                }
            };
            let Some(event) = event else { continue };
            let (number, flags) = (event.data.u64(), event.flags);
            if number == STOP {
                continue;
            }
            let listener =
                usize::try_from(number - FIRST_LISTENER).ok().and_then(|i| self.engine.listeners.get(i));
            if let Some(listener) = listener {
                accepting::serve(&self.engine, listener, number);
            } else if let Some(connection) = self.engine.registry.get(number) {
                self.drive(&connection, flags);
            }
        }
    }

    /// Drives `connection` as far as possible.
    fn drive(&mut self, connection: &Arc<Connection>, flags: EventFlags) {
        let engine = Arc::clone(&self.engine);
        let activity = &engine.activity[self.index];
        activity.connection.store(connection.number(), Ordering::SeqCst);
        engine.wake_supervisor();
        let workers = &connection.workers;
        let may = workers.begin(engine.limits.threads, || engine.busy_workers());
        // A connection that is to be closed doesn't wait in line.
        let goes_on = if may || engine.is_stopping() || flags.intersects(EventFlags::ERR | EventFlags::HUP) {
            self.drive_in_turn(&engine, connection, flags);
            workers.end()
        } else {
            // The connection isn't armed. The next worker that leaves the peer arms it.
            workers.wait(connection.number())
        };
        activity.connection.store(0, Ordering::Release);
        engine.resume_first(workers, goes_on);
        engine.serve_waiters();
        engine.reclaim_replies();
    }

    /// Drives `connection` if it has no driver.
    fn drive_in_turn(&mut self, engine: &Arc<Engine>, connection: &Arc<Connection>, flags: EventFlags) {
        let ticket = {
            let mut receive = connection.receive.lock();
            if receive.closed {
                return;
            }
            let Some(ticket) = receive.turn.claim(self.index) else { return };
            ticket
        };
        connection.use_now(engine.moment());
        match self.steps(engine, connection, ticket, flags) {
            DriveEnd::Release => self.release(engine, connection, ticket),
            DriveEnd::Detached => self.leave(connection),
            DriveEnd::Broken => {
                // Send the replies to earlier calls as far as the socket takes them.
                let _ = connection.send.flush(&connection.transport, false, &mut self.replies);
                engine.close(connection, true);
                self.release(engine, connection, ticket);
            }
        }
    }

    /// Sends, runs and receives in turns.
    fn steps(
        &mut self,
        engine: &Arc<Engine>,
        connection: &Arc<Connection>,
        ticket: Ticket,
        flags: EventFlags,
    ) -> DriveEnd {
        let aligning = connection.transport.capabilities().placed_receive
            && engine.programs.iter().any(|program| program.aligns_payloads());
        let step = &engine.activity[self.index].steps;
        let mut replies_wait = !connection.send.is_idle();
        if flags.intersects(EventFlags::ERR)
            || (flags.contains(EventFlags::HUP) && !flags.contains(EventFlags::IN))
        {
            return DriveEnd::Broken;
        }
        let mut writable = flags.contains(EventFlags::OUT);
        for _ in 0..ROUNDS {
            if replies_wait {
                step.fetch_add(1, Ordering::Relaxed);
                match connection.send.flush(&connection.transport, writable, &mut self.replies) {
                    Flushed::Done => {}
                    Flushed::Blocked => return DriveEnd::Release,
                    Flushed::Broken => return DriveEnd::Broken,
                }
                replies_wait = false;
                writable = false;
            }
            loop {
                let verdict = connection.verdict(&*engine.admission);
                let (chunk, range, is_cut) = {
                    let mut receive = connection.receive.lock();
                    if !receive.turn.holds(ticket) {
                        return DriveEnd::Detached;
                    }
                    if receive.closed || receive.queued {
                        return DriveEnd::Release;
                    }
                    step.fetch_add(1, Ordering::Relaxed);
                    match receive.next(aligning.then_some(&engine.programs[..]), verdict != Verdict::Admitted)
                    {
                        Ok(Next::Call(chunk, range)) => (chunk, range, false),
                        Ok(Next::Cut(chunk, range)) => (chunk, range, true),
                        Ok(Next::Receive) => break,
                        Ok(Next::Permit(bytes)) => {
                            match engine.memory.request(&connection.requester(), bytes) {
                                Some(permit) => {
                                    receive.begin_large(permit, &engine.memory);
                                    continue;
                                }
                                None => {
                                    receive.queued = true;
                                    // Replies that are ready go out first.
                                    break;
                                }
                            }
                        }
                        Err(error) => {
                            tracing::debug!(peer = %connection.peer.address, %error, "broken stream");
                            return DriveEnd::Broken;
                        }
                    }
                };
                let hand_over = || self_hand_over(engine, connection, ticket, self.index);
                if PendingCallbacks::is_reply(&chunk.bytes[range.clone()]) {
                    let expected = connection.callbacks.deliver(&chunk.bytes[range]);
                    self.put_back(chunk);
                    if expected {
                        continue;
                    }
                    return DriveEnd::Broken;
                }
                let caller = Caller { engine, connection, verdict, is_cut };
                let outcome = self.dispatcher.run(&caller, &chunk.bytes[range], &hand_over);
                self.put_back(chunk);
                match outcome {
                    CallOutcome::Reply(payload) => {
                        let enough =
                            connection.send.push(&mut self.dispatcher.buffer, payload, &mut self.replies);
                        replies_wait = true;
                        if enough {
                            step.fetch_add(1, Ordering::Relaxed);
                            match connection.send.flush(&connection.transport, false, &mut self.replies) {
                                Flushed::Done => replies_wait = false,
                                Flushed::Blocked => return self.stopped_by_replies(connection, ticket),
                                Flushed::Broken => return DriveEnd::Broken,
                            }
                        }
                    }
                    CallOutcome::Silence => {}
                    CallOutcome::Disconnect | CallOutcome::NoCall => return DriveEnd::Broken,
                }
            }
            if replies_wait {
                step.fetch_add(1, Ordering::Relaxed);
                match connection.send.flush(&connection.transport, false, &mut self.replies) {
                    Flushed::Done => {}
                    Flushed::Blocked => return self.stopped_by_replies(connection, ticket),
                    Flushed::Broken => return DriveEnd::Broken,
                }
                replies_wait = false;
            }
            let mut receive = connection.receive.lock();
            if !receive.turn.holds(ticket) {
                return DriveEnd::Detached;
            }
            if receive.closed || receive.queued || receive.ended || engine.is_stopping() {
                return DriveEnd::Release;
            }
            match receive.receive(&connection.transport, &mut self.spare, aligning) {
                Ok(Received::Some { .. }) => {}
                Ok(Received::Nothing) => return DriveEnd::Release,
                Ok(Received::End) => {
                    receive.ended = true;
                    return DriveEnd::Release;
                }
                Err(error) => {
                    tracing::debug!(peer = %connection.peer.address, %error, "connection lost");
                    return DriveEnd::Broken;
                }
            }
        }
        DriveEnd::Release
    }

    /// No call may be run for now. If another worker drives by now, this one only leaves.
    fn stopped_by_replies(&self, connection: &Connection, ticket: Ticket) -> DriveEnd {
        if connection.receive.lock().turn.holds(ticket) { DriveEnd::Release } else { DriveEnd::Detached }
    }

    /// Gives the turn back, and arms the connection for the next event, or closes it if there will be none.
    fn release(&mut self, engine: &Arc<Engine>, connection: &Arc<Connection>, ticket: Ticket) {
        let mut receive = connection.receive.lock();
        if !receive.turn.holds(ticket) {
            drop(receive);
            return self.leave(connection);
        }
        if let Some(bytes) = receive.wants_permit() {
            match engine.memory.request(&connection.requester(), bytes) {
                Some(permit) => receive.begin_large(permit, &engine.memory),
                None => receive.queued = true,
            }
        }
        let held = receive.rest(&mut self.spare);
        let held = if receive.queued { held } else { 0 };
        if held != receive.held && !engine.memory.hold(&connection.requester(), &mut receive.held, held) {
            tracing::info!(
                peer = %connection.peer.address, "closed: too many connections of its peer wait for receive \
                                                  memory"
            );
            drop(receive);
            engine.close(connection, true);
            return self.release(engine, connection, ticket);
        }
        receive.turn.release(ticket);
        engine.settle(connection, receive);
    }

    /// Ends the work of a worker whose turn was taken over.
    fn leave(&mut self, connection: &Arc<Connection>) {
        // A full socket shows when the connection is armed.
        if connection.send.flush(&connection.transport, false, &mut self.replies) == Flushed::Broken {
            self.engine.close(connection, true);
        }
        let mut receive = connection.receive.lock();
        receive.turn.leave();
        self.engine.settle(connection, receive);
    }

    /// Takes a received buffer back.
    fn put_back(&mut self, chunk: Arc<Chunk>) {
        let Some(Chunk { bytes, permit }) = Arc::into_inner(chunk) else { return };
        if permit.is_some() {
            self.engine.memory.recycle(bytes);
            drop(permit);
            self.engine.serve_waiters();
        } else if self.spare.is_none() && bytes.len() == BATCH {
            self.spare = Some(Arc::new(Chunk { bytes, permit: None }));
        }
    }
}

/// The driver gives up its turn in the middle of a call.
fn self_hand_over(engine: &Engine, connection: &Connection, ticket: Ticket, worker: usize) {
    let mut receive = connection.receive.lock();
    if receive.turn.holds(ticket) && receive.turn.take_over(worker, engine.max_detached()) {
        arm_after_take_over(engine, connection, &receive);
    }
}

/// Arms a connection whose turn was taken from its driver, so that it doesn't wait for that driver.
pub fn arm_after_take_over(engine: &Engine, connection: &Connection, receive: &super::receive::Receive) {
    if !receive.closed
        && let Err(error) = connection.arm(&engine.epoll, receive, engine.is_stopping())
    {
        tracing::error!(peer = %connection.peer.address, %error, "can't wait for the connection any more");
    }
}
