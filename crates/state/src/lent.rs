//! Who has a delegation of one file: one for writing, or any number for reading, one a client. A file that
//! everybody reads has as many as there are clients, and none of them is looked at when another reader comes.

use std::collections::BTreeMap;

use crate::ids::ClientId;

/// The delegations of one file.
#[derive(Debug, Default)]
pub(crate) struct Lent {
    readers: BTreeMap<ClientId, u64>,
    writer: Option<(ClientId, u64)>,
}

impl Lent {
    pub fn is_empty(&self) -> bool {
        self.writer.is_none() && self.readers.is_empty()
    }

    /// The one for writing.
    pub fn writer(&self) -> Option<u64> {
        self.writer.map(|(_, state)| state)
    }

    /// One of the clients that have one.
    pub fn first(&self) -> Option<ClientId> {
        self.writer.map(|(writer, _)| writer).or_else(|| self.readers.keys().next().copied())
    }

    /// Whether the client has one.
    pub fn has(&self, client: ClientId) -> bool {
        self.readers.contains_key(&client) || self.writer.is_some_and(|(writer, _)| writer == client)
    }

    pub fn add(&mut self, client: ClientId, state: u64, writes: bool) {
        if writes {
            self.writer = Some((client, state));
        } else {
            self.readers.insert(client, state);
        }
    }

    pub fn remove(&mut self, client: ClientId) {
        self.readers.remove(&client);
        self.writer.take_if(|(writer, _)| *writer == client);
    }

    /// Those of others than `by`: all, or only one for writing.
    pub fn others(&self, by: Option<ClientId>, all: bool) -> Vec<u64> {
        let readers = all.then_some(&self.readers).into_iter().flatten();
        let all = self.writer.into_iter().chain(readers.map(|(client, state)| (*client, *state)));
        let others = all.filter(|(client, _)| Some(*client) != by);
        others.map(|(_, state)| state).collect()
    }
}
