//! NFSv3's procedures (RFC 1813 section 3.3), one method each; READ, WRITE and COMMIT belong to an open file.

use proto::nfs3::{self, Procedure};
use xdr::Opaque;

use super::Session;
use super::call::named;
use crate::convert::{self, nfs_time};
use crate::error::{Error, Result, Status};
use crate::types::{
    Access, Attributes, Create, Found, FsInfo, FsStat, Handle, Node, PathConf, SetAttributes, Timestamp,
};

fn fh(handle: &Handle) -> nfs3::NfsFh3<'_> {
    Opaque(handle.as_bytes())
}

fn entry<'a>(directory: &'a Handle, name: &'a [u8]) -> nfs3::Diropargs3<'a> {
    nfs3::Diropargs3 { dir: fh(directory), name: Opaque(name) }
}

fn found(procedure: Procedure, handle: &[u8], attributes: nfs3::PostOpAttr) -> Result<Found> {
    let handle = Handle::new(handle).ok_or_else(|| Error::Protocol {
        object: procedure.name().to_owned(),
        what: "its file handle is longer than a handle can be",
    })?;
    Ok(Found { handle, attributes: attributes.as_ref().map(convert::attributes) })
}

impl Session {
    /// NULL: does the server answer?
    ///
    /// # Errors
    /// The call's.
    pub async fn null(&self) -> Result<()> {
        self.nfs(Procedure::Null, &()).await.map(drop)
    }

    /// GETATTR: a file's attributes.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn attributes(&self, file: &Handle) -> Result<Attributes> {
        let reply = self.nfs(Procedure::Getattr, &nfs3::Getattr3Args { object: fh(file) }).await?;
        self.body::<nfs3::Fattr3, ()>(Procedure::Getattr, &reply, &[file])
            .map(|found| convert::attributes(&found))
    }

    /// SETATTR: changes attributes; with `guard` only if the file's ctime is still that. Returns the
    /// attributes after it, if the server sent them.
    ///
    /// # Errors
    /// [`Status::Invalid`] for a time before 1970 or after 2106, which NFSv3 has no word for; the server's or
    /// the call's.
    pub async fn set_attributes(
        &self,
        file: &Handle,
        set: &SetAttributes,
        guard: Option<Timestamp>,
    ) -> Result<Option<Attributes>> {
        if !convert::times_fit(set) {
            let object = "a time before 1970 or after 2106 (NFSv3)".to_owned();
            return Err(Error::Status { object, status: Status::Invalid });
        }
        let args = nfs3::Setattr3Args {
            object: fh(file),
            new_attributes: convert::sattr3(set),
            guard: guard.map(nfs_time),
        };
        // Nobody may write again what is about to be cut off.
        let kept = set.size.and_then(|size| Some((self.inner.uncommitted.find(file)?, size)));
        let _writers = match &kept {
            Some((kept, _)) => Some(kept.writers.write().await),
            None => None,
        };
        let reply = self.nfs(Procedure::Setattr, &args).await?;
        let wcc = self.body::<nfs3::WccData, nfs3::WccData>(Procedure::Setattr, &reply, &[file])?;
        if let Some((kept, size)) = &kept {
            kept.cut(*size, u64::MAX);
        }
        Ok(wcc.after.as_ref().map(convert::attributes))
    }

    /// LOOKUP: a name in a directory.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn lookup(&self, directory: &Handle, name: &[u8]) -> Result<Found> {
        let procedure = Procedure::Lookup;
        let args = nfs3::Lookup3Args { what: entry(directory, name) };
        let reply = self.nfs(procedure, &args).await?;
        let ok = self
            .body::<nfs3::Lookup3ResOk<'_>, nfs3::PostOpAttr>(procedure, &reply, &[directory])
            .map_err(|error| error.about(|| named("lookup of", name)))?;
        found(procedure, ok.object.0, ok.obj_attributes)
    }

    /// ACCESS: which of the rights `wanted` the user has.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn access(&self, file: &Handle, wanted: Access) -> Result<Access> {
        let args = nfs3::Access3Args { object: fh(file), access: wanted.0 };
        let reply = self.nfs(Procedure::Access, &args).await?;
        let ok = self.body::<nfs3::Access3ResOk, nfs3::PostOpAttr>(Procedure::Access, &reply, &[file])?;
        Ok(Access(ok.access & wanted.0))
    }

    /// READLINK: where a symbolic link points.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn read_link(&self, link: &Handle) -> Result<Vec<u8>> {
        let reply = self.nfs(Procedure::Readlink, &nfs3::Readlink3Args { symlink: fh(link) }).await?;
        let ok =
            self.body::<nfs3::Readlink3ResOk<'_>, nfs3::PostOpAttr>(Procedure::Readlink, &reply, &[link])?;
        Ok(ok.data.0.to_vec())
    }

    /// CREATE: makes a regular file.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn create(&self, directory: &Handle, name: &[u8], how: &Create) -> Result<Found> {
        let how = match how {
            Create::Unchecked(set) => nfs3::Createhow3::Unchecked(convert::sattr3(set)),
            Create::Guarded(set) => nfs3::Createhow3::Guarded(convert::sattr3(set)),
            Create::Exclusive(verifier) => nfs3::Createhow3::Exclusive(*verifier),
        };
        self.make(
            Procedure::Create,
            directory,
            name,
            &nfs3::Create3Args { where_: entry(directory, name), how },
        )
        .await
    }

    /// MKDIR: makes a directory.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn make_dir(&self, directory: &Handle, name: &[u8], set: &SetAttributes) -> Result<Found> {
        let args = nfs3::Mkdir3Args { where_: entry(directory, name), attributes: convert::sattr3(set) };
        self.make(Procedure::Mkdir, directory, name, &args).await
    }

    /// SYMLINK: makes a symbolic link to `target`.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn symlink(
        &self,
        directory: &Handle,
        name: &[u8],
        target: &[u8],
        set: &SetAttributes,
    ) -> Result<Found> {
        let symlink = nfs3::Symlinkdata3 { attributes: convert::sattr3(set), data: Opaque(target) };
        let args = nfs3::Symlink3Args { where_: entry(directory, name), symlink };
        self.make(Procedure::Symlink, directory, name, &args).await
    }

    /// MKNOD: makes a pipe, socket or device.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn make_node(
        &self,
        directory: &Handle,
        name: &[u8],
        node: Node,
        set: &SetAttributes,
    ) -> Result<Found> {
        let device = |major, minor| nfs3::Devicedata3 {
            attributes: convert::sattr3(set),
            spec: nfs3::Specdata3 { specdata1: major, specdata2: minor },
        };
        let what = match node {
            Node::Fifo => nfs3::Mknoddata3::Fifo(convert::sattr3(set)),
            Node::Socket => nfs3::Mknoddata3::Sock(convert::sattr3(set)),
            Node::Block(major, minor) => nfs3::Mknoddata3::Blk(device(major, minor)),
            Node::Character(major, minor) => nfs3::Mknoddata3::Chr(device(major, minor)),
        };
        let args = nfs3::Mknod3Args { where_: entry(directory, name), what };
        self.make(Procedure::Mknod, directory, name, &args).await
    }

    /// The end that CREATE, MKDIR, SYMLINK and MKNOD have in common. A server need not send the new handle:
    /// then it is looked up.
    async fn make(
        &self,
        procedure: Procedure,
        directory: &Handle,
        name: &[u8],
        args: &impl xdr::Encode,
    ) -> Result<Found> {
        let reply = self.nfs(procedure, args).await?;
        let new = self
            .body::<nfs3::NewObject3<'_>, nfs3::WccData>(procedure, &reply, &[directory])
            .map_err(|error| error.about(|| named(procedure.name(), name)))?;
        match new.obj {
            Some(handle) => found(procedure, handle.0, new.obj_attributes),
            None => self.lookup(directory, name).await,
        }
    }

    /// REMOVE: takes a name of a file away.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn remove(&self, directory: &Handle, name: &[u8]) -> Result<()> {
        let args = nfs3::Remove3Args { object: entry(directory, name) };
        let reply = self.nfs(Procedure::Remove, &args).await?;
        self.body::<nfs3::WccData, nfs3::WccData>(Procedure::Remove, &reply, &[directory])
            .map_err(|error| error.about(|| named("removal of", name)))?;
        Ok(())
    }

    /// RMDIR: removes an empty directory.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn remove_dir(&self, directory: &Handle, name: &[u8]) -> Result<()> {
        let args = nfs3::Rmdir3Args { object: entry(directory, name) };
        let reply = self.nfs(Procedure::Rmdir, &args).await?;
        self.body::<nfs3::WccData, nfs3::WccData>(Procedure::Rmdir, &reply, &[directory])
            .map_err(|error| error.about(|| named("removal of directory", name)))?;
        Ok(())
    }

    /// RENAME: moves a name, replacing what stands at the new one.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn rename(
        &self,
        from_directory: &Handle,
        from: &[u8],
        to_directory: &Handle,
        to: &[u8],
    ) -> Result<()> {
        let args = nfs3::Rename3Args { from: entry(from_directory, from), to: entry(to_directory, to) };
        let reply = self.nfs(Procedure::Rename, &args).await?;
        self.body::<nfs3::Rename3Body, nfs3::Rename3Body>(
            Procedure::Rename,
            &reply,
            &[from_directory, to_directory],
        )
        .map_err(|error| {
            error.about(|| format!("{} to {}", named("renaming", from), named("", to).trim()))
        })?;
        Ok(())
    }

    /// LINK: another name for a file.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn link(&self, file: &Handle, directory: &Handle, name: &[u8]) -> Result<()> {
        let args = nfs3::Link3Args { file: fh(file), link: entry(directory, name) };
        let reply = self.nfs(Procedure::Link, &args).await?;
        self.body::<nfs3::Link3Body, nfs3::Link3Body>(Procedure::Link, &reply, &[file, directory])
            .map_err(|error| error.about(|| named("linking", name)))?;
        Ok(())
    }

    /// FSSTAT: how full the filesystem is.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn fs_stat(&self, file: &Handle) -> Result<FsStat> {
        let reply = self.nfs(Procedure::Fsstat, &nfs3::Fsstat3Args { fsroot: fh(file) }).await?;
        let ok = self.body::<nfs3::Fsstat3ResOk, nfs3::PostOpAttr>(Procedure::Fsstat, &reply, &[file])?;
        Ok((&ok).into())
    }

    /// FSINFO: what the server likes and can do.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn fs_info(&self, file: &Handle) -> Result<FsInfo> {
        let reply = self.nfs(Procedure::Fsinfo, &nfs3::Fsinfo3Args { fsroot: fh(file) }).await?;
        let ok = self.body::<nfs3::Fsinfo3ResOk, nfs3::PostOpAttr>(Procedure::Fsinfo, &reply, &[file])?;
        Ok((&ok).into())
    }

    /// PATHCONF: limits of names.
    ///
    /// # Errors
    /// The server's or the call's.
    pub async fn path_conf(&self, file: &Handle) -> Result<PathConf> {
        let reply = self.nfs(Procedure::Pathconf, &nfs3::Pathconf3Args { object: fh(file) }).await?;
        let ok = self.body::<nfs3::Pathconf3ResOk, nfs3::PostOpAttr>(Procedure::Pathconf, &reply, &[file])?;
        Ok((&ok).into())
    }
}
