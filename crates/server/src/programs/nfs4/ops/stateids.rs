//! TEST_STATEID and FREE_STATEID (RFC 8881 sections 18.38, 18.48).

use proto::nfs4::{Nfsstat4, Stateid4Args, TestStateid4Args};
use state::StateId;

use crate::programs::nfs4::context::Context;
use crate::programs::nfs4::status::{self, Result};

pub(crate) fn test_stateid(c: &mut Context<'_>, args: TestStateid4Args) -> Result<()> {
    let client = c.session_client()?;
    let ids = args.stateids.0.iter().map(|id| StateId { seqid: id.seqid, other: id.other });
    let found: Vec<_> =
        c.service.state.run(|engine, _| ids.map(|id| engine.test_stateid(client, &id).err()).collect());
    let to = c.reply.encoder();
    to.length(found.len());
    found.into_iter().for_each(|error| to.put(&error.map_or(Nfsstat4::Ok, status::of_state)));
    Ok(())
}

pub(crate) fn free_stateid(c: &mut Context<'_>, args: Stateid4Args) -> Result<()> {
    let by = c.requester(c.session_client()?);
    let id = c.stateid(args.stateid)?;
    c.service.state.run(|engine, _| engine.free_stateid(&by, &id)).map_err(status::of_state)
}
