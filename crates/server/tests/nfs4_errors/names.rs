//! Errors of handles and names, of arguments that can't be decoded, and of operations without a session.

use super::*;

/// No handle, bad handles, arguments that can't be decoded, and operations without a session.
pub fn handles(b: &mut Bench, scratch: &Scratch, root: &[u8]) {
    for (op, args) in on_a_file() {
        b.fails(&[], op, &args, S::Nofilehandle);
    }
    let at_root: &[(Op, Vec<u8>)] = &[(Op::Putfh, encoded(&Putfh4Args { object: Opaque(root) }))];
    for (op, args) in on_a_file().into_iter().chain(on_no_file()) {
        if !args.is_empty() {
            // Cut in the middle of the arguments.
            b.fails(at_root, op, &[], S::Badxdr);
        }
        let mut ops = Ops::new();
        ops.count = 1;
        ops.encoder.u32(op.number());
        ops.encoder.raw(&args);
        let done = compound(&mut b.session.wire, 2, &ops);
        b.table.note(op, S::OpNotInSession, done.status);
    }
    for (op, args) in on_no_file().into_iter().take(4) {
        b.fails(at_root, op, &args, S::Nofilehandle);
    }
    let ctl = BackchannelCtl4Args { cb_program: 1, sec_parms: Array(vec![]) };
    b.fails(&[], Op::BackchannelCtl, &encoded(&ctl), S::Inval);
    b.fails(&[], Op::Restorefh, &[], S::Nofilehandle);
    b.fails(&[], Op::Putfh, &encoded(&Putfh4Args { object: Opaque(&[1, 2, 3]) }), S::Badhandle);
    for op in [Op::Access, Op::Getattr, Op::Setattr, Op::Read, Op::Write, Op::Seek, Op::WantDelegation] {
        std::fs::write(scratch.at("gone"), "").unwrap();
        let gone = b.session.lookup(root, b"gone").unwrap();
        let put = |file: &[u8]| (Op::Putfh, encoded(&Putfh4Args { object: Opaque(file) }));
        let remove = (Op::Remove, encoded(&named(b"gone")));
        // It is removed while it is the saved file.
        let before = [put(&gone), (Op::Savefh, vec![]), put(root), remove, (Op::Restorefh, vec![])];
        let args =
            on_a_file().into_iter().find(|(other, _)| *other == op).map(|(_, args)| args).unwrap_or_default();
        b.fails(&before, op, &args, S::Stale);
        b.fails_finally(Op::Putfh, &encoded(&Putfh4Args { object: Opaque(&gone) }), S::Stale);
    }
}

/// Invalid names, names that don't exist, and names that exist.
pub fn names(b: &mut Bench, root: &[u8], file: &[u8], directory: &[u8]) {
    let clientid = b.session.clientid;
    let long = [b'x'; 300];
    let bad: [(&[u8], S); 4] =
        [(b"", S::Inval), (b".", S::Badname), (b"a/b", S::Badchar), (&long, S::Nametoolong)];
    for (name, status) in bad {
        for op in [Op::Lookup, Op::Remove, Op::Secinfo] {
            b.at(root, op, &named(name), status);
        }
        b.at(root, Op::Create, &create(NfsFtype4::Dir, name, nothing()), status);
        b.at(root, Op::Open, &open(clientid, OpenClaim4::Null(Opaque(name)), Openflag4::Nocreate), status);
        b.between(file, root, Op::Link, &named(name), status);
        b.between(root, root, Op::Rename, &rename(b"f", name), status);
        b.between(root, root, Op::Rename, &rename(name, b"h"), status);
    }
    for op in [Op::Lookup, Op::Remove, Op::Secinfo] {
        b.at(root, op, &named(b"missing"), S::Noent);
    }
    b.at(
        root,
        Op::Open,
        &open(clientid, OpenClaim4::Null(Opaque(b"missing")), Openflag4::Nocreate),
        S::Noent,
    );
    b.between(root, root, Op::Rename, &rename(b"missing", b"h"), S::Noent);
    b.at(root, Op::Create, &create(NfsFtype4::Dir, b"f", nothing()), S::Exist);
    let guarded = Openflag4::Create(Createhow4::Guarded(nothing()));
    b.at(root, Op::Open, &open(clientid, OpenClaim4::Null(Opaque(b"f")), guarded), S::Exist);
    b.between(file, root, Op::Link, &named(b"g"), S::Exist);
    b.between(root, root, Op::Rename, &rename(b"f", b"d"), S::Exist);
    b.between(directory, root, Op::Link, &named(b"h"), S::Isdir);
}
