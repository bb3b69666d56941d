//! Writes the hand-made part of the corpus, one file a shape, as a starting point for the fuzzer:
//! `cargo run --manifest-path fuzz/Cargo.toml --example seeds`.

use proto::{localio, mount3, nfs3::*, rpcbind};
use rpc::message::{AuthSys, CallHeader, Credential, ReplyHeader, ReplyStatus};
use std::path::Path;
use xdr::{Array, Encode, Encoder, List, Opaque};

fn main() -> std::io::Result<()> {
    nfs()?;
    nfs4()?;
    records()?;
    lane_messages()?;
    exports_texts()
}

fn write(target: &str, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join(name), bytes)
}

fn bytes(value: &impl Encode) -> Vec<u8> {
    let mut to = Encoder::new();
    to.put(value);
    to.into_vec()
}

fn nfs() -> std::io::Result<()> {
    let seed = |name: &str, value: &dyn Encode| {
        let mut to = Encoder::new();
        value.encode(&mut to);
        write("xdr_nfs3", name, to.as_slice())
    };
    let handle: NfsFh3<'_> = Opaque(b"0123456789");
    let place = Diropargs3 { dir: handle, name: Opaque(b"name.") };
    let time = Nfstime3 { seconds: 1_700_000_000, nseconds: 5 };
    let attributes = Fattr3 {
        kind: Ftype3::Reg,
        mode: 0o644,
        nlink: 1,
        uid: 1,
        gid: 2,
        size: 3,
        used: 4096,
        rdev: Specdata3::default(),
        fsid: 9,
        fileid: 42,
        atime: time,
        mtime: time,
        ctime: time,
    };
    let wcc =
        WccData { before: Some(WccAttr { size: 1, mtime: time, ctime: time }), after: Some(attributes) };
    let sattr = Sattr3 {
        mode: Some(0o600),
        uid: Some(1),
        gid: None,
        size: Some(0),
        atime: SetTime::SetToServerTime,
        mtime: SetTime::SetToClientTime(time),
    };
    let device = Devicedata3 { attributes: sattr, spec: Specdata3 { specdata1: 1, specdata2: 3 } };
    let made = NewObject3 { obj: Some(handle), obj_attributes: Some(attributes), dir_wcc: wcc };
    let verifier = *b"verifier";

    seed("getattr-args", &Getattr3Args { object: handle })?;
    seed("getattr-ok", &Getattr3Res::Ok(attributes))?;
    seed("setattr-args", &Setattr3Args { object: handle, new_attributes: sattr, guard: Some(time) })?;
    seed("setattr-fail", &Setattr3Res::Fail(Nfsstat3::NotSync, wcc))?;
    seed("lookup-args", &Lookup3Args { what: place })?;
    let found =
        Lookup3ResOk { object: handle, obj_attributes: Some(attributes), dir_attributes: Some(attributes) };
    seed("lookup-ok", &Lookup3Res::Ok(found))?;
    seed("access-ok", &Access3Res::Ok(Access3ResOk { obj_attributes: Some(attributes), access: 0x3f }))?;
    let link = Readlink3ResOk { symlink_attributes: Some(attributes), data: Opaque(b"../to") };
    seed("readlink-ok", &Readlink3Res::Ok(link))?;
    seed("read-args", &Read3Args { file: handle, offset: 1 << 40, count: 4096 })?;
    let read = Read3ResOk { attributes: Some(attributes), count: 5, eof: true, data: Opaque(b"bytes") };
    seed("read-ok", &Read3Res::Ok(read))?;
    let write = Write3Args {
        file: handle,
        offset: u64::MAX,
        count: 3,
        stable: StableHow::DataSync,
        data: Opaque(b"abc"),
    };
    seed("write-args", &write)?;
    let written = Write3ResOk { file_wcc: wcc, count: 3, committed: StableHow::FileSync, verf: verifier };
    seed("write-ok", &Write3Res::Ok(written))?;
    seed("create-guarded", &Create3Args { where_: place, how: Createhow3::Guarded(sattr) })?;
    seed("create-exclusive", &Create3Args { where_: place, how: Createhow3::Exclusive(verifier) })?;
    seed("create-ok", &Create3Res::Ok(made))?;
    seed("mkdir-args", &Mkdir3Args { where_: place, attributes: sattr })?;
    let symlink = Symlinkdata3 { attributes: sattr, data: Opaque(b"../to") };
    seed("symlink-args", &Symlink3Args { where_: place, symlink })?;
    seed("mknod-chr", &Mknod3Args { where_: place, what: Mknoddata3::Chr(device) })?;
    seed("mknod-fifo", &Mknod3Args { where_: place, what: Mknoddata3::Fifo(sattr) })?;
    seed("mknod-reg", &Mknod3Args { where_: place, what: Mknoddata3::Other(1) })?;
    seed("rename-args", &Rename3Args { from: place, to: place })?;
    seed("rename-ok", &Rename3Res::Ok(Rename3Body { fromdir_wcc: wcc, todir_wcc: wcc }))?;
    seed("link-args", &Link3Args { file: handle, link: place })?;
    let linked = Link3Body { file_attributes: Some(attributes), linkdir_wcc: wcc };
    seed("link-ok", &Link3Res::Ok(linked))?;
    seed("readdir-args", &Readdir3Args { dir: handle, cookie: 3, cookieverf: verifier, count: 4096 })?;
    let head = ReaddirHead { dir_attributes: Some(attributes), cookieverf: verifier };
    let entries = List(vec![Entry3 { fileid: 42, name: Opaque(b"a"), cookie: 1 }; 2]);
    let reply = Dirlist3 { entries, eof: true };
    seed("readdir-ok", &Readdir3Res::Ok(Readdir3ResOk { head, reply }))?;
    let args =
        Readdirplus3Args { dir: handle, cookie: 3, cookieverf: verifier, dircount: 512, maxcount: 4096 };
    seed("readdirplus-args", &args)?;
    let entry = Entryplus3 {
        fileid: 42,
        name: Opaque(b"ab"),
        cookie: 1,
        name_attributes: Some(attributes),
        name_handle: Some(handle),
    };
    let reply = Dirlist3 { entries: List(vec![entry]), eof: false };
    seed("readdirplus-ok", &Readdirplus3Res::Ok(Readdirplus3ResOk { head, reply }))?;
    let stat = Fsstat3ResOk {
        obj_attributes: Some(attributes),
        tbytes: 6,
        fbytes: 5,
        abytes: 4,
        tfiles: 3,
        ffiles: 2,
        afiles: 1,
        invarsec: 0,
    };
    seed("fsstat-ok", &Fsstat3Res::Ok(stat))?;
    let info = Fsinfo3ResOk {
        obj_attributes: None,
        rtmax: 1 << 20,
        rtpref: 1 << 20,
        rtmult: 4096,
        wtmax: 1 << 20,
        wtpref: 1 << 20,
        wtmult: 4096,
        dtpref: 65_536,
        maxfilesize: i64::MAX.unsigned_abs(),
        time_delta: time,
        properties: 0x1b,
    };
    seed("fsinfo-ok", &Fsinfo3Res::Ok(info))?;
    let conf = Pathconf3ResOk {
        obj_attributes: None,
        linkmax: 127,
        name_max: 255,
        no_trunc: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
    };
    seed("pathconf-ok", &Pathconf3Res::Ok(conf))?;
    seed("commit-args", &Commit3Args { file: handle, offset: 0, count: 0 })?;
    seed("commit-ok", &Commit3Res::Ok(Commit3ResOk { file_wcc: wcc, verf: verifier }))?;

    let mounted = mount3::Mountres3Ok { fhandle: handle, auth_flavors: Array(vec![1, 0]) };
    seed("mnt-ok", &mount3::Mountres3::Ok(mounted))?;
    let mounts: mount3::Mountlist<'_> =
        List(vec![mount3::Mountbody { hostname: Opaque(b"host"), directory: Opaque(b"/srv") }]);
    seed("dump-ok", &mounts)?;
    let exports: mount3::Exports<'_> =
        List(vec![mount3::Exportnode { dir: Opaque(b"/srv"), groups: List(vec![Opaque(b"*")]) }]);
    seed("export-ok", &exports)?;
    seed("uuid-is-local", &localio::UuidIsLocalArgs { uuid: *b"0123456789abcdef" })?;
    let mapping = rpcbind::Mapping { prog: 100_003, vers: 3, prot: rpcbind::IPPROTO_TCP, port: 2049 };
    seed("pmap", &List::<_, { rpcbind::MAX_ENTRIES }>(vec![mapping]))?;
    let rpcb = rpcbind::Rpcb {
        prog: 100_003,
        vers: 3,
        netid: Opaque(b"tcp"),
        addr: Opaque(b"127.0.0.1.8.1"),
        owner: Opaque(b"superuser"),
    };
    seed("rpcb", &List::<_, { rpcbind::MAX_ENTRIES }>(vec![rpcb]))?;
    write_text("xdr_nfs3", "universal", "127.0.0.1.8.1")
}

fn write_text(target: &str, name: &str, text: &str) -> std::io::Result<()> {
    write(target, name, text.as_bytes())
}

/// One fragment of a record.
fn fragment(bytes: &[u8], last: bool) -> Vec<u8> {
    let length = u32::try_from(bytes.len()).expect("a seed is small");
    [&(length | u32::from(last) << 31).to_be_bytes(), bytes].concat()
}

fn nfs4() -> std::io::Result<()> {
    use proto::nfs4::*;
    let seed = |name: &str, value: &dyn Encode| {
        let mut to = Encoder::new();
        value.encode(&mut to);
        write("xdr_nfs4", name, to.as_slice())
    };
    let stateid = Stateid4 { seqid: 1, other: *b"twelve bytes" };
    let mode = bytes(&0o640_u32);
    let attributes = Fattr4 { attrmask: Bitmap4::of(&[attributes::MODE]), attr_vals: Opaque(&mode) };
    let owner = StateOwner4 { clientid: 7, owner: Opaque(b"owner") };
    let open = Open4Args {
        seqid: 1,
        share_access: SHARE_ACCESS_BOTH | SHARE_ACCESS_WANT_READ_DELEG,
        share_deny: 0,
        owner,
        openhow: Openflag4::Nocreate,
        claim: OpenClaim4::Null(Opaque(b"name")),
    };
    seed("open-null", &open)?;
    let exclusive = Creatverfattr { verf: *b"verifier", attrs: attributes };
    let create = |how| Open4Args { openhow: Openflag4::Create(how), ..open };
    seed("open-create", &create(Createhow4::Unchecked(attributes)))?;
    seed("open-exclusive", &create(Createhow4::Exclusive41(exclusive)))?;
    seed("open-previous", &Open4Args { claim: OpenClaim4::Previous(2), ..open })?;
    let ace = Nfsace4 { kind: ACE_ALLOWED, flag: 0, access_mask: ACE_READ_DATA, who: Opaque(b"EVERYONE@") };
    let delegation = OpenWriteDelegation4 {
        stateid,
        recall: false,
        space_limit: NfsSpaceLimit4::Size(1 << 30),
        permissions: ace,
    };
    let opened = Open4ResOk {
        stateid,
        cinfo: ChangeInfo4 { atomic: true, before: 1, after: 2 },
        rflags: RESULT_LOCKTYPE_POSIX,
        attrset: Bitmap4::of(&[attributes::MODE, attributes::SUPPATTR_EXCLCREAT]),
        delegation: OpenDelegation4::Write(delegation),
    };
    seed("open-ok", &opened)?;
    seed("acl", &Array::<_, MAX_ACES>(vec![ace, Nfsace4 { kind: ACE_DENIED, ..ace }]))?;
    seed("setattr", &Setattr4Args { stateid, obj_attributes: attributes })?;
    seed(
        "write",
        &Write4Args { stateid, offset: 1 << 40, stable: StableHow4::FileSync, data: Opaque(b"abc") },
    )?;
    let exchange = ExchangeId4Args {
        clientowner: ClientOwner4 { verifier: *b"verifier", ownerid: Opaque(b"client") },
        flags: EXCHGID_UPD_CONFIRMED_REC_A,
        state_protect: StateProtect4A::MachCred(StateProtectOps4::default()),
        client_impl_id: Array(vec![NfsImplId4 {
            domain: Opaque(b"example.org"),
            name: Opaque(b"name"),
            date: Nfstime4::default(),
        }]),
    };
    seed("exchange-id", &exchange)?;
    let channel = ChannelAttrs4 { maxrequestsize: 1 << 20, maxrequests: 64, ..ChannelAttrs4::default() };
    let sys =
        AuthsysParms { stamp: 1, machinename: Opaque(b"host"), uid: 0, gid: 0, gids: Array(vec![1, 2]) };
    let session = CreateSession4Args {
        clientid: 7,
        sequence: 1,
        flags: CREATE_SESSION_CONN_BACK_CHAN,
        fore_chan_attrs: channel.clone(),
        back_chan_attrs: channel,
        cb_program: 0x4000_0000,
        sec_parms: Array(vec![CallbackSecParms4::None, CallbackSecParms4::Sys(sys)]),
    };
    seed("create-session", &session)?;
    let first = OpenToLockOwner4 { open_seqid: 1, open_stateid: stateid, lock_seqid: 0, lock_owner: owner };
    let lock = Lock4Args {
        locktype: NfsLockType4::Writew,
        reclaim: false,
        offset: 0,
        length: u64::MAX,
        locker: Locker4::New(first),
    };
    seed("lock", &lock)?;
    let hole = DataInfo4 { offset: 4096, length: 1 << 20 };
    let data = Data4 { offset: 0, data: Opaque(b"data") };
    let contents = Array(vec![ReadPlusContent4::Data(data), ReadPlusContent4::Hole(hole)]);
    seed("read-plus-ok", &ReadPlus4ResOk { eof: true, contents })?;
    seed("test-stateid", &TestStateid4Args { stateids: Array(vec![stateid; 3]) })
}

fn records() -> std::io::Result<()> {
    let call = |credential: &Credential| {
        let mut to = Encoder::new();
        CallHeader::encode(&mut to, 7, PROGRAM, VERSION, Procedure::Getattr.number(), credential);
        to.put(&Getattr3Args { object: Opaque(b"handle") });
        to.into_vec()
    };
    let sys = Credential::Sys(AuthSys {
        stamp: 1,
        machine_name: b"host".to_vec(),
        uid: 1000,
        gid: 100,
        gids: vec![4, 24],
    });
    let reply = |status| bytes(&ReplyHeader { xid: 7, status });
    let seed = |name: &str, cuts: &[u8], stream: Vec<u8>| {
        let count = u8::try_from(cuts.len()).expect("a seed is small");
        write("rpc_record", name, &[&[count], cuts, &stream].concat())
    };
    seed("call-none", &[], fragment(&call(&Credential::None), true))?;
    seed("call-sys", &[3, 9, 0, 40], fragment(&call(&sys), true))?;
    let whole = call(&sys);
    let (head, tail) = whole.split_at(24);
    seed("two-fragments", &[30], [fragment(head, false), fragment(tail, true)].concat())?;
    seed("reply-success", &[1, 1], fragment(&reply(ReplyStatus::Success), true))?;
    let mismatch = reply(ReplyStatus::ProgMismatch { low: 3, high: 3 });
    seed("reply-mismatch", &[], fragment(&mismatch, true))?;
    seed("reply-denied", &[], fragment(&reply(ReplyStatus::RpcMismatch { low: 2, high: 2 }), true))?;
    seed("empty-fragments", &[2, 2], [[0; 4].repeat(8), fragment(b"", true)].concat())?;
    seed("too-long", &[], vec![0x80, 0, 2, 1])
}

fn lane_messages() -> std::io::Result<()> {
    use lane::message::{HandshakeRefusal, PrefetchedFile, LaneReply, LaneRequest, encode};
    use lane::{
        Access, Commitment, CreateMode, LaneCredential, DirectoryChange, GrantAttributes, NewFile, Nonce,
        PreOpAttributes, PrefetchTargets, OpenStatus, Target,
    };

    let seed = |name: &str, bytes: Vec<u8>| write("lane_message", name, &bytes);
    let credential = LaneCredential { uid: 1, gid: 2, gids: vec![3, 4] };
    let register = LaneRequest::Register { lowest: 2, highest: 5, commitment: Commitment([0xcc; 32]) };
    seed("register", encode(&register))?;
    let by_handle = LaneRequest::Open {
        serial: 1,
        releases: vec![7, 8],
        target: Target::Handle(b"handle"),
        access: Access::Read,
        credential: credential.clone(),
    };
    seed("open-handle", encode(&by_handle))?;
    let by_name = LaneRequest::Open {
        serial: 2,
        releases: vec![],
        target: Target::Entry { directory: b"directory", name: b"name" },
        access: Access::ReadWrite,
        credential: credential.clone(),
    };
    seed("open-entry", encode(&by_name))?;
    for (name, how) in
        [("open-unchecked", CreateMode::Unchecked), ("open-exclusive", CreateMode::Exclusive([4; 8]))]
    {
        let new = NewFile { directory: b"directory", name: b"name", mode: 0o644, how };
        let open = LaneRequest::Open {
            serial: 4,
            releases: vec![],
            target: Target::New(new),
            access: Access::Write,
            credential: credential.clone(),
        };
        seed(name, encode(&open))?;
    }
    let whole = [("open-tree", Target::Tree(b"directory")), ("open-mount", Target::Mount(b"root"))];
    for (name, target) in whole {
        let (releases, access) = (vec![], Access::ReadWrite);
        let credential = credential.clone();
        let open = LaneRequest::Open { serial: 5, releases, target, access, credential };
        seed(name, encode(&open))?;
    }
    for (name, targets) in [
        ("ahead-handles", PrefetchTargets::Handles(vec![b"one", b"another"])),
        (
            "ahead-entries",
            PrefetchTargets::Entries { directory: b"directory", names: vec![b"name", b"next", b""] },
        ),
    ] {
        let credential = credential.clone();
        seed(name, encode(&LaneRequest::Prefetch { serial: 3, releases: vec![5], targets, credential }))?;
    }
    seed("release", encode(&LaneRequest::Release(vec![1, 2, 3])))?;
    seed("async", encode(&LaneRequest::Async))?;
    seed("calls", encode(&LaneRequest::Calls { serial: 6, releases: vec![4] }))?;
    seed("call-socket", encode(&LaneReply::CallSocket { serial: 6 }))?;
    let local = LaneReply::Local {
        version: 5,
        nonce: Nonce([1; 16]),
        instance: [2; 16],
        grants: 1024,
        outstanding: 64,
        slots: 58,
    };
    seed("local", encode(&local))?;
    let version = HandshakeRefusal::Version { lowest: 2, highest: 5 };
    seed("refused-version", encode(&LaneReply::Refused(version)))?;
    seed("refused-draining", encode(&LaneReply::Refused(HandshakeRefusal::Draining)))?;
    let opened = LaneReply::Opened {
        serial: 1,
        grant: 9,
        generation: 2,
        verifier: [4; 8],
        handle: b"handle",
        attributes: GrantAttributes::default(),
        directory: None,
    };
    seed("opened", encode(&opened))?;
    let changed = DirectoryChange {
        before: Some(PreOpAttributes::default()),
        after: Some(GrantAttributes::default().file),
    };
    for (name, directory) in
        [("made", changed), ("made-untold", DirectoryChange { before: None, after: None })]
    {
        let made = LaneReply::Opened {
            serial: 4,
            grant: 9,
            generation: 2,
            verifier: [4; 8],
            handle: b"handle",
            attributes: GrantAttributes::default(),
            directory: Some(Box::new(directory)),
        };
        seed(name, encode(&made))?;
    }
    seed("not-opened", encode(&LaneReply::NotOpened { serial: 1, status: OpenStatus::Symlink }))?;
    let file =
        |index| PrefetchedFile { index, grant: 9, handle: b"handle", attributes: GrantAttributes::default() };
    let files = vec![file(0), file(2)];
    seed("given", encode(&LaneReply::Prefetched { serial: 3, generation: 2, verifier: [4; 8], files }))?;
    seed("drain", encode(&LaneReply::Drain))?;
    seed("recall", encode(&LaneReply::Recall { generation: 3 }))
}

fn exports_texts() -> std::io::Result<()> {
    let seed = |name: &str, text: &str| write_text("exports_parser", name, text);
    seed("plain", "/srv\n/home *(rw)\n")?;
    seed(
        "clients",
        "/a 10.0.0.0/8(ro) fe80::/64(rw,insecure) host.example.org *.example.org(rw) [ab]?(ro)\n",
    )?;
    seed("squash", "/a *(rw,all_squash,anonuid=65534,anongid=65534,no_lane)\n/b *(no_root_squash,fsid=7)\n")?;
    seed("quoted", "\"/with space\" *(rw)\n/oc\\040tal *\n")?;
    seed("continued", "# comment\n/a \\\n  host(rw,sync,no_subtree_check) \\\n  other\n")?;
    seed("defaults", "/a -ro,insecure host(rw) other\n")?;
    seed("masks", "/a 192.168.0.0/255.255.0.0(rw,async,secure,root_squash)\n")?;
    seed("wrong", "relative *(rw)\n/a host(bogus\n/b *(rw,rw=1,fsid=)\n")
}
