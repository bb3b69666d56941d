//! Facts of a filesystem that attributes are made of. Each costs system calls, so only those are gathered
//! that were requested.

use proto::nfs4::Bitmap4;
use proto::nfs4::attributes::{
    ACLSUPPORT, CANSETTIME, CASE_INSENSITIVE, CASE_PRESERVING, CHOWN_RESTRICTED, CLONE_BLKSIZE, FILES_AVAIL,
    FILES_FREE, FILES_TOTAL, HOMOGENEOUS, LINK_SUPPORT, MAXFILESIZE, MAXLINK, MAXNAME, NO_TRUNC,
    QUOTA_AVAIL_HARD, QUOTA_AVAIL_SOFT, QUOTA_USED, SPACE_AVAIL, SPACE_FREE, SPACE_TOTAL, SUPPORTED_ATTRS,
    SYMLINK_SUPPORT, TIME_CREATE, TIME_DELTA, XATTR_SUPPORT,
};
use store::{FsInfo, FsStat, Node, PathConf, QuotaAvailable, Timestamp, UserContext};

use crate::programs::nfs4::status::{self, Result};

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
/// Attributes that come from [`QuotaAvailable`].
const QUOTA: Bitmap4 = Bitmap4::of(&[QUOTA_AVAIL_HARD, QUOTA_AVAIL_SOFT, QUOTA_USED]);

/// A filesystem's facts, and those of a file that cost a system call each, as far as they were requested.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FsFacts {
    pub space: FsStat,
    pub info: FsInfo,
    pub limits: PathConf,
    /// The filesystem keeps users' extended attributes.
    pub xattrs: bool,
    /// The filesystem keeps access control lists.
    pub acls: bool,
    /// A CLONE's offsets and lengths must be multiples of this, in bytes; 0 if the filesystem can't clone.
    pub clone_block: u32,
    /// When the file was created, if the filesystem keeps that.
    pub birth: Option<Timestamp>,
    /// What quotas leave, if there are any.
    pub room: Option<QuotaAvailable>,
}

impl FsFacts {
    /// The facts of the pseudo-filesystem, and placeholders for those that weren't requested.
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

    /// The facts of the filesystem of `node` that the `requested` attributes need.
    pub fn of(user_context: &UserContext<'_>, node: &Node, requested: &Bitmap4) -> Result<Self> {
        let mut facts = Self::NONE;
        if !requested.and(&SPACE).is_empty() {
            facts.space = user_context.fs_stat(node).map_err(status::of_store)?;
        }
        if !requested.and(&LIMITS).is_empty() {
            facts.info = user_context.fs_info(node).map_err(status::of_store)?;
            facts.limits = user_context.pathconf(node).map_err(status::of_store)?;
        }
        if requested.contains(XATTR_SUPPORT) {
            facts.xattrs = user_context.supports_xattrs(node);
        }
        if requested.contains(ACLSUPPORT) {
            facts.acls = user_context.supports_acls(node).map_err(status::of_store)?;
        }
        if requested.contains(CLONE_BLKSIZE) {
            facts.clone_block = user_context.clone_block(node).map_err(status::of_store)?;
        }
        // SUPPORTED_ATTRS depends on these two.
        if requested.contains(TIME_CREATE) || requested.contains(SUPPORTED_ATTRS) {
            facts.birth = user_context.birth(node).map_err(status::of_store)?;
        }
        if !requested.and(&QUOTA).is_empty() || requested.contains(SUPPORTED_ATTRS) {
            facts.room = user_context.room(node).map_err(status::of_store)?;
        }
        Ok(facts)
    }

    /// The attributes that this file lacks though others have them.
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
