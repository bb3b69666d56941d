//! MOUNT, LOCALIO and rpcbind, compared with bytes written down by hand from their specifications.

use crate::bytes::{hex, same};
use proto::{localio, mount3, rpcbind};
use xdr::{Array, Decoder, Error, List, Opaque};

#[test]
fn mount_results() {
    let root = mount3::Mountres3Ok { fhandle: Opaque(b"root!"), auth_flavors: Array(vec![1, 0]) };
    let expected =
        hex(&["00000000 00000005 726f6f74 21000000", "00000002 00000001 00000000 # AUTH_SYS, AUTH_NONE"]);
    same(&mount3::Mountres3::Ok(root), &expected);
    same(&mount3::Mountres3::Fail(mount3::Mountstat3::Acces), &hex(&["0000000d"]));
    same(&mount3::Mountres3::Fail(mount3::Mountstat3::Serverfault), &hex(&["00002716"]));
    let unknown = Decoder::new(&hex(&["00000003"])).get::<mount3::Mountres3<'_>>().unwrap_err();
    assert_eq!(unknown, Error::Discriminant { of: "Mountstat3", value: 3 });
}

#[test]
fn mount_arguments_and_lists() {
    same::<mount3::Dirpath<'_>>(&Opaque(b"/srv"), &hex(&["00000004 2f737276"]));
    let body = mount3::Mountbody { hostname: Opaque(b"me"), directory: Opaque(b"/srv") };
    let expected = hex(&["00000001 00000002 6d650000 00000004 2f737276 00000000"]);
    same::<mount3::Mountlist<'_>>(&List(vec![body]), &expected);
    let export = mount3::Exportnode { dir: Opaque(b"/srv"), groups: List(vec![Opaque(b"*")]) };
    let open = mount3::Exportnode { dir: Opaque(b"/"), groups: List(vec![]) };
    let expected = hex(&[
        "00000001 00000004 2f737276",
        "00000001 00000001 2a000000 00000000 # one group",
        "00000001 00000001 2f000000 00000000 # everybody",
        "00000000",
    ]);
    same::<mount3::Exports<'_>>(&List(vec![export, open]), &expected);
    same::<mount3::Exports<'_>>(&List(vec![]), &hex(&["00000000"]));
}

#[test]
fn mount_lengths_are_refused_above_their_bounds() {
    let too_long = |max, len| Some(Error::TooLong { max, len });
    let path = 1025_u32.to_be_bytes();
    assert_eq!(Decoder::new(&path).get::<mount3::Dirpath<'_>>().err(), too_long(1024, 1025));
    let name = 256_u32.to_be_bytes();
    assert_eq!(Decoder::new(&name).get::<mount3::Name<'_>>().err(), too_long(255, 256));
    let handle = 65_u32.to_be_bytes();
    assert_eq!(Decoder::new(&handle).get::<mount3::Fhandle3<'_>>().err(), too_long(64, 65));
}

#[test]
fn a_nonce_is_sixteen_raw_bytes() {
    let uuid = *b"\x00\x11\x22\x33\x44\x55\x66\x77\x88\x99\xaa\xbb\xcc\xdd\xee\xff";
    same(&localio::UuidIsLocalArgs { uuid }, &uuid);
}

#[test]
fn port_mapper() {
    let mapping = rpcbind::Mapping { prog: 100_003, vers: 3, prot: rpcbind::IPPROTO_TCP, port: 2049 };
    same(&mapping, &hex(&["000186a3 00000003 00000006 00000801"]));
    let list = hex(&["00000001 000186a3 00000003 00000006 00000801 00000000"]);
    same::<rpcbind::Pmaplist>(&List(vec![mapping]), &list);
}

#[test]
fn rpcbind_arguments() {
    let rpcb = rpcbind::Rpcb {
        prog: 100_005,
        vers: 3,
        netid: Opaque(rpcbind::NETID_TCP6),
        addr: Opaque(b"::.8.1"),
        owner: Opaque(b""),
    };
    let expected = "000186a5 00000003 00000004 74637036 00000006 3a3a2e38 2e310000 00000000";
    same(&rpcb, &hex(&[expected]));
    let list = hex(&["00000001", expected, "00000000"]);
    same::<rpcbind::Rpcblist<'_>>(&List(vec![rpcb]), &list);
}

#[test]
fn procedures_are_numbered_and_named() {
    let names = ["NULL", "MNT", "DUMP", "UMNT", "UMNTALL", "EXPORT"];
    for (number, name) in (0..).zip(names) {
        assert_eq!(mount3::Procedure::from_number(number).unwrap().name(), name);
    }
    assert_eq!(mount3::Procedure::from_number(6), None);
    for (number, name) in (0..).zip(["NULL", "UUID_IS_LOCAL"]) {
        assert_eq!(localio::Procedure::from_number(number).unwrap().name(), name);
    }
    assert_eq!(localio::Procedure::from_number(2), None);
    assert_eq!(rpcbind::Procedure::Getaddr.number(), 3);
    assert_eq!(rpcbind::Procedure::from_number(12).unwrap().name(), "GETSTAT");
    assert_eq!(rpcbind::Procedure::from_number(13), None);
}
