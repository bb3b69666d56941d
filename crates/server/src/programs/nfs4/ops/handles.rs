//! PUTFH, GETFH, SAVEFH and their like, LOOKUP and LOOKUPP, SECINFO (RFC 8881 sections 18.8, 18.13, 18.14,
//! 18.19 to 18.29, 18.45).

use proto::nfs4::{MinorVersion, Name4Args, Nfsstat4, Putfh4Args, SecinfoStyle4};

use crate::programs::nfs4::context::Context;
use crate::programs::nfs4::lookup;
use crate::programs::nfs4::status::Result;

/// SECINFO's answer: AUTH_SYS and AUTH_NONE.
const FLAVORS: [u32; 2] = [1, 0];

pub(crate) fn putfh(c: &mut Context<'_>, args: Putfh4Args<'_>) -> Result<()> {
    let object = lookup::object_of_handle(c, args.object.0)?;
    c.set_current(object);
    Ok(())
}

pub(crate) fn putrootfh(c: &mut Context<'_>) -> Result<()> {
    let root = lookup::root(c)?;
    c.set_current(root);
    Ok(())
}

pub(crate) fn getfh(c: &mut Context<'_>) -> Result<()> {
    let handle = c.object()?.handle();
    c.reply.encoder().opaque(handle.as_bytes());
    Ok(())
}

pub(crate) fn savefh(c: &mut Context<'_>) -> Result<()> {
    c.saved = Some(c.object()?.clone());
    c.saved_stateid = c.current_stateid;
    Ok(())
}

pub(crate) fn restorefh(c: &mut Context<'_>) -> Result<()> {
    let missing = if c.minor == MinorVersion::V0 { Nfsstat4::Restorefh } else { Nfsstat4::Nofilehandle };
    c.current = Some(c.saved.clone().ok_or(missing)?);
    c.current_stateid = c.saved_stateid;
    Ok(())
}

pub(crate) fn lookup(c: &mut Context<'_>, args: Name4Args<'_>) -> Result<()> {
    let child = lookup::child(c, args.name.0)?;
    c.set_current(child);
    Ok(())
}

pub(crate) fn lookupp(c: &mut Context<'_>) -> Result<()> {
    let parent = lookup::parent(c)?;
    c.set_current(parent);
    Ok(())
}

pub(crate) fn secinfo(c: &mut Context<'_>, args: Name4Args<'_>) -> Result<()> {
    lookup::child(c, args.name.0).map_err(|status| match status {
        // Not an error of SECINFO (RFC 8881 section 15.2).
        Nfsstat4::Symlink => Nfsstat4::Notdir,
        other => other,
    })?;
    put_flavors(c);
    Ok(())
}

pub(crate) fn secinfo_no_name(c: &mut Context<'_>, style: SecinfoStyle4) -> Result<()> {
    match style {
        SecinfoStyle4::CurrentFh => drop(c.object()?),
        SecinfoStyle4::Parent => drop(lookup::parent(c)?),
    }
    put_flavors(c);
    Ok(())
}

/// Since 4.1 both operations consume the current handle (RFC 8881 section 2.6.3.1.1.8).
fn put_flavors(c: &mut Context<'_>) {
    let to = c.reply.encoder();
    to.length(FLAVORS.len());
    FLAVORS.iter().for_each(|flavor| to.u32(*flavor));
    if c.minor >= MinorVersion::V1 {
        c.current = None;
        c.current_stateid = None;
    }
}
