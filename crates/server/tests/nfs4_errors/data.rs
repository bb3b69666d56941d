//! Errors of space, holes, copies and extended attributes.

use super::*;

/// Space, holes and copies.
pub fn holes_and_copies(b: &mut Bench, file: &[u8], elsewhere: &[u8]) {
    b.at(file, Op::Allocate, &range(ANY, 0), S::Inval);
    b.at(file, Op::Deallocate, &range(ANY, 0), S::Inval);
    let beyond = Allocate4Args { stateid: ANY, offset: 1 << 63, length: 1 };
    b.at(file, Op::Allocate, &beyond, S::Fbig);
    b.at(file, Op::Seek, &seek(ANY, 1 << 20, 0), S::Nxio);
    b.at(file, Op::Seek, &seek(ANY, 0, 7), S::UnionNotsupp);
    b.at(file, Op::Commit, &Commit4Args { offset: u64::MAX, count: 1 }, S::Inval);
    let hint = IoAdvise4Args { stateid: ANY, offset: u64::MAX, count: 1, hints: Bitmap4::EMPTY };
    b.at(file, Op::IoAdvise, &hint, S::Inval);
    b.between(file, file, Op::Copy, &copy(ANY, ANY, 1 << 20), S::Inval);
    let far = Copy4Args { source_server: Array(vec![Netloc4::Name(Opaque(b"far"))]), ..copy(ANY, ANY, 0) };
    b.between(file, file, Op::Copy, &far, S::Notsupp);
    let far_file = b.session.open(elsewhere, OpenClaim4::Null(Opaque(b"f")), true).unwrap().1;
    b.between(file, &far_file, Op::Copy, &copy(ANY, ANY, 0), S::Xdev);
    b.between(file, &far_file, Op::Clone, &clone(ANY, ANY), S::Xdev);
    let huge = Write4Args { offset: u64::MAX - 5, ..write(ANY) };
    b.at(file, Op::Write, &huge, S::Fbig);
}

/// Extended attributes.
pub fn xattrs(b: &mut Bench, file: &[u8]) {
    let none = Xattr4Args { name: Opaque(b"none") };
    b.at(file, Op::Getxattr, &none, S::Noxattr);
    b.at(file, Op::Removexattr, &none, S::Noxattr);
    b.at(file, Op::Setxattr, &setxattr(SetxattrOption4::Replace, b"none"), S::Noxattr);
    assert_eq!(b.session.on(file, Op::Setxattr, &setxattr(SetxattrOption4::Create, b"some")).0, 0);
    b.at(file, Op::Setxattr, &setxattr(SetxattrOption4::Create, b"some"), S::Exist);
    let long = [b'x'; 300];
    b.at(file, Op::Getxattr, &Xattr4Args { name: Opaque(&long) }, S::Nametoolong);
    b.at(file, Op::Removexattr, &Xattr4Args { name: Opaque(&long) }, S::Nametoolong);
    b.at(file, Op::Setxattr, &setxattr(SetxattrOption4::Either, &long), S::Nametoolong);
    b.at(file, Op::Listxattrs, &Listxattrs4Args { cookie: 99, maxcount: 1000 }, S::BadCookie);
    b.at(file, Op::Listxattrs, &Listxattrs4Args { cookie: 0, maxcount: 4 }, S::Toosmall);
}
