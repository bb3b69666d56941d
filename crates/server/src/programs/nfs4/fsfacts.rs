//! What is asked of a filesystem when a client wants its attributes: only if it does, for it costs system
//! calls.

use proto::nfs4::Bitmap4;
use proto::nfs4::attributes::{
    ACLSUPPORT, CANSETTIME, CASE_INSENSITIVE, CASE_PRESERVING, CHOWN_RESTRICTED, CLONE_BLKSIZE, FILES_AVAIL,
    FILES_FREE, FILES_TOTAL, HOMOGENEOUS, LINK_SUPPORT, MAXFILESIZE, MAXLINK, MAXNAME, NO_TRUNC,
    QUOTA_AVAIL_HARD, QUOTA_AVAIL_SOFT, QUOTA_USED, SPACE_AVAIL, SPACE_FREE, SPACE_TOTAL, SUPPORTED_ATTRS,
    SYMLINK_SUPPORT, TIME_CREATE, TIME_DELTA, XATTR_SUPPORT,
};
use store::{Acting, FsInfo, FsStat, Node, PathConf, Room, Timestamp};

use super::{Result, status};

/// Attributes that come from [`FsStat`].
const SPACE: Bitmap4 =
    Bitmap4::of(&[FILES_AVAIL, FILES_FREE, FILES_TOTAL, SPACE_AVAIL, SPACE_FREE, SPACE_TOTAL]);
/// Attributes that come from [`FsInfo`] and [`PathConf`].
const LIMITS: Bitmap4 = Bitmap4::of(&[
    LINK_SUPPORT,
    SYMLINK_SUPPORT,
    CANSETTIME,
    CASE_INSENSITIVE,
    CASE_PRESERVING,
    CHOWN_RESTRICTED,
    HOMOGENEOUS,
    MAXFILESIZE,
    MAXLINK,
    MAXNAME,
    NO_TRUNC,
    TIME_DELTA,
]);
/// Attributes that come from [`Room`].
const QUOTA: Bitmap4 = Bitmap4::of(&[QUOTA_AVAIL_HARD, QUOTA_AVAIL_SOFT, QUOTA_USED]);

/// A filesystem's facts, and a file's that cost a call of their own, as far as they were asked for.
#[derive(Debug, Clone, Copy)]
pub(super) struct FsFacts {
    pub space: FsStat,
    pub info: FsInfo,
    pub limits: PathConf,
    /// Extended attributes of users are kept.
    pub xattrs: bool,
    /// Access control lists are kept.
    pub acls: bool,
    /// What offsets and lengths of a CLONE must be multiples of, in bytes; 0 where there are no clones.
    pub clone_block: u32,
    /// When the file was made, where that is kept.
    pub birth: Option<Timestamp>,
    /// What quotas leave, where there are any.
    pub room: Option<Room>,
}

impl FsFacts {
    /// Of the pseudo-filesystem, and what stands for what wasn't asked for.
    pub const NONE: Self = Self {
        space: FsStat {
            total_bytes: 0,
            free_bytes: 0,
            available_bytes: 0,
            total_files: 0,
            free_files: 0,
            available_files: 0,
        },
        info: FsInfo {
            max_file_size: i64::MAX as u64,
            time_delta: 1,
            links: true,
            symlinks: true,
            homogeneous: true,
            can_set_time: true,
        },
        limits: PathConf {
            link_max: 255,
            name_max: 255,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        },
        xattrs: false,
        acls: false,
        clone_block: 0,
        birth: None,
        room: None,
    };

    /// What `wanted` needs, of the filesystem that `node` is on.
    pub fn of(acting: &Acting<'_>, node: &Node, wanted: &Bitmap4) -> Result<Self> {
        let mut facts = Self::NONE;
        if !wanted.and(&SPACE).is_empty() {
            facts.space = acting.fs_stat(node).map_err(status::of_store)?;
        }
        if !wanted.and(&LIMITS).is_empty() {
            facts.info = acting.fs_info(node).map_err(status::of_store)?;
            facts.limits = acting.pathconf(node).map_err(status::of_store)?;
        }
        if wanted.contains(XATTR_SUPPORT) {
            facts.xattrs = acting.has_xattrs(node);
        }
        if wanted.contains(ACLSUPPORT) {
            facts.acls = acting.has_acls(node).map_err(status::of_store)?;
        }
        if wanted.contains(CLONE_BLKSIZE) {
            facts.clone_block = acting.clone_block(node).map_err(status::of_store)?;
        }
        // What there is of these is asked by SUPPORTED_ATTRS, too.
        if wanted.contains(TIME_CREATE) || wanted.contains(SUPPORTED_ATTRS) {
            facts.birth = acting.birth(node).map_err(status::of_store)?;
        }
        if !wanted.and(&QUOTA).is_empty() || wanted.contains(SUPPORTED_ATTRS) {
            facts.room = acting.room(node).map_err(status::of_store)?;
        }
        Ok(facts)
    }

    /// The attributes that this file hasn't, though others have.
    pub fn missing(&self) -> Bitmap4 {
        let hard = self.room.and_then(|room| room.hard);
        let soft = self.room.and_then(|room| room.soft);
        let mut missing = Bitmap4::EMPTY;
        for (number, there) in [
            (TIME_CREATE, self.birth.is_some()),
            (QUOTA_AVAIL_HARD, hard.is_some()),
            (QUOTA_AVAIL_SOFT, soft.is_some()),
            (QUOTA_USED, self.room.is_some()),
        ] {
            if !there {
                missing.insert(number);
            }
        }
        missing
    }
}
