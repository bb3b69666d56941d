//! NFSv4 clients, and what servers do for them.
//!
//! A client believes that it has its locks for a lease after it sent the last renewal that was answered. A
//! client that could have reclaimed, and is refused, is a violation.

use std::collections::BTreeSet;

use samehost_cluster::Service;

use crate::mutations::Mutation;
use crate::world::{FILES, LEASE, Violation, World};

/// A client.
#[derive(Debug)]
pub struct Client {
    /// The node whose address it has mounted.
    pub home: usize,
    /// The files that it has locked.
    pub holds: BTreeSet<u64>,
    /// The run of the server that knows it.
    pub run: Option<usize>,
    /// The session in which the server holds its locks.
    session: Option<usize>,
    pub renewed: u64,
    pub paused: u64,
    /// The ticks since then in which the network, or it, didn't work.
    unable: u64,
}

impl Client {
    pub fn new(home: usize) -> Self {
        let (holds, run, session) = (BTreeSet::new(), None, None);
        Self { home, holds, run, session, renewed: 0, paused: 0, unable: 0 }
    }
}

impl World {
    /// A client does something, if it runs.
    pub fn client_step(&mut self, id: usize) -> Result<(), Violation> {
        let host = self.hosts[self.clients[id].home].address;
        let (now, service) = (self.now, self.service(host));
        if self.clients[id].paused > now || self.hosts[host].no_clients > now {
            self.clients[id].unable += 1;
            return Ok(());
        }
        let Some(run) = &mut self.hosts[host].run else { return Ok(()) };
        let is_known = self.clients[id].run == Some(run.number);
        let service = match service {
            Some(Service::Silent) if is_known && self.mutation == Some(Mutation::NeverSilent) => {
                Service::Normal
            }
            None | Some(Service::Silent) => return Ok(()),
            Some(service) => service,
        };
        if !is_known {
            return self.attach(id, host, service);
        }
        let Some(renewed) = run.clients.get_mut(&id) else {
            // Its lease has expired.
            self.clients[id].run = None;
            return self.lose(id, "expired");
        };
        *renewed = now;
        let client = &mut self.clients[id];
        (client.renewed, client.unable) = (now, 0);
        if self.random.below(3) == 0 {
            let file = self.random.below(FILES);
            let run = self.hosts[host].run.as_ref();
            let session = run.map_or(0, |run| run.session);
            if self.clients[id].holds.contains(&file) {
                if self.hosts[host].no_metadata <= now && self.random.below(4) == 0 {
                    self.clients[id].holds.remove(&file);
                    self.sessions[session].locks.remove(&file);
                }
            } else if (service == Service::Normal || self.is(Mutation::GiveInGrace)) && self.record(host, id)
            {
                self.begin_grant(host, id, file);
            }
        }
        Ok(())
    }

    /// Records a client before it gets state, if that is possible now.
    fn record(&mut self, host: usize, id: usize) -> bool {
        let epoch = self.hosts[host].run.as_ref().and_then(|run| run.records);
        let Some(epoch) = epoch.filter(|_| self.hosts[host].no_rados <= self.now) else { return false };
        self.records.entry((epoch, host)).or_default().insert(id);
        true
    }

    /// The client meets a new run of its server.
    fn attach(&mut self, id: usize, host: usize, service: Service) -> Result<(), Violation> {
        let now = self.now;
        let Some(run) = &self.hosts[host].run else { return Ok(()) };
        let (number, session) = (run.number, run.session);
        if !self.clients[id].holds.is_empty() {
            let is_late = self.is(Mutation::ReclaimLate) || self.is(Mutation::RecoverWithoutGrace);
            let accepts = run.accepts && (service == Service::Grace || is_late);
            if !accepts && service == Service::Grace {
                // It is told to try again.
                return Ok(());
            }
            if !accepts || !run.may_reclaim.contains(&id) {
                return self.lose(id, "refused");
            }
            if self.hosts[host].no_metadata > now || !self.record(host, id) {
                self.clients[id].unable += 1;
                return Ok(());
            }
            for file in self.clients[id].holds.clone() {
                if !self.try_lock(session, id, file) {
                    return self.lose(id, "conflicts");
                }
                let renewed = self.clients[id].renewed;
                let mut others = self.held.iter().filter(|((of, holder), _)| *of == file && *holder != id);
                if others.any(|(_, at)| *at > renewed) {
                    let text = format!("tick {now}: {id} reclaims {file}, which others had meanwhile");
                    return Err(Violation(text));
                }
            }
        }
        let client = &mut self.clients[id];
        (client.run, client.session) = (Some(number), Some(session));
        (client.renewed, client.unable) = (now, 0);
        if let Some(run) = &mut self.hosts[host].run {
            run.clients.insert(id, now);
            run.may_reclaim.remove(&id);
        }
        Ok(())
    }

    /// The client has lost its locks. It must have been away, or the filesystem must have dropped them.
    fn lose(&mut self, id: usize, how: &str) -> Result<(), Violation> {
        let client = &mut self.clients[id];
        let was_away = client.unable + 2 >= LEASE;
        let was_dropped = client.session.is_some_and(|session| self.sessions[session].timed_out);
        if !(was_away || was_dropped || client.holds.is_empty()) {
            let holds = &client.holds;
            return Err(Violation(format!("tick {}: client {id} with {holds:?}: {how}", self.now)));
        }
        client.holds.clear();
        self.end_grants(id);
        let client = &mut self.clients[id];
        client.unable = 0;
        // What its server still holds for it goes with the old client.
        for session in &mut self.sessions {
            session.locks.retain(|_, holder| *holder != id);
        }
        Ok(())
    }

    /// A LOCK that was begun is done.
    pub fn grant(&mut self, host: usize, id: usize, file: u64) {
        let (now, service) = (self.now, self.service(host));
        let Some(run) = &self.hosts[host].run else { return };
        let (number, session) = (run.number, run.session);
        let is_heard = self.clients[id].paused <= now && self.hosts[host].no_clients <= now;
        let is_known = self.clients[id].run == Some(number) && run.clients.contains_key(&id);
        let is_silent = service == Some(Service::Silent) && !self.is(Mutation::NeverSilent);
        if is_heard && is_known && !is_silent && self.try_lock(session, id, file) {
            self.clients[id].holds.insert(file);
        }
    }
}
