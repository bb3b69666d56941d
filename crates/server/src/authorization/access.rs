//! The one access check: whether a client may use an export, and as which user.
//!
//! Every call on the wire and every Open on the lane passes [`AccessControl::admit`]; there is no other way
//! to a store. The check takes into account the export table (export, client entry, options), the client's
//! address and port, the owner of its process where the kernel knows it
//! ([`crate::authorization::local_users`]), and the squash options. The file's own permissions are checked by
//! the kernel when the store acts as the user.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::status::counters::enter_export;
use ahash::HashMap;
use arc_swap::ArcSwap;
use exports::{Claim, ClientSpec, ExportOptions, IoMode, LocalPeers, Names, NotKnownYet, Squash};
use fairness::Peer;
use lane::PeerCredentials;
use rpc::server::TcpOwner;
use store::{FileHandle, Holder, Identity, Store, UserContext};

use crate::authorization::audit::AuditLog;
use crate::authorization::client_hosts::NamingExports;
use crate::authorization::local_users::{self, Memberships};
use crate::authorization::refusal_log::{LoggedRefusal, RefusalLog};
use crate::authorization::requester::{Requester, Transport};
use crate::authorization::resolver::Resolver;
use crate::export_table::io_modes::{self, Direction, IoModeSettings};
use crate::export_table::{ExportEntry, ExportNesting, ExportTable};

/// The first port that a process without privileges can bind.
pub(crate) const FIRST_UNPRIVILEGED_PORT: u16 = 1024;

/// Why a request is refused before it reaches the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub(crate) enum Refusal {
    /// The file handle isn't one of this server's.
    #[error("no file handle of this server")]
    BadHandle,
    /// The export has been removed, or isn't (or is no longer) exported to this client. RFC 1813 has no other
    /// error for revoked access.
    #[error("not exported to this client")]
    NotExported,
    /// The decision needs a host name whose lookup is still pending: the client must retry.
    #[error("a host name in the exports is still being looked up")]
    NotKnownYet,
    /// The export requires a reserved source port.
    #[error("the export is for ports below 1024 only (option insecure)")]
    InsecurePort,
    /// The server can't act as other users, and the client is neither the server's own user nor root.
    #[error("served is only the user that the server runs as (option all_act_as_server_user)")]
    OtherUser,
    /// The export doesn't allow its files on the lane.
    #[error("the export forbids the lane (option no_lane)")]
    NoLane,
}

/// The access check and its state: the export table, and the names and users that its rules refer to.
#[derive(Debug)]
pub(crate) struct AccessControl {
    table: ArcSwap<ExportTable>,
    /// How often the table was replaced.
    tables: AtomicU64,
    /// Host names: of the exports' clients, and of the addresses that connect.
    pub names: Resolver,
    /// The groups of this host's users.
    memberships: Memberships,
    /// Refusals of local users that were logged.
    refused: RefusalLog,
    /// What was logged for the administrator.
    pub audit: AuditLog,
    /// Whether every export verifies the claims of processes of this host.
    verifies_claims: AtomicBool,
    /// The I/O modes of exports that don't set their own.
    pub io: IoModeSettings,
    /// Whether writes of any client use direct I/O.
    direct_writes: AtomicBool,
}

/// A client's access to an export, as one user.
#[derive(Debug, Clone)]
pub(crate) struct ExportAccess {
    entry: Arc<ExportEntry>,
    /// The store of a crossed filesystem.
    crossed: Option<Arc<Store>>,
    address: SocketAddr,
    identity: Identity,
    options: ExportOptions,
    modes: io::IoModes,
    /// Whether changes must be on stable storage before the reply (exports(5), `sync`).
    pub sync: bool,
}

impl AccessControl {
    pub(crate) fn new(table: ExportTable, io: IoModeSettings) -> Self {
        let access = Self {
            table: ArcSwap::from_pointee(table),
            tables: AtomicU64::new(0),
            names: Resolver::default(),
            memberships: Memberships::default(),
            refused: RefusalLog::default(),
            audit: AuditLog::default(),
            verifies_claims: AtomicBool::new(false),
            io,
            direct_writes: AtomicBool::new(false),
        };
        access.claims_changed();
        access.modes_changed();
        access.look_up_hosts();
        access
    }

    /// The current table.
    pub(crate) fn table(&self) -> Arc<ExportTable> {
        self.table.load_full()
    }

    /// Replaces the table. Requests that are running finish with the old one.
    pub(crate) fn replace(&self, table: ExportTable) {
        self.table.store(Arc::new(table));
        self.tables.fetch_add(1, Ordering::Release);
        self.claims_changed();
        self.modes_changed();
        self.names.ask_again();
        self.memberships.ask_again();
        self.refused.forget();
        self.audit.forget();
        self.look_up_hosts();
    }

    /// A number that changes whenever the clients of an export may have changed: with the table, and with the
    /// known host names.
    pub(crate) fn generation(&self) -> u64 {
        self.tables.load(Ordering::Acquire).wrapping_add(self.names.changes())
    }

    /// Must be called after an I/O mode was changed.
    pub(crate) fn modes_changed(&self) {
        let direct = self.table().entries().iter().any(|entry| {
            let mut options = entry.export.clients().iter().map(|client| &client.options);
            let mode = |options| io_modes::effective(&self.io, &entry.io, options, Direction::Write);
            options.any(|options| mode(options) == IoMode::Direct)
        });
        self.direct_writes.store(direct, Ordering::Relaxed);
    }

    /// Must be called after the table was replaced.
    fn claims_changed(&self) {
        let verifies = self.table().entries().iter().all(|entry| {
            let mut clients = entry.export.clients().iter();
            entry.served_as().is_none()
                && clients.all(|client| client.options.local_peers == LocalPeers::Verify)
        });
        self.verifies_claims.store(verifies, Ordering::Relaxed);
    }

    /// Whether to believe the user that a request claims, where the request concerns no file: NFSv4's clients
    /// and sessions belong to a user and not to an export. If the exports differ, all claims are believed;
    /// access to files is decided by each export ([`AccessControl::admit`]).
    pub(crate) fn believes(&self, owner: TcpOwner, uid: u32) -> bool {
        local_users::is_own_claim(owner, uid) || !self.verifies_claims.load(Ordering::Relaxed)
    }

    /// Whether WRITE payloads should be aligned in memory as they will be in the file.
    pub(crate) fn has_direct_writes(&self) -> bool {
        self.direct_writes.load(Ordering::Relaxed)
    }

    /// Whether any export in another one has this name.
    pub(crate) fn has_nested(&self, name: &[u8]) -> bool {
        self.table.load().nested().iter().any(|nested| nested.name == name)
    }

    /// The exports that have their name in `directory` of the export `outer`.
    pub(crate) fn nested_in(&self, outer: &ExportAccess, directory: &store::Node) -> Vec<ExportNesting> {
        let here = |nested: &&ExportNesting| {
            // Where it leads now: directories may have been renamed.
            let parent = || outer.walk(nested.way.iter().map(Vec::as_slice));
            nested.outer.id == outer.export()
                && parent().is_ok_and(|parent| parent.handle() == directory.handle())
        };
        self.table.load().nested().iter().filter(here).cloned().collect()
    }

    /// Starts to look up the table's host names before the first client needs them.
    fn look_up_hosts(&self) {
        let table = self.table();
        let mut hosts: HashMap<String, NamingExports> = HashMap::default();
        for export in table.configured().map(|entry| &entry.export) {
            for client in export.clients() {
                let ClientSpec::Host(host) = &client.spec else { continue };
                let first = || NamingExports { first: export.path().to_owned(), others: 0 };
                hosts.entry(host.clone()).and_modify(|exports| exports.others += 1).or_insert_with(first);
            }
        }
        self.names.expect(hosts);
    }

    /// Checks whether `requester` may use the export that `handle` belongs to.
    pub(crate) fn admit(&self, handle: &[u8], requester: Requester<'_>) -> Result<ExportAccess, Refusal> {
        let id = FileHandle::export_of(handle).ok_or(Refusal::BadHandle)?;
        let table = self.table.load();
        let entry = table.get(id).ok_or(Refusal::NotExported)?;
        self.admit_to(entry, requester)
    }

    /// Checks whether `requester` may use the export with this number, reached by a name in another export.
    pub(crate) fn enter(&self, export: u32, requester: Requester<'_>) -> Result<ExportAccess, Refusal> {
        let table = self.table.load();
        self.admit_to(table.get(export).ok_or(Refusal::NotExported)?, requester)
    }

    /// Checks whether `requester` may use `entry`, and logs the decision at debug level.
    pub(crate) fn admit_to(
        &self,
        entry: &Arc<ExportEntry>,
        requester: Requester<'_>,
    ) -> Result<ExportAccess, Refusal> {
        enter_export(entry.slot);
        let admitted = self.check(entry, requester);
        let export = entry.export.path().display();
        match &admitted {
            Ok(ExportAccess { identity, .. }) => {
                tracing::debug!(%export, uid = identity.uid, gid = identity.gid, "admitted");
            }
            Err(refusal) => tracing::debug!(%export, %refusal, "refused"),
        }
        admitted
    }

    fn check(&self, entry: &Arc<ExportEntry>, requester: Requester<'_>) -> Result<ExportAccess, Refusal> {
        let options = self.options(entry, requester.address)?;
        if options.secure && requester.address.port() >= FIRST_UNPRIVILEGED_PORT {
            return Err(Refusal::InsecurePort);
        }
        if requester.transport == Transport::Lane && !options.lane {
            return Err(Refusal::NoLane);
        }
        let crossed =
            entry.crossed.as_ref().map(|crossed| crossed.store()).transpose().map_err(
                |error| match error {
                    store::Error::TryLater => Refusal::NotKnownYet,
                    _ => Refusal::NotExported,
                },
            )?;
        let identity = self.identity(entry, options, requester)?;
        Ok(ExportAccess {
            entry: Arc::clone(entry),
            crossed,
            address: requester.address,
            identity,
            options: options.clone(),
            modes: io_modes::modes(&self.io, &entry.io, options),
            sync: options.sync,
        })
    }

    /// The user as whom `requester` acts.
    fn identity(
        &self,
        entry: &ExportEntry,
        options: &ExportOptions,
        requester: Requester<'_>,
    ) -> Result<Identity, Refusal> {
        let note = |what| self.refused.note(what, entry.export.path(), requester);
        if let Some(user) = entry.served_as() {
            // On the lane the option admits no other user's process: a descriptor that the server's user has
            // opened must not reach other users.
            let is_open = options.all_act_as_server_user
                && (requester.transport == Transport::Wire
                    || local_users::is_process_served_as(user, requester.owner));
            if !is_open && !local_users::is_served_as(user, requester.owner, requester.claim) {
                note(LoggedRefusal::OtherUser);
                return Err(Refusal::OtherUser);
            }
        }
        let verifies = requester.transport == Transport::Wire
            && options.local_peers == LocalPeers::Verify
            && options.squash != Squash::All
            && entry.served_as().is_none();
        match (requester.owner, requester.claim) {
            (TcpOwner::User(1..) | TcpOwner::Unknown, Some(claim)) if verifies => {
                if !local_users::is_own_claim(requester.owner, claim.uid) {
                    if claim.uid != options.anon_uid {
                        note(LoggedRefusal::FalseClaim);
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

    /// The options that apply to a client.
    pub(crate) fn options<'e>(
        &self,
        entry: &'e ExportEntry,
        address: SocketAddr,
    ) -> Result<&'e ExportOptions, Refusal> {
        self.options_by(entry, address, &self.names)
    }

    /// The options that apply to a client, with host names resolved by `names`.
    pub(crate) fn options_by<'e>(
        &self,
        entry: &'e ExportEntry,
        address: SocketAddr,
        names: &dyn Names,
    ) -> Result<&'e ExportOptions, Refusal> {
        if entry.is_served() { Self::client_of(entry, address, names) } else { Err(Refusal::NotExported) }
    }

    /// As [`AccessControl::options_by`], also for an export whose filesystem has been unmounted: its clients
    /// remain its clients and get errors for their files.
    pub(crate) fn client_of<'e>(
        entry: &'e ExportEntry,
        address: SocketAddr,
        names: &dyn Names,
    ) -> Result<&'e ExportOptions, Refusal> {
        if !entry.is_served() && entry.lost.is_none() {
            return Err(Refusal::NotExported);
        }
        // Clients of the same export may differ in whether they see the filesystems below.
        let is_hidden = |options: &ExportOptions| entry.crossed.is_some() && !options.crossmnt;
        match entry.export.options_for(address.ip(), names) {
            Ok(options) => options.filter(|options| !is_hidden(options)).ok_or(Refusal::NotExported),
            Err(NotKnownYet) => Err(Refusal::NotKnownYet),
        }
    }

    /// Whether a client would be admitted now with the same rights as before. For work that continues after
    /// the reply.
    pub(crate) fn still_admits(&self, admitted: &ExportAccess) -> bool {
        let table = self.table.load();
        let Some(entry) = table.get(admitted.entry.id) else { return false };
        entry.is_served_like(&admitted.entry)
            && match self.options(entry, admitted.address) {
                Ok(options) => *options == admitted.options,
                Err(refusal) => refusal == Refusal::NotKnownYet,
            }
    }

    /// Whether an export refers clients of a peer to other servers (`refer=`). Where the peer isn't one
    /// address, or the answer depends on a name that isn't known yet: whether it refers any client.
    pub(crate) fn refers(&self, entry: &ExportEntry, peer: Peer) -> bool {
        let refers = |options: &ExportOptions| options.locations.as_ref().is_some_and(|at| at.refers);
        let refers_any = || entry.export.clients().iter().any(|client| refers(&client.options));
        let Peer::V4(octets) = peer else { return refers_any() };
        match self.options(entry, (octets, 0).into()) {
            Ok(options) => refers(options),
            Err(Refusal::NotKnownYet) => refers_any(),
            Err(_) => false,
        }
    }

    /// Whether a client's rights differ between two tables, or can't be determined yet.
    pub(crate) fn differs(&self, before: &ExportTable, after: &ExportTable, address: SocketAddr) -> bool {
        // Of a crossed filesystem that no client uses there is nothing to take back.
        let is_used = |old: &&Arc<ExportEntry>| old.crossed.is_none() || old.open_store().is_some();
        before.entries().iter().filter(is_used).any(|old| {
            let new = after.get(old.id).ok_or(Refusal::NotExported);
            let new = new.and_then(|new| self.options(new, address));
            new == Err(Refusal::NotKnownYet)
                || self.options(old, address) != new
                || before.inner_of(old.id) != after.inner_of(old.id)
        })
    }
}

impl ExportAccess {
    /// The handle of the exported directory.
    pub(crate) fn root(&self) -> Result<FileHandle, store::Error> {
        self.store().map(Store::root)
    }

    /// The exported directory's path, without symbolic links.
    pub(crate) fn location(&self) -> &std::path::Path {
        self.entry.location()
    }

    /// The file at the path `way` below the exported directory. No permission is checked.
    pub(crate) fn walk<'w>(
        &self,
        way: impl IntoIterator<Item = &'w [u8]>,
    ) -> Result<Arc<store::Node>, store::Error> {
        let store = self.store()?;
        let user_context = store.as_read_only_user(&Identity { uid: 0, gid: 0, groups: Vec::new() })?;
        let root = user_context.node(store.root().as_bytes())?;
        way.into_iter().try_fold(root, |at, name| user_context.lookup(&at, name))
    }

    /// Keeps an open file of the export when it loses its last name, if there is room.
    pub(crate) fn preserve_unlinked(&self, node: &Arc<store::Node>) -> Option<store::PreservedFile> {
        self.store().ok()?.preserve_unlinked(node)
    }

    /// The export's number.
    pub(crate) fn export(&self) -> u32 {
        self.entry.id
    }

    /// The options that apply to the client.
    pub(crate) const fn options(&self) -> &ExportOptions {
        &self.options
    }

    /// Whether the store sees what is covered by mounts.
    pub(crate) fn is_cloned(&self) -> bool {
        self.store().is_ok_and(Store::is_cloned)
    }

    /// The export's store.
    pub(crate) fn store(&self) -> Result<&Store, store::Error> {
        match &self.crossed {
            Some(store) => Ok(store),
            None => self.entry.store.as_deref().map_err(|_| store::Error::Stale),
        }
    }

    /// Makes this thread act as the client's user in the export's store.
    pub(crate) fn user_context(&self) -> Result<UserContext<'_>, store::Error> {
        let store = self.store()?;
        let user_context = if self.options.read_only {
            store.as_read_only_user(&self.identity)
        } else {
            store.as_user(&self.identity)
        }?;
        let user_context = user_context.with_modes(self.modes);
        Ok(if self.sync { user_context } else { user_context.with_async_writes() })
    }

    /// How the rights of the process `peer` compare with what this export allows.
    ///
    /// A descriptor can be reopened with the ids that the kernel knows the process by. The result says
    /// whether these ids could do more with the file than the export lets the process do as itself, and
    /// whether root could, which some process in the peer's container may run as. The credential's claim
    /// plays no part: root may claim any user.
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

    /// Whether both are access to the same export.
    pub(crate) fn same_export(&self, other: &Self) -> bool {
        self.entry.id == other.entry.id
    }
}

/// The identity that an export's squash options make of a claim.
fn squashed(options: &ExportOptions, claim: Option<Claim<'_>>) -> Identity {
    let squashed = options.identity(claim);
    Identity { uid: squashed.uid, gid: squashed.gid, groups: squashed.gids }
}

#[cfg(test)]
mod tests {
    use exports::Exports;

    use super::*;
    use crate::export_table::StoreSettings;

    #[test]
    fn a_holder_is_compared_with_its_squashed_identity() {
        let dir = tempfile::tempdir().unwrap();
        let opening = StoreSettings {
            key: store::HandleKey::new([1; 16]),
            verifier: Arc::default(),
            limits: store::DescriptorLimits::default(),
            slots: Arc::default(),
            reserved_name: None,
        };
        let holder = |options: &str, uid: Option<u32>, gid: u32, groups: &[u32]| {
            let text = format!("{} *(rw,insecure,{options})", dir.path().display());
            let access = AccessControl::new(
                ExportTable::open(&Exports::parse(&text, "t").unwrap(), &opening, &ExportTable::default()),
                IoModeSettings::default(),
            );
            // The claim makes no difference.
            let claim = Some(Claim { uid: 1000, gid: 1000, gids: &[] });
            let requester = Requester {
                address: SocketAddr::from(([127, 0, 0, 1], 1)),
                owner: TcpOwner::User(0),
                claim,
                transport: Transport::Lane,
            };
            let admission = access.admit_to(&access.table().entries()[0], requester).unwrap();
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
            reserved_name: None,
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
    fn an_admission_ends_when_the_exports_change_for_its_client() {
        let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
        let opening = StoreSettings {
            key: store::HandleKey::new([1; 16]),
            verifier: Arc::default(),
            limits: store::DescriptorLimits::default(),
            slots: Arc::default(),
            reserved_name: None,
        };
        let next = |clients: [&str; 2], before: &ExportTable| {
            let lines = dirs.iter().zip(clients).filter(|(_, clients)| !clients.is_empty());
            let lines = lines.map(|(dir, clients)| format!("{} {clients}\n", dir.path().display()));
            ExportTable::open(&Exports::parse(lines.collect::<String>(), "t").unwrap(), &opening, before)
        };
        let address = SocketAddr::from(([192, 0, 2, 1], 700));
        let requester =
            Requester { address, owner: TcpOwner::Remote, claim: None, transport: Transport::Wire };
        let access = AccessControl::new(
            next(["192.0.2.1(rw)", ""], &ExportTable::default()),
            IoModeSettings::default(),
        );
        let reload = |clients| access.replace(next(clients, &access.table()));
        let admit = || access.admit_to(&access.table().entries()[0], requester).unwrap();
        let admitted = admit();
        assert!(access.still_admits(&admitted));
        reload(["192.0.2.1(rw) 192.0.2.2(rw)", "192.0.2.1(rw)"]);
        assert!(access.still_admits(&admitted), "entries of other clients don't matter");
        for clients in [["192.0.2.1(ro) 192.0.2.2(rw)", ""], ["192.0.2.2(rw)", ""], ["", "192.0.2.1(rw)"]] {
            reload(["192.0.2.1(rw)", ""]);
            let admitted = admit();
            reload(clients);
            assert!(!access.still_admits(&admitted), "{clients:?}");
        }
    }

    #[test]
    fn a_client_with_a_pending_name_lookup_is_told_to_retry() {
        let dir = tempfile::tempdir().unwrap();
        let opening = StoreSettings {
            key: store::HandleKey::new([1; 16]),
            verifier: Arc::default(),
            limits: store::DescriptorLimits::default(),
            slots: Arc::default(),
            reserved_name: None,
        };
        let table = |clients: &str| {
            let text = format!("{} {clients}", dir.path().display());
            ExportTable::open(&Exports::parse(&text, "t").unwrap(), &opening, &ExportTable::default())
        };
        let address = SocketAddr::from(([192, 0, 2, 1], 700));
        let requester =
            Requester { address, owner: TcpOwner::Remote, claim: None, transport: Transport::Wire };
        let access = AccessControl {
            table: ArcSwap::from_pointee(table("slow.example(rw) *(ro)")),
            tables: AtomicU64::new(0),
            names: Resolver::unanswered(),
            memberships: Memberships::default(),
            refused: RefusalLog::default(),
            audit: AuditLog::default(),
            verifies_claims: AtomicBool::new(false),
            io: IoModeSettings::default(),
            direct_writes: AtomicBool::new(false),
        };
        let refused =
            |access: &AccessControl| access.admit_to(&access.table().entries()[0], requester).map(drop);
        assert_eq!(refused(&access), Err(Refusal::NotKnownYet));
        // A lane of a client that can't be decided about is recalled.
        assert!(access.differs(&table("*(ro)"), &access.table(), address));
        assert!(!access.differs(&table("*(ro)"), &table("*(ro)"), address));
        access.replace(table("192.0.2.1(rw) slow.example(rw)"));
        assert_eq!(refused(&access), Ok(()));
    }
}
