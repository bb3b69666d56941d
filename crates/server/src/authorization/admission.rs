//! Who is served at all: the exports, asked about a connection and not about a file.
//!
//! Much that a client does names no file: it sets up an NFSv4 client and its sessions, or asks for a lane. A
//! peer that no export names has no business with any of it. [`rpc::server`] asks here when it accepts a
//! connection and again whenever exports or host names have changed, and denies a stranger everything but
//! NULL and MOUNT.
//!
//! This comes before the one check (`access`) and takes nothing from it: every call that names a file is
//! checked there against that file's export.

use std::sync::Arc;

use exports::Names;
use rpc::server::{Admission, Peer, Verdict};

use crate::authorization::access::{FIRST_UNPRIVILEGED_PORT, Gate, Refusal};
use crate::authorization::local_users;
use crate::export_table::Entry;
use crate::service::Service;

/// Admits the peers that an export names which is being served.
pub(crate) struct ByExports(pub Arc<Service>);

impl Admission for ByExports {
    fn generation(&self) -> u64 {
        self.0.gate.generation()
    }

    fn verdict(&self, peer: &Peer) -> Verdict {
        let gate = &self.0.gate;
        verdict(gate, peer, &gate.names.at_once())
    }

    fn wait_for_verdict(&self, peer: &Peer) -> Verdict {
        let gate = &self.0.gate;
        verdict(gate, peer, &gate.names)
    }
}

/// Whether any export is for `peer`.
fn verdict(gate: &Gate, peer: &Peer, names: &dyn Names) -> Verdict {
    let mut verdict = Verdict::Stranger;
    for entry in gate.table().entries() {
        match is_for(entry, peer, names) {
            Verdict::Admitted => return Verdict::Admitted,
            Verdict::NotKnownYet => verdict = Verdict::NotKnownYet,
            Verdict::Stranger => {}
        }
    }
    verdict
}

/// Whether an export is for `peer`, whatever its user may do there: whether the address and, for `secure`,
/// the port are those of one of its clients, and, for a server that serves its own user only, whether the
/// process is that user's.
fn is_for(entry: &Entry, peer: &Peer, names: &dyn Names) -> Verdict {
    match Gate::client_of(entry, peer.address, names) {
        Ok(options) if options.secure && peer.address.port() >= FIRST_UNPRIVILEGED_PORT => Verdict::Stranger,
        Ok(options) if !options.all_act_as_server_user && !serves_process(entry, peer) => Verdict::Stranger,
        Ok(_) => Verdict::Admitted,
        Err(Refusal::NotKnownYet) => Verdict::NotKnownYet,
        Err(_) => Verdict::Stranger,
    }
}

/// Whether everything is done as the user who asks, or this is a process of the user that everything is done
/// as.
fn serves_process(entry: &Entry, peer: &Peer) -> bool {
    entry.served_as().is_none_or(|user| local_users::is_process_served_as(user, peer.owner))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use exports::{Exports, NoNames};
    use rpc::server::TcpOwner;

    use super::*;
    use crate::authorization::resolver::Resolver;
    use crate::export_table::io_modes::Switches;
    use crate::export_table::{Opening, Table};

    fn peer(address: &str) -> Peer {
        let address: SocketAddr = address.parse().unwrap();
        Peer { connection: 1, address, local: address, owner: TcpOwner::Remote }
    }

    fn table(lines: &[(&std::path::Path, &str)]) -> Table {
        let opening = Opening {
            key: store::HandleKey::new([1; 16]),
            verifier: Arc::default(),
            limits: store::DescriptorLimits::default(),
        };
        let text: String =
            lines.iter().map(|(path, clients)| format!("{} {clients}\n", path.display())).collect();
        Table::open(&Exports::parse(&text, "t").unwrap(), &opening, &Table::default())
    }

    #[test]
    fn a_peer_is_admitted_by_address_and_port_of_an_export_that_is_served() {
        let [one, other] = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let missing = one.path().join("missing");
        let lines = [
            (one.path(), "192.0.2.1(rw) 192.0.2.2(rw,insecure)"),
            (other.path(), "192.0.2.1(ro,insecure) 192.0.2.4"),
            (&missing, "192.0.2.3(rw,insecure)"),
        ];
        let gate = Gate::new(table(&lines), Switches::default());
        for (address, expected) in [
            ("192.0.2.1:1024", Verdict::Admitted), // by the second export
            ("192.0.2.2:1024", Verdict::Admitted),
            ("192.0.2.4:1023", Verdict::Admitted),
            ("192.0.2.4:1024", Verdict::Stranger),
            ("192.0.2.3:700", Verdict::Stranger), // nothing of it is served
            ("192.0.2.5:700", Verdict::Stranger),
        ] {
            assert_eq!(verdict(&gate, &peer(address), &NoNames), expected, "{address}");
        }
        let generation = gate.generation();
        gate.replace(table(&lines[..1]));
        assert_ne!(gate.generation(), generation);
        assert_eq!(verdict(&gate, &peer("192.0.2.4:700"), &NoNames), Verdict::Stranger);
    }

    #[test]
    fn who_cannot_be_told_yet_is_no_stranger() {
        let dir = tempfile::tempdir().unwrap();
        let names = Resolver::in_vain();
        let gate =
            Gate::new(table(&[(dir.path(), "slow.example(rw) 192.0.2.0/24(ro)")]), Switches::default());
        assert_eq!(verdict(&gate, &peer("192.0.2.1:700"), &names.at_once()), Verdict::NotKnownYet);
        assert_eq!(verdict(&gate, &peer("192.0.2.1:700"), &names), Verdict::NotKnownYet);
    }
}
