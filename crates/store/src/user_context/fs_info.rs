//! FSSTAT, FSINFO and PATHCONF, and NFSv4's filesystem attributes.

use rustix::fs::fstatvfs;

use super::context::UserContext;
use super::types::{FsInfo, FsStat, PathConf};
use crate::attributes::Timestamp;
use crate::error::Result;
use crate::node::Node;

impl UserContext<'_> {
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
        let filesystem = &self.store.tree.filesystem;
        Ok(FsInfo {
            max_file_size: filesystem.max_file_size,
            time_delta: filesystem.time_delta,
            links: filesystem.posix,
            symlinks: filesystem.posix,
            homogeneous: true,
            can_set_time: true,
        })
    }

    /// The alignment of offsets and lengths for [`UserContext::clone_range`] in bytes; 0 where it isn't
    /// supported.
    ///
    /// # Errors
    /// `Stale`, `Io`.
    pub fn clone_block(&self, node: &Node) -> Result<u32> {
        self.live(node)?;
        if !self.store.tree.filesystem.clones {
            return Ok(0);
        }
        Ok(u32::try_from(fstatvfs(node.file())?.f_bsize).unwrap_or(0))
    }

    /// The time of the file's creation, where the filesystem stores it.
    ///
    /// # Errors
    /// `Stale`.
    pub fn birth(&self, node: &Node) -> Result<Option<Timestamp>> {
        Ok(self.live(node)?.birth)
    }

    /// The filesystem's limits on names and links.
    ///
    /// # Errors
    /// `Stale`.
    pub fn pathconf(&self, node: &Node) -> Result<PathConf> {
        self.live(node)?;
        let filesystem = &self.store.tree.filesystem;
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
