//! FSSTAT, FSINFO and PATHCONF.

use rustix::fs::fstatvfs;

use super::{Acting, FsInfo, FsStat, PathConf};
use crate::error::Result;
use crate::node::Node;

impl Acting<'_> {
    /// Space and files, as the filesystem counts them.
    ///
    /// # Errors
    /// `Stale`, `Io`.
    pub fn fs_stat(&self, node: &Node) -> Result<FsStat> {
        self.live(node)?;
        let vfs = fstatvfs(node.file())?;
        let bytes = |blocks: u64| blocks.saturating_mul(vfs.f_frsize);
        Ok(FsStat {
            total_bytes: bytes(vfs.f_blocks),
            free_bytes: bytes(vfs.f_bfree),
            available_bytes: bytes(vfs.f_bavail),
            total_files: vfs.f_files,
            free_files: vfs.f_ffree,
            available_files: vfs.f_favail,
        })
    }

    /// What the filesystem can do.
    ///
    /// # Errors
    /// `Stale`.
    pub fn fs_info(&self, node: &Node) -> Result<FsInfo> {
        self.live(node)?;
        let filesystem = &self.store.filesystem;
        Ok(FsInfo {
            max_file_size: filesystem.max_file_size,
            time_delta: filesystem.time_delta,
            links: filesystem.posix,
            symlinks: filesystem.posix,
            homogeneous: true,
            can_set_time: true,
        })
    }

    /// The filesystem's limits on names and links.
    ///
    /// # Errors
    /// `Stale`.
    pub fn pathconf(&self, node: &Node) -> Result<PathConf> {
        self.live(node)?;
        let filesystem = &self.store.filesystem;
        Ok(PathConf {
            link_max: filesystem.link_max,
            name_max: filesystem.name_max,
            no_trunc: true,
            chown_restricted: true,
            case_insensitive: filesystem.case_insensitive,
            case_preserving: true,
        })
    }
}
