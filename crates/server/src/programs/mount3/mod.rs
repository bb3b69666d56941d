//! The MOUNT program, version 3 (RFC 1813 appendix I): handles for paths, and the lists for `showmount`.

mod path;

use std::ffi::OsStr;
use std::ops::RangeInclusive;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fairness::LogLimit;
use proto::mount3::{
    self, Dirpath, Exportnode, Exports, Groups, Mountbody, Mountlist, Mountres3, Mountres3Ok, Mountstat3,
    Procedure,
};
use rpc::message::AuthFlavor;
use rpc::server::{CallContext, CallError, Program, Reply};
use xdr::{Array, Decoder, Encoder, List, Opaque};

use path::Unresolved;

use crate::programs::nfs3::requester;
use crate::programs::request::{Done, RequestSpan, call_end};
use crate::service::Service;
use crate::status::counters::{BegunCall, CountedOperation};

/// The program.
pub(crate) struct Mount3(pub Arc<Service>);

impl Program for Mount3 {
    fn number(&self) -> u32 {
        mount3::PROGRAM
    }

    fn versions(&self) -> RangeInclusive<u32> {
        mount3::VERSION..=mount3::VERSION
    }

    fn answers_strangers(&self) -> bool {
        true
    }

    fn call(
        &self,
        cx: &CallContext<'_>,
        procedure: u32,
        args: &mut Decoder<'_>,
        reply: &mut Reply,
    ) -> Result<(), CallError> {
        let procedure = Procedure::from_number(procedure).ok_or(CallError::ProcedureUnavailable)?;
        let begun = BegunCall::now();
        let span = RequestSpan::enter(cx, "MOUNT", procedure.name());
        let done = self.run(cx, procedure, args, reply.encoder());
        let operation = CountedOperation::Mount3(procedure);
        let end = call_end(cx, operation, &done, (&Mountstat3::Ok, |status| *status as u32));
        self.0.counters.record(begun, &end);
        span.end(&done)
    }
}

impl Mount3 {
    fn run(
        &self,
        cx: &CallContext<'_>,
        procedure: Procedure,
        args: &mut Decoder<'_>,
        to: &mut Encoder,
    ) -> Result<Done<Mountstat3>, CallError> {
        let peer = cx.peer.address.ip();
        let mut status = Mountstat3::Ok;
        match procedure {
            Procedure::Null => {}
            Procedure::Mnt => status = self.mnt(cx, args.get::<Dirpath<'_>>()?.0, to),
            Procedure::Dump => {
                let mounts = self.0.mounts.list();
                let body = |(host, path): &(String, Vec<u8>)| (host.clone(), path.clone());
                let mounts: Vec<_> = mounts.iter().map(body).collect();
                to.put::<Mountlist<'_>>(&List(
                    mounts
                        .iter()
                        .map(|(host, path)| Mountbody {
                            hostname: Opaque(host.as_bytes()),
                            directory: Opaque(path),
                        })
                        .collect(),
                ));
            }
            Procedure::Umnt => self.0.mounts.remove(peer, args.get::<Dirpath<'_>>()?.0),
            Procedure::Umntall => self.0.mounts.remove_all(peer),
            Procedure::Export => self.export(to),
        }
        Ok(Done { status, bytes: 0 })
    }

    fn mnt(&self, cx: &CallContext<'_>, path: &[u8], to: &mut Encoder) -> Mountstat3 {
        let requester = requester(cx);
        let uid = requester.claim.map(|claim| claim.uid);
        match path::resolve(&self.0.access, path, requester) {
            Ok(handle) => {
                self.0.mounts.add(cx.peer.address.ip(), path);
                self.0.access.audit.mounted(cx.peer.address, uid, Path::new(OsStr::from_bytes(path)));
                to.put(&Mountres3::Ok(Mountres3Ok {
                    fhandle: Opaque(handle.as_bytes()),
                    auth_flavors: Array(vec![AuthFlavor::SYS.0]),
                }));
                Mountstat3::Ok
            }
            Err(Unresolved { status, refusal }) => {
                // A client that looks for a file's directory isn't refused anything.
                if refusal.is_some() || !matches!(status, Mountstat3::Noent | Mountstat3::Notdir) {
                    let reason = refusal.map_or_else(|| format!("{status:?}"), |refusal| refusal.to_string());
                    let path = Path::new(OsStr::from_bytes(path));
                    self.0.access.audit.mount_refused(cx.peer.address, uid, path, &reason);
                }
                to.put(&Mountres3::Fail(status));
                status
            }
        }
    }

    /// Every export with its clients. Any peer may request it, as with every NFSv3 server.
    fn export(&self, to: &mut Encoder) {
        let table = self.0.access.table();
        let names: Vec<Vec<String>> = table
            .configured()
            .map(|entry| entry.export.clients().iter().map(|client| client.spec.to_string()).collect())
            .collect();
        let nodes = table.configured().zip(&names).map(|(entry, names)| Exportnode {
            dir: Opaque(entry.export.path().as_os_str().as_bytes()),
            groups: List(names.iter().map(|name| Opaque(name.as_bytes())).collect()) as Groups<'_>,
        });
        to.put::<Exports<'_>>(&List(nodes.collect()));
    }
}

/// A store's error as MNT's status. What MNT has no status for is logged.
fn status(error: store::Error) -> Mountstat3 {
    use store::Error;
    match error {
        Error::NotFound | Error::Stale => Mountstat3::Noent,
        Error::NotDirectory => Mountstat3::Notdir,
        Error::Access | Error::InvalidName | Error::NestedExport(_) => Mountstat3::Acces,
        Error::Permission => Mountstat3::Perm,
        Error::NameTooLong => Mountstat3::Nametoolong,
        Error::Invalid => Mountstat3::Inval,
        Error::NotSupported => Mountstat3::Notsupp,
        Error::Io(_) => Mountstat3::Io,
        _ => {
            static LIMIT: LogLimit = LogLimit::new(10);
            if let Some(skipped) = LIMIT.admit(Instant::now()) {
                tracing::warn!(%error, skipped, "MNT is answered MNT3ERR_SERVERFAULT");
            }
            Mountstat3::Serverfault
        }
    }
}
