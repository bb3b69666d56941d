//! The one check: whether a client may use an export, and as whom.
//!
//! Every call on the wire and every Open on the lane comes through [`Gate::admit`]; there is no second way to
//! a store. It looks at the export table (which export, this client's entry, its options), the client's
//! address and port, whose process it is where the kernel can say ([`crate::authorization::local_users`]), and the squash
//! options; what the file's own permissions say is then the store's part of the check, made by the kernel as
//! the user that [`Admission::acting`] acts as.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use exports::{Claim, ClientSpec, ExportOptions, IoMode, LocalPeers, Names, NotKnownYet, Squash};
use lane::PeerCredentials;
use rpc::server::TcpOwner;
use store::{FileHandle, Holder, Identity, Store, UserContext};

use crate::authorization::local_users::{self, Memberships};
use crate::authorization::refusal_log::{Refused, What};
use crate::authorization::resolver::Resolver;
use crate::export_table::io_modes::{self, Direction, Switches};
use crate::export_table::{Entry, Table};

/// The first port that needs no privilege to use.
pub(crate) const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// The road on which a client asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Road {
    Wire,
    Lane,
}

/// Who asks. The address is that of the NFS connection, on the lane, too: it is bound to one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub address: SocketAddr,
    /// Whose process asks. On the lane, where the kernel is asked about the Unix socket, never
    /// [`TcpOwner::Remote`].
    pub owner: TcpOwner,
    pub claim: Option<Claim<'a>>,
    pub road: Road,
}

/// Why a client is turned away before the store is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub(crate) enum Refusal {
    /// No handle of ours.
    #[error("no file handle of this server")]
    BadHandle,
    /// The export is gone, or not for this client (any more): RFC 1813 has no other word for access that was
    /// revoked.
    #[error("not exported to this client")]
    NotExported,
    /// Whether it is exported to this client takes a host name that is still being looked up: ask again.
    #[error("a host name in the exports is still being looked up")]
    NotKnownYet,
    /// The export wants a reserved source port.
    #[error("the export is for ports below 1024 only (option insecure)")]
    InsecurePort,
    /// The server can't act as other users, and this is neither the user that it runs as nor root.
    #[error("served is only the user that the server runs as (option all_act_as_server_user)")]
    OtherUser,
    /// The export keeps its files off the lane.
    #[error("the export forbids the lane (option no_lane)")]
    NoLane,
}

/// The gate: the table, and the names that its rules are made of.
#[derive(Debug)]
pub(crate) struct Gate {
    table: ArcSwap<Table>,
    /// Counts the tables.
    tables: AtomicU64,
    /// The host names in the exports, and those of clients.
    pub names: Resolver,
    /// The groups of users of this host.
    memberships: Memberships,
    /// Which users of this host were turned away.
    refused: Refused,
    /// Whether every export verifies what processes of this host claim.
    verifies_claims: AtomicBool,
    /// The I/O modes where no export says otherwise.
    pub io: Switches,
    /// Whether any client's writes go directly.
    direct_writes: AtomicBool,
}

/// A client let in.
#[derive(Debug, Clone)]
pub(crate) struct Admission {
    entry: Arc<Entry>,
    address: SocketAddr,
    identity: Identity,
    options: ExportOptions,
    modes: io::IoModes,
    /// Whether changes must be on stable storage before the reply (exports(5), `sync`).
    pub sync: bool,
}

impl Gate {
    pub(crate) fn new(table: Table, io: Switches) -> Self {
        let gate = Self {
            table: ArcSwap::from_pointee(table),
            tables: AtomicU64::new(0),
            names: Resolver::default(),
            memberships: Memberships::default(),
            refused: Refused::default(),
            verifies_claims: AtomicBool::new(false),
            io,
            direct_writes: AtomicBool::new(false),
        };
        gate.claims_changed();
        gate.modes_changed();
        gate.look_up_hosts();
        gate
    }

    /// The table as it is now.
    pub(crate) fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// Puts another table in place; whoever is being served from the old one is finished with it first.
    pub(crate) fn replace(&self, table: Table) {
        self.table.store(Arc::new(table));
        self.tables.fetch_add(1, Ordering::Release);
        self.claims_changed();
        self.modes_changed();
        self.names.ask_again();
        self.memberships.ask_again();
        self.refused.forget();
        self.look_up_hosts();
    }

    /// A number that changes whenever an export's clients may have changed: with the table, and with the host
    /// names that are known.
    pub(crate) fn generation(&self) -> u64 {
        self.tables.load(Ordering::Acquire).wrapping_add(self.names.changes())
    }

    /// To be called when modes have changed.
    pub(crate) fn modes_changed(&self) {
        let direct = self.table().entries().iter().any(|entry| {
            let mut options = entry.export.clients().iter().map(|client| &client.options);
            let mode = |options| io_modes::effective(&self.io, &entry.io, options, Direction::Write);
            options.any(|options| mode(options) == IoMode::Direct)
        });
        self.direct_writes.store(direct, Ordering::Relaxed);
    }

    /// To be called when there is another table.
    fn claims_changed(&self) {
        let verifies = self.table().entries().iter().all(|entry| {
            let mut clients = entry.export.clients().iter();
            entry.served_as().is_none()
                && clients.all(|client| client.options.local_peers == LocalPeers::Verify)
        });
        self.verifies_claims.store(verifies, Ordering::Relaxed);
    }

    /// Whether a request is of the user that it claims, where it is about no file: NFSv4's clients and
    /// sessions belong to a user and to no export. Where exports differ all claims are believed; what becomes
    /// of files each export decides for its own ([`Gate::admit`]).
    pub(crate) fn believes(&self, owner: TcpOwner, uid: u32) -> bool {
        local_users::is_own_claim(owner, uid) || !self.verifies_claims.load(Ordering::Relaxed)
    }

    /// Whether payloads of WRITEs had better lie in memory as they will lie in the file.
    pub(crate) fn has_direct_writes(&self) -> bool {
        self.direct_writes.load(Ordering::Relaxed)
    }

    /// Has the table's host names looked up before the first client needs them.
    fn look_up_hosts(&self) {
        for entry in self.table().entries() {
            for client in entry.export.clients() {
                if let ClientSpec::Host(host) = &client.spec {
                    self.names.expect(host);
                }
            }
        }
    }

    /// Checks whether `asking` may use the export that `handle` says it belongs to.
    pub(crate) fn admit(&self, handle: &[u8], asking: Asking<'_>) -> Result<Admission, Refusal> {
        let id = FileHandle::export_of(handle).ok_or(Refusal::BadHandle)?;
        let table = self.table.load();
        let entry = table.get(id).ok_or(Refusal::NotExported)?;
        self.admit_to(entry, asking)
    }

    /// Checks whether `asking` may use the export of that number, to which a name in another export has led.
    pub(crate) fn enter(&self, export: u32, asking: Asking<'_>) -> Result<Admission, Refusal> {
        let table = self.table.load();
        self.admit_to(table.get(export).ok_or(Refusal::NotExported)?, asking)
    }

    /// Checks whether `asking` may use `entry`.
    pub(crate) fn admit_to(&self, entry: &Arc<Entry>, asking: Asking<'_>) -> Result<Admission, Refusal> {
        let admitted = self.check(entry, asking);
        let export = entry.export.path().display();
        match &admitted {
            Ok(Admission { identity, .. }) => {
                tracing::debug!(%export, uid = identity.uid, gid = identity.gid, "admitted");
            }
            Err(refusal) => tracing::debug!(%export, %refusal, "refused"),
        }
        admitted
    }

    fn check(&self, entry: &Arc<Entry>, asking: Asking<'_>) -> Result<Admission, Refusal> {
        let options = self.options(entry, asking.address)?;
        if options.secure && asking.address.port() >= FIRST_UNPRIVILEGED_PORT {
            return Err(Refusal::InsecurePort);
        }
        if asking.road == Road::Lane && !options.lane {
            return Err(Refusal::NoLane);
        }
        let identity = self.identity(entry, options, asking)?;
        Ok(Admission {
            entry: Arc::clone(entry),
            address: asking.address,
            identity,
            options: options.clone(),
            modes: io_modes::modes(&self.io, &entry.io, options),
            sync: options.sync,
        })
    }

    /// As whom `asking` acts.
    fn identity(
        &self,
        entry: &Entry,
        options: &ExportOptions,
        asking: Asking<'_>,
    ) -> Result<Identity, Refusal> {
        let note = |what| self.refused.note(what, entry.export.path(), asking);
        if let Some(user) = entry.served_as() {
            // On the lane the option lets no other process in: an open file of the server's user is nobody
            // else's.
            let is_open = options.all_act_as_server_user
                && (asking.road == Road::Wire || local_users::is_process_served_as(user, asking.owner));
            if !is_open && !local_users::is_served_as(user, asking.owner, asking.claim) {
                note(What::OtherUser);
                return Err(Refusal::OtherUser);
            }
        }
        let verifies = asking.road == Road::Wire
            && options.local_peers == LocalPeers::Verify
            && options.squash != Squash::All
            && entry.served_as().is_none();
        match (asking.owner, asking.claim) {
            (TcpOwner::User(1..) | TcpOwner::Unknown, Some(claim)) if verifies => {
                if !local_users::is_own_claim(asking.owner, claim.uid) {
                    if claim.uid != options.anon_uid {
                        note(What::FalseClaim);
                    }
                    return Ok(squashed(options, None));
                }
                let membership =
                    self.memberships.of(claim.uid).map_err(|NotKnownYet| Refusal::NotKnownYet)?;
                Ok(squashed(options, Some(membership.of(claim, options.anon_gid))))
            }
            (_, claim) => Ok(squashed(options, claim)),
        }
    }

    /// The options that hold for a client.
    pub(crate) fn options<'e>(
        &self,
        entry: &'e Entry,
        address: SocketAddr,
    ) -> Result<&'e ExportOptions, Refusal> {
        self.options_by(entry, address, &self.names)
    }

    /// The options that hold for a client, by these names.
    pub(crate) fn options_by<'e>(
        &self,
        entry: &'e Entry,
        address: SocketAddr,
        names: &dyn Names,
    ) -> Result<&'e ExportOptions, Refusal> {
        if entry.store.is_err() { Err(Refusal::NotExported) } else { Self::client_of(entry, address, names) }
    }

    /// As [`Gate::options_by`], for an export whose filesystem may have been unmounted meanwhile: its clients
    /// are still its clients, and learn that their files are gone.
    pub(crate) fn client_of<'e>(
        entry: &'e Entry,
        address: SocketAddr,
        names: &dyn Names,
    ) -> Result<&'e ExportOptions, Refusal> {
        if entry.store.is_err() && entry.lost.is_none() {
            return Err(Refusal::NotExported);
        }
        match entry.export.options_for(address.ip(), names) {
            Ok(options) => options.ok_or(Refusal::NotExported),
            Err(NotKnownYet) => Err(Refusal::NotKnownYet),
        }
    }

    /// Whether the exports as they are now say the same of a client as when it was admitted: for what goes on
    /// behind its answer.
    pub(crate) fn still_admits(&self, admitted: &Admission) -> bool {
        let table = self.table.load();
        let Some(entry) = table.get(admitted.entry.id) else { return false };
        let (Ok(now), Ok(then)) = (&entry.store, &admitted.entry.store) else { return false };
        Arc::ptr_eq(now, then)
            && match self.options(entry, admitted.address) {
                Ok(options) => *options == admitted.options,
                Err(refusal) => refusal == Refusal::NotKnownYet,
            }
    }

    /// Whether a client may do something else under one table than under the other, or nobody can say.
    pub(crate) fn differs(&self, before: &Table, after: &Table, address: SocketAddr) -> bool {
        before.entries().iter().any(|old| {
            let new = after.get(old.id).ok_or(Refusal::NotExported);
            let new = new.and_then(|new| self.options(new, address));
            new == Err(Refusal::NotKnownYet)
                || self.options(old, address) != new
                || before.inner_of(old.id) != after.inner_of(old.id)
        })
    }
}

impl Admission {
    /// The handle of the exported directory.
    pub(crate) fn root(&self) -> Result<FileHandle, store::Error> {
        self.store().map(Store::root)
    }

    /// The exported directory's path.
    pub(crate) fn path(&self) -> &std::path::Path {
        self.entry.export.path()
    }

    /// The file that is found from the exported directory by `way`, whoever may go there.
    pub(crate) fn walk<'w>(
        &self,
        way: impl IntoIterator<Item = &'w [u8]>,
    ) -> Result<Arc<store::Node>, store::Error> {
        let store = self.store()?;
        let acting = store.as_read_only_user(&Identity { uid: 0, gid: 0, groups: Vec::new() })?;
        let root = acting.node(store.root().as_bytes())?;
        way.into_iter().try_fold(root, |at, name| acting.lookup(&at, name))
    }

    /// Keeps an open file of the export when it loses its last name, if there is room.
    pub(crate) fn preserve_unlinked(&self, node: &Arc<store::Node>) -> Option<store::PreservedFile> {
        self.store().ok()?.preserve_unlinked(node)
    }

    fn store(&self) -> Result<&Store, store::Error> {
        self.entry.store.as_deref().map_err(|_| store::Error::Stale)
    }

    /// From now on this thread acts as the client's user in the export's store.
    pub(crate) fn acting(&self) -> Result<UserContext<'_>, store::Error> {
        let store = self.store()?;
        let acting = if self.options.read_only {
            store.as_read_only_user(&self.identity)
        } else {
            store.as_user(&self.identity)
        }?;
        let acting = acting.with_modes(self.modes);
        Ok(if self.sync { acting } else { acting.with_async_writes() })
    }

    /// What may stand behind a descriptor that the process `peer` gets: could it do more with the file, by
    /// the ids that the kernel knows it by, than this export lets it when it asks as itself? (By whom it
    /// claims to be here nothing is decided: root may claim anybody.) And could root, as which some process
    /// may run where the peer runs?
    pub(crate) fn holder(&self, peer: &PeerCredentials) -> Result<Holder, store::Error> {
        let store = self.store()?;
        let becomes =
            |uid: u32, gid: u32, gids: &[u32]| squashed(&self.options, Some(Claim { uid, gid, gids }));
        let (Some(uid), Some(gid)) = (peer.uid, peer.gid) else { return Ok(Holder::Stronger) };
        let itself = becomes(uid, gid, &peer.groups);
        let itself = store.effective_identity(&itself);
        let lent = |gid: &u32| itself.gid == *gid || itself.groups.contains(gid);
        let groups = uid == 0 || lent(&gid) && peer.groups.iter().all(lent);
        if itself.uid != uid || !groups {
            return Ok(Holder::Stronger);
        }
        let root = becomes(0, 0, &[]);
        Ok(if store.effective_identity(&root).uid == 0 { Holder::Equal } else { Holder::Backed })
    }

    /// Whether two handles that were admitted are of one export.
    pub(crate) fn same_export(&self, other: &Self) -> bool {
        self.entry.id == other.entry.id
    }
}

/// Whom an export makes of a claim.
fn squashed(options: &ExportOptions, claim: Option<Claim<'_>>) -> Identity {
    let squashed = options.identity(claim);
    Identity { uid: squashed.uid, gid: squashed.gid, groups: squashed.gids }
}

#[cfg(test)]
mod tests {
    use exports::Exports;

    use super::*;
    use crate::export_table::Opening;

    #[test]
    fn a_holder_is_measured_by_what_the_export_makes_of_him() {
        let dir = tempfile::tempdir().unwrap();
        let opening = Opening {
            key: store::HandleKey::new([1; 16]),
            verifier: Arc::default(),
            limits: store::DescriptorLimits::default(),
        };
        let holder = |options: &str, uid: Option<u32>, gid: u32, groups: &[u32]| {
            let text = format!("{} *(rw,insecure,{options})", dir.path().display());
            let gate = Gate::new(
                Table::open(&Exports::parse(&text, "t").unwrap(), &opening, &Table::default()),
                Switches::default(),
            );
            // Whom it claims to be is all the same.
            let claim = Some(Claim { uid: 1000, gid: 1000, gids: &[] });
            let asking = Asking {
                address: SocketAddr::from(([127, 0, 0, 1], 1)),
                owner: TcpOwner::User(0),
                claim,
                road: Road::Lane,
            };
            let admission = gate.admit_to(&gate.table().entries()[0], asking).unwrap();
            let peer = PeerCredentials { pid: None, uid, gid: Some(gid), groups: groups.to_vec() };
            admission.holder(&peer).unwrap()
        };
        let privileged = store::Store::open(store::StoreOptions {
            path: dir.path().to_owned(),
            export_id: 1,
            key: store::HandleKey::new([1; 16]),
            read_only: false,
            subtree_check: false,
            verifier: Arc::default(),
            limits: store::DescriptorLimits::default(),
        });
        assert_eq!(privileged.unwrap().privilege(), &store::Privilege::Full, "this test needs root");
        let table = [
            ("root_squash", Some(0), 0, &[][..], Holder::Stronger),
            ("root_squash", Some(1000), 1000, &[27], Holder::Backed),
            ("root_squash", Some(1000), 0, &[], Holder::Stronger),
            ("root_squash", Some(1000), 1000, &[27, 0], Holder::Stronger),
            ("root_squash", None, 1000, &[], Holder::Stronger),
            ("no_root_squash", Some(0), 0, &[], Holder::Equal),
            ("no_root_squash", Some(0), 5, &[7], Holder::Equal),
            ("no_root_squash", Some(1000), 1000, &[27, 0], Holder::Equal),
            ("all_squash", Some(0), 0, &[], Holder::Stronger),
            ("all_squash", Some(1000), 1000, &[], Holder::Stronger),
            ("all_squash,anonuid=1000,anongid=1000", Some(1000), 1000, &[], Holder::Backed),
            ("all_squash,anonuid=1000,anongid=1000", Some(1000), 1000, &[27], Holder::Stronger),
            ("all_squash,anonuid=0,anongid=0", Some(0), 5, &[], Holder::Equal),
        ];
        for (options, uid, gid, groups, expected) in table {
            assert_eq!(holder(options, uid, gid, groups), expected, "{options}: {uid:?}, {gid}, {groups:?}");
        }
    }

    #[test]
    fn an_admission_lasts_until_the_exports_say_something_else_of_that_client() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let opening = Opening {
            key: store::HandleKey::new([1; 16]),
            verifier: Arc::default(),
            limits: store::DescriptorLimits::default(),
        };
        let next = |clients: [&str; 2], before: &Table| {
            let lines = dirs.iter().zip(clients).filter(|(_, clients)| !clients.is_empty());
            let lines = lines.map(|(dir, clients)| format!("{} {clients}\n", dir.path().display()));
            Table::open(&Exports::parse(lines.collect::<String>(), "t").unwrap(), &opening, before)
        };
        let address = SocketAddr::from(([192, 0, 2, 1], 700));
        let asking = Asking { address, owner: TcpOwner::Remote, claim: None, road: Road::Wire };
        let gate = Gate::new(next(["192.0.2.1(rw)", ""], &Table::default()), Switches::default());
        let reload = |clients| gate.replace(next(clients, &gate.table()));
        let admit = || gate.admit_to(&gate.table().entries()[0], asking).unwrap();
        let admitted = admit();
        assert!(gate.still_admits(&admitted));
        reload(["192.0.2.1(rw) 192.0.2.2(rw)", "192.0.2.1(rw)"]);
        assert!(gate.still_admits(&admitted), "others' entries are nothing to it");
        for clients in [["192.0.2.1(ro) 192.0.2.2(rw)", ""], ["192.0.2.2(rw)", ""], ["", "192.0.2.1(rw)"]] {
            reload(["192.0.2.1(rw)", ""]);
            let admitted = admit();
            reload(clients);
            assert!(!gate.still_admits(&admitted), "{clients:?}");
        }
    }

    #[test]
    fn who_cannot_be_told_yet_is_neither_let_in_nor_turned_away() {
        let dir = tempfile::tempdir().unwrap();
        let opening = Opening {
            key: store::HandleKey::new([1; 16]),
            verifier: Arc::default(),
            limits: store::DescriptorLimits::default(),
        };
        let table = |clients: &str| {
            let text = format!("{} {clients}", dir.path().display());
            Table::open(&Exports::parse(&text, "t").unwrap(), &opening, &Table::default())
        };
        let address = SocketAddr::from(([192, 0, 2, 1], 700));
        let asking = Asking { address, owner: TcpOwner::Remote, claim: None, road: Road::Wire };
        let gate = Gate {
            table: ArcSwap::from_pointee(table("slow.example(rw) *(ro)")),
            tables: AtomicU64::new(0),
            names: Resolver::in_vain(),
            memberships: Memberships::default(),
            refused: Refused::default(),
            verifies_claims: AtomicBool::new(false),
            io: Switches::default(),
            direct_writes: AtomicBool::new(false),
        };
        let refused = |gate: &Gate| gate.admit_to(&gate.table().entries()[0], asking).map(drop);
        assert_eq!(refused(&gate), Err(Refusal::NotKnownYet));
        // A lane whose client can't be told is asked anew.
        assert!(gate.differs(&table("*(ro)"), &gate.table(), address));
        assert!(!gate.differs(&table("*(ro)"), &table("*(ro)"), address));
        gate.replace(table("192.0.2.1(rw) slow.example(rw)"));
        assert_eq!(refused(&gate), Ok(()));
    }
}
