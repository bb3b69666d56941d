//! A worker: waits for an event, and drives the connection that it is about.

use std::{
    mem::MaybeUninit,
    sync::{Arc, atomic::Ordering},
};

use rustix::{
    event::epoll::{self, EventFlags},
    io::Errno,
};

use super::{
    Verdict,
    back::Calls,
    connection::Connection,
    dispatch::{Caller, Dispatcher, Outcome},
    engine::{Engine, FIRST_LISTENER, STOP},
    memory::{BATCH, Chunk},
    receive::{Next, Received},
    send::Flushed,
    turn::Ticket,
};

/// How often a worker receives in a row before it lets other connections have their turn.
const ROUNDS: usize = 32;

/// One worker thread's state.
pub struct Worker {
    engine: Arc<Engine>,
    index: usize,
    dispatcher: Dispatcher,
    /// What small calls are received into.
    spare: Option<Arc<Chunk>>,
    /// Empty buffers for replies.
    replies: Vec<Vec<u8>>,
}

/// How a drive ends.
enum End {
    /// Nothing more to do for now.
    Release,
    /// Somebody else drives.
    Detached,
    /// The connection is of no use any more, and it is the peer's fault.
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
                listener.serve(&self.engine, number);
            } else if let Some(connection) = self.engine.registry.get(number) {
                self.drive(&connection, flags);
            }
        }
    }

    /// Drives `connection` as far as it goes.
    fn drive(&mut self, connection: &Arc<Connection>, flags: EventFlags) {
        let engine = Arc::clone(&self.engine);
        let activity = &engine.activity[self.index];
        activity.connection.store(connection.number(), Ordering::SeqCst);
        engine.wake_supervisor();
        let workers = &connection.workers;
        let may = workers.begin(engine.limits.threads, || engine.at_work());
        // Nobody waits to be closed.
        let goes_on = if may || engine.is_stopping() || flags.intersects(EventFlags::ERR | EventFlags::HUP) {
            self.drive_in_turn(&engine, connection, flags);
            workers.end()
        } else {
            // Not armed any more: who is done with the peer arms it again.
            workers.wait(connection.number())
        };
        activity.connection.store(0, Ordering::Release);
        engine.go_on(workers, goes_on);
        engine.serve_waiters();
        engine.reclaim_replies();
    }

    /// Drives `connection` if nobody else does.
    fn drive_in_turn(&mut self, engine: &Arc<Engine>, connection: &Arc<Connection>, flags: EventFlags) {
        let ticket = {
            let mut receive = connection.receive.lock();
            if receive.closed {
                return;
            }
            let Some(ticket) = receive.turn.claim(self.index) else { return };
            ticket
        };
        connection.use_now(engine);
        match self.steps(engine, connection, ticket, flags) {
            End::Release => self.release(engine, connection, ticket),
            End::Detached => self.leave(connection),
            End::Broken => {
                // The replies to what came before the breach, as far as they can go.
                let _ = connection.send.flush(connection, false, &mut self.replies);
                engine.close(connection, true);
                self.release(engine, connection, ticket);
            }
        }
    }

    /// Sends, runs, receives, in turns.
    fn steps(
        &mut self,
        engine: &Arc<Engine>,
        connection: &Arc<Connection>,
        ticket: Ticket,
        flags: EventFlags,
    ) -> End {
        let placing = engine.programs.iter().any(|program| program.places());
        let step = &engine.activity[self.index].steps;
        let mut replies_wait = !connection.send.state().1;
        if flags.intersects(EventFlags::ERR)
            || (flags.contains(EventFlags::HUP) && !flags.contains(EventFlags::IN))
        {
            return End::Broken;
        }
        let mut writable = flags.contains(EventFlags::OUT);
        for _ in 0..ROUNDS {
            if replies_wait {
                step.fetch_add(1, Ordering::Relaxed);
                match connection.send.flush(connection, writable, &mut self.replies) {
                    Flushed::Done => {}
                    Flushed::Blocked => return End::Release,
                    Flushed::Broken => return End::Broken,
                }
                replies_wait = false;
                writable = false;
            }
            loop {
                let verdict = connection.verdict(engine);
                let (chunk, range, is_cut) = {
                    let mut receive = connection.receive.lock();
                    if !receive.turn.holds(ticket) {
                        return End::Detached;
                    }
                    if receive.closed || receive.queued {
                        return End::Release;
                    }
                    step.fetch_add(1, Ordering::Relaxed);
                    match receive.next(placing.then_some(&engine.programs[..]), verdict != Verdict::Admitted)
                    {
                        Ok(Next::Call(chunk, range)) => (chunk, range, false),
                        Ok(Next::Cut(chunk, range)) => (chunk, range, true),
                        Ok(Next::Receive) => break,
                        Ok(Next::Permit(bytes)) => {
                            match engine.memory.request(&connection.asker(), bytes) {
                                Some(permit) => {
                                    receive.begin_large(permit, &engine.memory);
                                    continue;
                                }
                                None => {
                                    receive.queued = true;
                                    // Not before the replies that are ready have gone.
                                    break;
                                }
                            }
                        }
                        Err(error) => {
                            tracing::debug!(peer = %connection.peer.address, %error, "broken stream");
                            return End::Broken;
                        }
                    }
                };
                let hand_over = || self_hand_over(engine, connection, ticket, self.index);
                if Calls::is_reply(&chunk.bytes[range.clone()]) {
                    let expected = connection.back.answer(&chunk.bytes[range]);
                    self.put_back(chunk);
                    if expected {
                        continue;
                    }
                    return End::Broken;
                }
                let caller = Caller { engine, connection, verdict, is_cut };
                let outcome = self.dispatcher.run(&caller, &chunk.bytes[range], &hand_over);
                self.put_back(chunk);
                match outcome {
                    Outcome::Reply(payload) => {
                        let waiting =
                            connection.send.push(&mut self.dispatcher.buffer, payload, &mut self.replies);
                        replies_wait = true;
                        if waiting >= engine.limits.reply_queue as u64 {
                            step.fetch_add(1, Ordering::Relaxed);
                            match connection.send.flush(connection, false, &mut self.replies) {
                                Flushed::Done => replies_wait = false,
                                Flushed::Blocked => return self.stopped_by_replies(connection, ticket),
                                Flushed::Broken => return End::Broken,
                            }
                        }
                    }
                    Outcome::Silence => {}
                    Outcome::NoCall => return End::Broken,
                }
            }
            if replies_wait {
                step.fetch_add(1, Ordering::Relaxed);
                match connection.send.flush(connection, false, &mut self.replies) {
                    Flushed::Done => {}
                    Flushed::Blocked => return self.stopped_by_replies(connection, ticket),
                    Flushed::Broken => return End::Broken,
                }
                replies_wait = false;
            }
            let mut receive = connection.receive.lock();
            if !receive.turn.holds(ticket) {
                return End::Detached;
            }
            if receive.closed || receive.queued || receive.ended || engine.is_stopping() {
                return End::Release;
            }
            match receive.receive(connection, &mut self.spare, placing) {
                Ok(Received::Some { .. }) => {}
                Ok(Received::Nothing) => return End::Release,
                Ok(Received::End) => {
                    receive.ended = true;
                    return End::Release;
                }
                Err(error) => {
                    tracing::debug!(peer = %connection.peer.address, %error, "connection lost");
                    return End::Broken;
                }
            }
        }
        End::Release
    }

    /// The socket is full. If somebody else drives by now, it is his to wait.
    fn stopped_by_replies(&self, connection: &Connection, ticket: Ticket) -> End {
        if connection.receive.lock().turn.holds(ticket) { End::Release } else { End::Detached }
    }

    /// Gives the turn back, and arms the connection for what comes next; or closes it, if nothing will.
    fn release(&mut self, engine: &Arc<Engine>, connection: &Arc<Connection>, ticket: Ticket) {
        let mut receive = connection.receive.lock();
        if !receive.turn.holds(ticket) {
            drop(receive);
            return self.leave(connection);
        }
        if let Some(bytes) = receive.wants_permit() {
            match engine.memory.request(&connection.asker(), bytes) {
                Some(permit) => receive.begin_large(permit, &engine.memory),
                None => receive.queued = true,
            }
        }
        let held = receive.rest(&mut self.spare);
        let held = if receive.queued { held } else { 0 };
        if held != receive.held && !engine.memory.hold(&connection.asker(), &mut receive.held, held) {
            tracing::info!(
                peer = %connection.peer.address, "closed: too many connections of its peer wait for receive \
                                                  memory"
            );
            drop(receive);
            engine.close(connection, true);
            return self.release(engine, connection, ticket);
        }
        receive.turn.release(ticket);
        self.settle(connection, receive);
    }

    /// The end for a worker whose turn was taken over.
    fn leave(&mut self, connection: &Arc<Connection>) {
        // Whatever comes of it is seen below: a full socket by arming, a broken one by the next event.
        let _ = connection.send.flush(connection, false, &mut self.replies);
        let mut receive = connection.receive.lock();
        receive.turn.leave();
        self.settle(connection, receive);
    }

    /// After a worker has left: whoever leaves last must see to it that somebody comes, or closes the
    /// connection.
    fn settle(
        &self,
        connection: &Arc<Connection>,
        receive: parking_lot::MutexGuard<'_, super::receive::Receive>,
    ) {
        if receive.closed {
            let quiet = receive.turn.is_quiet();
            drop(receive);
            if quiet {
                self.engine.gone(connection);
            }
            return;
        }
        if receive.turn.is_driven() {
            return;
        }
        let stopping = self.engine.is_stopping();
        let interest = connection.interest(&receive, stopping);
        let nothing_to_send = !interest.contains(EventFlags::OUT) && connection.send.state().1;
        if receive.turn.is_quiet() && (receive.ended || stopping) && nothing_to_send {
            drop(receive);
            self.engine.close(connection, false);
            return;
        }
        // With nobody detached and no grant of memory to come, nobody else arms this connection before the
        // event that we ask for. Then the lock can go first, and the worker that gets the event doesn't run
        // into it.
        if receive.turn.is_quiet() && !receive.queued {
            drop(receive);
            let armed = connection.arm_for(&self.engine.epoll, interest);
            self.armed(connection, armed);
            if !stopping && self.engine.is_stopping() {
                connection.finish(&self.engine.epoll); // may have come before we armed
            }
        } else {
            let armed = connection.arm_for(&self.engine.epoll, interest);
            drop(receive);
            self.armed(connection, armed);
        }
    }

    /// An armed connection is left to itself; one that can't be armed is closed.
    fn armed(&self, connection: &Arc<Connection>, armed: Result<(), Errno>) {
        // NOENT: it has been closed meanwhile.
        if let Err(error) = armed
            && error != Errno::NOENT
        {
            tracing::error!(peer = %connection.peer.address, %error, "can't wait for the connection any \
                                                                      more");
            self.engine.close(connection, false);
        }
    }

    /// Done with a received buffer.
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

/// The driver gives its turn away in the middle of a call.
fn self_hand_over(engine: &Engine, connection: &Connection, ticket: Ticket, worker: usize) {
    let mut receive = connection.receive.lock();
    if receive.turn.holds(ticket) && receive.turn.take_over(worker, engine.max_detached()) {
        arm_after_take_over(engine, connection, &receive);
    }
}

/// The turn has been taken from a driver: the connection must not wait for it.
pub fn arm_after_take_over(engine: &Engine, connection: &Connection, receive: &super::receive::Receive) {
    if !receive.closed
        && let Err(error) = connection.arm(&engine.epoll, receive, engine.is_stopping())
    {
        tracing::error!(peer = %connection.peer.address, %error, "can't wait for the connection any more");
    }
}
