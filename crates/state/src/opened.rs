//! Who has one file open for what, counted by client: what is against an open, and what goes when one is
//! closed, is found without looking at every open, of which a file may have a hundred thousand.

use crate::ids::ClientId;
use crate::share::Share;

/// The opens of one file.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    all: Counts,
    /// By client.
    clients: Vec<(ClientId, Counts)>,
}

/// How many opens there are, and how many of them for reading, for writing, against others' reading and
/// writing.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    opens: u32,
    access: [u32; 2],
    deny: [u32; 2],
}

impl Counts {
    fn add(&mut self, share: Share) {
        self.opens += 1;
        for bit in 0..2 {
            self.access[bit] += u32::from(share.access >> bit & 1);
            self.deny[bit] += u32::from(share.deny >> bit & 1);
        }
    }

    fn remove(&mut self, share: Share) {
        self.opens -= 1;
        for bit in 0..2 {
            self.access[bit] -= u32::from(share.access >> bit & 1);
            self.deny[bit] -= u32::from(share.deny >> bit & 1);
        }
    }

    /// The union of all opens.
    const fn union(&self) -> Share {
        Share { access: bits(self.access), deny: bits(self.deny) }
    }
}

/// Which of the two are there.
const fn bits(counts: [u32; 2]) -> u8 {
    (counts[0] > 0) as u8 | ((counts[1] > 0) as u8) << 1
}

impl Opened {
    pub const fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// A client has opened the file.
    pub fn add(&mut self, client: ClientId, share: Share) {
        self.all.add(share);
        match self.find(client) {
            Ok(at) => self.clients[at].1.add(share),
            Err(at) => {
                if self.clients.is_empty() {
                    // Most files are opened by one.
                    self.clients.reserve_exact(1);
                }
                self.clients.insert(at, (client, Counts::default()));
                self.clients[at].1.add(share);
            }
        }
    }

    /// A client has closed what it had opened so.
    pub fn remove(&mut self, client: ClientId, share: Share) {
        let Ok(at) = self.find(client) else { return };
        self.all.remove(share);
        self.clients[at].1.remove(share);
        if self.clients[at].1.opens == 0 {
            self.clients.remove(at);
        }
    }

    /// Whether the client has it open.
    pub fn has(&self, client: ClientId) -> bool {
        self.find(client).is_ok()
    }

    /// One of those that have it open.
    pub fn first(&self) -> Option<ClientId> {
        self.clients.first().map(|(client, _)| *client)
    }

    /// The clients that have it open against `share`.
    pub fn against(&self, share: Share) -> Vec<ClientId> {
        if !self.all.union().conflicts(share) {
            return Vec::new();
        }
        let against = self.clients.iter().filter(|(_, counts)| counts.union().conflicts(share));
        against.map(|(client, _)| *client).collect()
    }

    /// For what the client has it open, and for what others have.
    pub fn access(&self, client: ClientId) -> (u8, u8) {
        let Ok(at) = self.find(client) else { return (0, self.all.union().access) };
        let own = &self.clients[at].1;
        let others = [0, 1].map(|bit| self.all.access[bit] - own.access[bit]);
        (own.union().access, bits(others))
    }

    fn find(&self, client: ClientId) -> Result<usize, usize> {
        self.clients.binary_search_by_key(&client, |(client, _)| *client)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
        #[test]
        fn counts_say_what_the_list_of_opens_says(
            steps in proptest::collection::vec((0_u64..4, 1_u8..4, 0_u8..4, any::<Option<prop::sample::Index>>()), 1..60)
        ) {
            let (mut opened, mut list) = (Opened::default(), Vec::new());
            for (client, access, deny, close) in steps {
                let share = Share { access, deny };
                if let (Some(which), false) = (close, list.is_empty()) {
                    let (client, share) = list.swap_remove(which.index(list.len()));
                    opened.remove(client, share);
                } else {
                    opened.add(ClientId(client), share);
                    list.push((ClientId(client), share));
                }
                let mut against: Vec<ClientId> =
                    list.iter().filter(|(_, held)| held.conflicts(share)).map(|(client, _)| *client).collect();
                against.sort_unstable();
                against.dedup();
                prop_assert_eq!(opened.against(share), against);
                prop_assert_eq!(opened.is_empty(), list.is_empty());
                let access = |own| {
                    let of = list.iter().filter(|(of, _)| (of.0 == client) == own);
                    of.fold(0, |all, (_, share): &(ClientId, Share)| all | share.access)
                };
                prop_assert_eq!(opened.access(ClientId(client)), (access(true), access(false)));
            }
        }
    }
}
