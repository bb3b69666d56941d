//! Admission of connections: whether any export names the peer.
//!
//! Some requests name no file: those that set up an NFSv4 client or session, or a lane. They are refused to
//! peers that no export names. [`rpc::server`] requests the verdict when it accepts a connection and whenever
//! exports or host names have changed, and denies a stranger everything but NULL and MOUNT.
//!
//! This check comes in addition to [`access`](super::access), where every call that names a file is checked
//! against that file's export.

use std::net::SocketAddr;
use std::sync::Arc;

use exports::Names;
use rpc::server::{Admission, Peer, Verdict};

use crate::authorization::access::{AccessControl, FIRST_UNPRIVILEGED_PORT, Refusal};
use crate::authorization::local_users;
use crate::export_table::ExportEntry;
use crate::service::Service;

/// Admits the peers that any served export names.
pub(crate) struct ExportAdmission(pub Arc<Service>);

impl Admission for ExportAdmission {
    fn generation(&self) -> u64 {
        self.0.access.generation()
    }

    fn verdict(&self, peer: &Peer) -> Verdict {
        let access = &self.0.access;
        verdict(access, peer, &access.names.at_once())
    }

    fn wait_for_verdict(&self, peer: &Peer) -> Verdict {
        let access = &self.0.access;
        verdict(access, peer, &access.names)
    }
}

/// Whether any export names `peer`.
fn verdict(access: &AccessControl, peer: &Peer, names: &dyn Names) -> Verdict {
    let mut verdict = Verdict::Stranger;
    for entry in access.table().entries() {
        match is_for(entry, peer, names) {
            Verdict::Admitted => return Verdict::Admitted,
            Verdict::NotKnownYet => verdict = Verdict::NotKnownYet,
            Verdict::Stranger => {}
        }
    }
    if verdict == Verdict::Stranger {
        access.audit.client_refused(peer.address, &reason(access, peer.address, names).to_string());
    }
    verdict
}

/// Why no export is for `peer`: the reason of the one that is the closest to it.
fn reason(access: &AccessControl, peer: SocketAddr, names: &dyn Names) -> Refusal {
    let table = access.table();
    let mut named =
        table.entries().iter().filter_map(|entry| AccessControl::client_of(entry, peer, names).ok());
    match named.next() {
        Some(options) if options.secure && peer.port() >= FIRST_UNPRIVILEGED_PORT => Refusal::InsecurePort,
        Some(_) => Refusal::OtherUser,
        None => Refusal::NotExported,
    }
}

/// Whether an export names `peer`, regardless of what its user may do there: address, port (for `secure`),
/// and, for a server that serves only its own user, the owner of the process.
fn is_for(entry: &ExportEntry, peer: &Peer, names: &dyn Names) -> Verdict {
    match AccessControl::client_of(entry, peer.address, names) {
        Ok(options) if options.secure && peer.address.port() >= FIRST_UNPRIVILEGED_PORT => Verdict::Stranger,
        Ok(options) if !options.all_act_as_server_user && !serves_process(entry, peer) => Verdict::Stranger,
        Ok(_) => Verdict::Admitted,
        Err(Refusal::NotKnownYet) => Verdict::NotKnownYet,
        Err(_) => Verdict::Stranger,
    }
}

/// Whether the store can act as any user, or the process belongs to the one user that it acts as.
fn serves_process(entry: &ExportEntry, peer: &Peer) -> bool {
    entry.served_as().is_none_or(|user| local_users::is_process_served_as(user, peer.owner))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use exports::{Exports, NoNames};
    use rpc::server::TcpOwner;

    use super::*;
    use crate::authorization::resolver::Resolver;
    use crate::export_table::io_modes::IoModeSettings;
    use crate::export_table::{ExportTable, StoreSettings};

    fn peer(address: &str) -> Peer {
        let address: SocketAddr = address.parse().unwrap();
        Peer { connection: 1, address, local: address, owner: TcpOwner::Remote }
    }

    fn table(lines: &[(&std::path::Path, &str)]) -> ExportTable {
        let opening = StoreSettings {
            key: store::HandleKey::new([1; 16]),
            verifier: Arc::default(),
            limits: store::DescriptorLimits::default(),
            slots: Arc::default(),
            reserved_name: None,
        };
        let text: String =
            lines.iter().map(|(path, clients)| format!("{} {clients}\n", path.display())).collect();
        ExportTable::open(&Exports::parse(&text, "t").unwrap(), &opening, &ExportTable::default())
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
        let access = AccessControl::new(table(&lines), IoModeSettings::default());
        for (address, expected) in [
            ("192.0.2.1:1024", Verdict::Admitted), // by the second export
            ("192.0.2.2:1024", Verdict::Admitted),
            ("192.0.2.4:1023", Verdict::Admitted),
            ("192.0.2.4:1024", Verdict::Stranger),
            ("192.0.2.3:700", Verdict::Stranger), // its export can't be served
            ("192.0.2.5:700", Verdict::Stranger),
        ] {
            assert_eq!(verdict(&access, &peer(address), &NoNames), expected, "{address}");
        }
        let generation = access.generation();
        access.replace(table(&lines[..1]));
        assert_ne!(access.generation(), generation);
        assert_eq!(verdict(&access, &peer("192.0.2.4:700"), &NoNames), Verdict::Stranger);
    }

    #[test]
    fn a_pending_name_lookup_makes_no_stranger() {
        let dir = tempfile::tempdir().unwrap();
        let names = Resolver::unanswered();
        let access = AccessControl::new(
            table(&[(dir.path(), "slow.example(rw) 192.0.2.0/24(ro)")]),
            IoModeSettings::default(),
        );
        assert_eq!(verdict(&access, &peer("192.0.2.1:700"), &names.at_once()), Verdict::NotKnownYet);
        assert_eq!(verdict(&access, &peer("192.0.2.1:700"), &names), Verdict::NotKnownYet);
    }
}
