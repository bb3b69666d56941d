//! OPENs with deny modes that other clients' opens refused, and that are worth another attempt.
//!
//! A client may send the CLOSE of a file some time after the application's close(2): it collects several, or
//! its kernel reports the last close(2) late. An OPEN that denies what such an open is for would fail
//! although nobody uses the file. So its client is told to try again (`NFS4ERR_DELAY`) until [`CLOSE_TIME`]
//! has passed, and only then that another open is in the way.
//!
//! Invariant: each client has at most [`MAX_FILES`] of these.

use std::hash::Hash;

use ahash::HashMap;

use crate::engine::Time;
use crate::ids::ClientId;

/// How long the CLOSE of a file that nobody uses may take, in milliseconds. Linux's client sends a request
/// that was delayed again after 100 ms.
const CLOSE_TIME: u64 = 100;

/// After this time, in milliseconds, a further OPEN of the file begins anew.
const REMEMBERED: u64 = 1000;

/// The files of a client. Further ones are refused at once.
const MAX_FILES: usize = 16;

/// The files that the clients couldn't open, and when the first OPEN was refused.
#[derive(Debug)]
pub(crate) struct DeniedOpens<K> {
    clients: HashMap<ClientId, Vec<(K, Time)>>,
}

impl<K> Default for DeniedOpens<K> {
    fn default() -> Self {
        Self { clients: HashMap::default() }
    }
}

impl<K: Clone + Eq + Hash> DeniedOpens<K> {
    /// An OPEN of a client is refused. Returns whether another attempt may succeed soon.
    pub fn refused(&mut self, now: Time, client: ClientId, key: &K) -> bool {
        let files = self.clients.entry(client).or_default();
        files.retain(|(_, since)| now < since.plus(REMEMBERED));
        if let Some((_, since)) = files.iter().find(|(file, _)| file == key) {
            return now < since.plus(CLOSE_TIME);
        }
        let has_room = files.len() < MAX_FILES;
        if has_room {
            files.push((key.clone(), now));
        }
        has_room
    }

    /// The client has ended.
    pub fn end_client(&mut self, client: ClientId) {
        self.clients.remove(&client);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: ClientId = ClientId(1);

    #[test]
    fn a_refused_open_is_worth_attempts_for_a_short_time() {
        let mut opens = DeniedOpens::default();
        assert!(opens.refused(Time(5000), ME, &7));
        assert!(opens.refused(Time(5099), ME, &7));
        assert!(!opens.refused(Time(5100), ME, &7));
        assert!(opens.refused(Time(5100), ClientId(2), &7), "another client's attempts are its own");
        assert!(!opens.refused(Time(5999), ME, &7));
        assert!(opens.refused(Time(6000), ME, &7));
        opens.end_client(ME);
        assert_eq!(opens.clients.len(), 1);
    }

    #[test]
    fn a_client_with_many_files_is_refused_at_once() {
        let mut opens = DeniedOpens::default();
        let delayed = (0..1000).filter(|key| opens.refused(Time(0), ME, key)).count();
        assert_eq!((delayed, opens.clients[&ME].len()), (MAX_FILES, MAX_FILES));
        assert!(!opens.refused(Time(REMEMBERED - 1), ME, &999));
        assert!(opens.refused(Time(REMEMBERED), ME, &999), "the others are forgotten");
    }
}
