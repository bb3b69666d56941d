//! Translation of access control lists: the permissions of a process before and after.

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proto::nfs4::{
    ACE_APPEND_DATA, ACE_DELETE_CHILD, ACE_DIRECTORY_INHERIT, ACE_EXECUTE, ACE_FILE_INHERIT,
    ACE_INHERIT_ONLY, ACE_READ_DATA, ACE_WRITE_DATA,
};
use sys::{PosixAcl, PosixAcls};

use super::ace::{EXECUTE, INHERITED, READ, WRITE, rights_of};
use super::*;

/// A process.
#[derive(Debug, Clone)]
struct Process {
    uid: u32,
    gids: Vec<u32>,
}

/// The file's owner and group in these tests.
const OWNER: u32 = 1;
const GROUP: u32 = 1;

/// What POSIX's rules (acl(5), access check algorithm) let a process do: whether all of `permissions`.
fn posix_lets(acl: &PosixAcl, process: &Process, permissions: u8) -> bool {
    let most = acl.mask.unwrap_or(7);
    let has = |given: u8| given & permissions == permissions;
    if process.uid == OWNER {
        return has(acl.owner);
    }
    if let Some((_, given)) = acl.users.iter().find(|(uid, _)| *uid == process.uid) {
        return has(given & most);
    }
    let own = process.gids.contains(&GROUP).then_some(acl.group);
    let named = acl.groups.iter().filter(|(gid, _)| process.gids.contains(gid)).map(|(_, given)| *given);
    let mut matching = own.into_iter().chain(named).peekable();
    if matching.peek().is_some() {
        return matching.any(|given| has(given & most));
    }
    has(acl.other)
}

/// What NFSv4's rules (RFC 8881 section 6.2.1) let it do: whether all of `rights`.
fn nfs4_lets(aces: &[Ace], inherited: bool, process: &Process, rights: u32) -> bool {
    let mut undecided = rights;
    for ace in aces {
        let counts = if inherited { ace.flags & INHERITED != 0 } else { ace.flags & ACE_INHERIT_ONLY == 0 };
        let is_he = match ace.who {
            Who::Owner => process.uid == OWNER,
            Who::Group => process.gids.contains(&GROUP),
            Who::Everyone => true,
            Who::User(uid) => process.uid == uid,
            Who::NamedGroup(gid) => process.gids.contains(&gid),
        };
        if !counts || !is_he {
            continue;
        }
        if ace.allows {
            undecided &= !ace.rights;
        } else if ace.rights & undecided != 0 {
            return false;
        }
    }
    undecided == 0
}

fn process() -> impl Strategy<Value = Process> {
    (0..6_u32, vec(0..6_u32, 0..4)).prop_map(|(uid, gids)| Process { uid, gids })
}

fn posix() -> impl Strategy<Value = PosixAcl> {
    let named = || btree_map(0..6_u32, 0..8_u8, 0..4);
    (0..8_u8, named(), 0..8_u8, named(), 0..8_u8, 0..8_u8).prop_map(
        |(owner, users, group, groups, mask, other)| {
            let (users, groups): (Vec<_>, Vec<_>) =
                (users.into_iter().collect(), groups.into_iter().collect());
            let mask = (!users.is_empty() || !groups.is_empty()).then_some(mask);
            PosixAcl { owner, users, group, groups, mask, other }
        },
    )
}

fn nfs4(directory: bool) -> impl Strategy<Value = Vec<Ace>> {
    let who = prop_oneof![
        Just(Who::Owner),
        Just(Who::Group),
        Just(Who::Everyone),
        (0..6_u32).prop_map(Who::User),
        (0..6_u32).prop_map(Who::NamedGroup),
    ];
    let rights = prop_oneof![Just(u32::MAX), 0..0x200_u32];
    let flags = if directory {
        prop_oneof![Just(0), Just(INHERITED), Just(INHERITED | ACE_INHERIT_ONLY)].boxed()
    } else {
        Just(0).boxed()
    };
    vec(
        (any::<bool>(), flags, rights, who).prop_map(|(allows, flags, rights, who)| Ace {
            allows,
            flags,
            rights,
            who,
        }),
        0..12,
    )
}

/// The list with the mask applied, and the mask that follows from that.
fn plain(acl: &PosixAcl) -> PosixAcl {
    let most = acl.mask.unwrap_or(7);
    let of = |entries: &[(u32, u8)]| -> Vec<(u32, u8)> {
        entries.iter().map(|(id, given)| (*id, given & most)).collect()
    };
    let (users, groups, group) = (of(&acl.users), of(&acl.groups), acl.group & most);
    let all = users.iter().chain(&groups).fold(group, |all, (_, given)| all | given);
    PosixAcl { users, groups, group, mask: acl.mask.map(|_| all), ..acl.clone() }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 1024,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// One permission at a time: by NFSv4's rules two permissions at once may come from two groups.
    #[test]
    fn a_posix_list_means_the_same_in_nfs4(
        access in posix(),
        default in posix(),
        process in process(),
        directory: bool,
    ) {
        let acls = PosixAcls { access, default: directory.then_some(default) };
        let aces = to_nfs4(&acls, directory);
        for (bit, rights) in rights_of(directory) {
            let lets = nfs4_lets(&aces, false, &process, rights);
            prop_assert_eq!(posix_lets(&acls.access, &process, bit), lets);
            if let Some(default) = &acls.default {
                prop_assert_eq!(posix_lets(default, &process, bit), nfs4_lets(&aces, true, &process, rights));
            }
        }
    }

    #[test]
    fn a_posix_list_survives_the_round_trip(access in posix(), default in posix(), directory: bool) {
        let acls = PosixAcls { access, default: directory.then_some(default) };
        let back = from_nfs4(&to_nfs4(&acls, directory), directory).unwrap();
        let plain = PosixAcls { access: plain(&acls.access), default: acls.default.as_ref().map(plain) };
        prop_assert_eq!(&back, &plain);
        prop_assert_eq!(same_as_nfs4(&to_nfs4(&acls, directory), directory), Ok(plain));
    }

    #[test]
    fn a_clients_list_never_allows_more(
        (directory, aces) in any::<bool>().prop_flat_map(|directory| (Just(directory), nfs4(directory))),
        process in process(),
    ) {
        let PosixAcls { access, default } = from_nfs4(&aces, directory).unwrap();
        for (bit, rights) in rights_of(directory) {
            if posix_lets(&access, &process, bit) {
                prop_assert!(nfs4_lets(&aces, false, &process, rights), "{access:?}");
            }
            if default.as_ref().is_some_and(|default| posix_lets(default, &process, bit)) {
                prop_assert!(nfs4_lets(&aces, true, &process, rights), "{default:?}");
            }
        }
        prop_assert_eq!(default.is_some(), aces.iter().any(|ace| ace.flags & INHERITED != 0));
    }

    /// A list that is shown allows what the server's list allows, to every process.
    #[test]
    fn a_list_that_is_shown_means_the_same(
        (directory, aces) in any::<bool>().prop_flat_map(|directory| (Just(directory), simple(directory))),
        process in process(),
    ) {
        let Ok(PosixAcls { access, default }) = same_as_nfs4(&aces, directory) else { return Ok(()) };
        prop_assert!(access.is_valid());
        for (bit, rights) in rights_of(directory) {
            let of = |inherited: bool| {
                let counts = |ace: &&Ace| ace.rights & ACE_DELETE_CHILD != 0
                    && if inherited { ace.flags & INHERITED != 0 } else { ace.flags & ACE_INHERIT_ONLY == 0 };
                if aces.iter().any(|ace| counts(&ace)) { rights } else { rights & !ACE_DELETE_CHILD }
            };
            let lets = nfs4_lets(&aces, false, &process, of(false));
            prop_assert_eq!(posix_lets(&access, &process, bit), lets, "{:?}", access);
            if let Some(default) = &default {
                let lets = nfs4_lets(&aces, true, &process, of(true));
                prop_assert_eq!(posix_lets(default, &process, bit), lets, "{:?}", default);
            }
        }
    }
}

/// Lists of a few entries, of which many have a POSIX counterpart.
fn simple(directory: bool) -> impl Strategy<Value = Vec<Ace>> {
    let write = ACE_WRITE_DATA | ACE_APPEND_DATA;
    let rights = prop_oneof![
        Just(ACE_READ_DATA),
        Just(write),
        Just(ACE_WRITE_DATA),
        Just(write | ACE_DELETE_CHILD),
        Just(ACE_READ_DATA | write | ACE_EXECUTE),
    ];
    vec((nfs4(directory), rights), 0..6).prop_map(|lists| {
        let first = |(aces, rights): (Vec<Ace>, u32)| aces.first().map(|ace| Ace { rights, ..*ace });
        lists.into_iter().filter_map(first).collect()
    })
}

#[test]
fn lists_of_other_servers_are_shown_if_they_mean_the_same() {
    let (read, write) = (ACE_READ_DATA, ACE_WRITE_DATA | ACE_APPEND_DATA);
    let ace = |allows, who, rights| Ace { allows, flags: 0, rights, who };
    let (allow, deny) = (|who, rights| ace(true, who, rights), |who, rights| ace(false, who, rights));
    let access = |aces: &[Ace]| same_as_nfs4(aces, false).map(|acls| acls.access);
    // A mode, with entries that change nothing.
    let mode = [
        deny(Who::Owner, ACE_EXECUTE),
        allow(Who::Owner, read | write),
        deny(Who::Group, write | ACE_EXECUTE),
        allow(Who::Group, read),
        deny(Who::Everyone, read | write | ACE_EXECUTE),
    ];
    assert_eq!(access(&mode), Ok(PosixAcl::of_mode(0o640)));
    assert_eq!(access(&[]), Ok(PosixAcl::of_mode(0)));
    let named = access(&[allow(Who::User(7), read), allow(Who::Everyone, read)]).unwrap();
    assert_eq!((named.users, named.mask), (vec![(7, READ)], Some(READ)));
    let without = [
        // The owner may be user 7.
        vec![deny(Who::User(7), read), allow(Who::Owner, read)],
        // User 7 may be in the group.
        vec![deny(Who::Group, read), allow(Who::User(7), read)],
        // A process may be in both groups.
        vec![deny(Who::NamedGroup(1), read), allow(Who::NamedGroup(2), read)],
        vec![deny(Who::NamedGroup(1), read), allow(Who::Everyone, read)],
        // Appending is less than writing.
        vec![allow(Who::Everyone, ACE_APPEND_DATA)],
        vec![Ace { flags: INHERITED, ..allow(Who::Everyone, read) }],
    ];
    for aces in without {
        assert_eq!(access(&aces), Err(NoCounterpart), "{aces:?}");
    }
}

/// The longest list of a reply.
#[test]
fn a_long_list_takes_no_longer_than_its_length() {
    let subjects = std::iter::once(Who::Owner).chain((0..proto::nfs4::MAX_ACES as u32).map(Who::User));
    let mut aces: Vec<_> =
        subjects.map(|who| Ace { allows: true, flags: 0, rights: ACE_READ_DATA, who }).collect();
    aces.extend(aces.clone());
    assert_eq!(same_as_nfs4(&aces, false).unwrap().access.users.len(), proto::nfs4::MAX_ACES);
}

#[test]
fn lists_without_a_posix_counterpart_are_refused() {
    let ace = |flags| Ace { allows: true, flags, rights: ACE_READ_DATA, who: Who::Everyone };
    for (flags, directory) in [
        (INHERITED, false),
        (ACE_FILE_INHERIT, true),
        (ACE_DIRECTORY_INHERIT, true),
        (ACE_INHERIT_ONLY, true),
        // ACE4_NO_PROPAGATE_INHERIT_ACE, ACE4_SUCCESSFUL_ACCESS_ACE_FLAG, ACE4_INHERITED_ACE.
        (INHERITED | 0x04, true),
        (0x10, false),
        (0x80, false),
    ] {
        assert_eq!(from_nfs4(&[ace(flags)], directory), Err(NoCounterpart), "{flags:#x}");
    }
}

#[test]
fn a_right_is_given_whole_and_denied_in_part() {
    let list = |rights: u32, directory| {
        let all = Ace { allows: true, flags: 0, rights: u32::MAX, who: Who::Everyone };
        let given = Ace { rights, ..all };
        let denied = Ace { allows: false, rights, ..all };
        let other = |aces: &[Ace]| from_nfs4(aces, directory).unwrap().access.other;
        (other(&[given]), other(&[denied, all]))
    };
    assert_eq!(list(ACE_WRITE_DATA, false), (0, READ | EXECUTE));
    assert_eq!(list(ACE_WRITE_DATA | ACE_APPEND_DATA, false), (WRITE, READ | EXECUTE));
    assert_eq!(list(ACE_WRITE_DATA | ACE_APPEND_DATA, true), (0, READ | EXECUTE));
    assert_eq!(list(ACE_WRITE_DATA | ACE_APPEND_DATA | ACE_DELETE_CHILD, true), (WRITE, READ | EXECUTE));
    assert_eq!(list(ACE_DELETE_CHILD, false), (0, READ | WRITE | EXECUTE));
    assert_eq!(list(ACE_EXECUTE, false), (EXECUTE, READ | WRITE));
}
