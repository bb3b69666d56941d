//! Open, read and close small files by NFSv4.2 in turn: an OPEN, a READ and a CLOSE each; with delegations
//! the second round needs neither OPEN nor CLOSE.

use std::time::Instant;

use anyhow::{Result, ensure};
use clap::Args;
use proto::nfs4::{
    Operation, Read4Args, SHARE_ACCESS_READ, SHARE_ACCESS_WANT_NO_DELEG, SHARE_ACCESS_WANT_READ_DELEG,
};

use super::session::{Opened, Session};
use super::wire::Wire;

/// The child process.
#[derive(Debug, Args)]
pub struct Small {
    #[arg(long)]
    port: u16,
    /// The directory, whose files are file-00000 and so on
    #[arg(long)]
    directory: String,
    #[arg(long)]
    files: usize,
    /// Whether to ask for delegations
    #[arg(long)]
    delegations: bool,
}

impl Small {
    /// Goes through the files twice, and prints each round's time per file and the number of delegations as
    /// JSON.
    pub fn run(self) -> Result<()> {
        let mut session = Session::new(Wire::connect(self.port)?, b"small", 4)?;
        let directory = session.walk(&self.directory)?;
        let want = if self.delegations { SHARE_ACCESS_WANT_READ_DELEG } else { SHARE_ACCESS_WANT_NO_DELEG };
        let mut held: Vec<Option<Opened>> = Vec::new();
        held.resize_with(self.files, || None);
        let mut rounds = Vec::new();
        for _ in 0..2 {
            let start = Instant::now();
            for (number, held) in held.iter_mut().enumerate() {
                if let Some(Opened { handle, delegation: Some(stateid), .. }) = &held {
                    read(&mut session, handle, *stateid)?;
                    continue;
                }
                let name = super::file_name(number);
                let opened = session.open(&directory, name.as_bytes(), b"small", SHARE_ACCESS_READ | want)?;
                read(&mut session, &opened.handle, opened.stateid)?;
                session.close(&opened)?;
                *held = Some(opened);
            }
            rounds.push(start.elapsed().as_secs_f64() * 1e6 / self.files as f64);
        }
        let delegated = held.iter().flatten().filter(|opened| opened.delegation.is_some()).count();
        println!("{}", serde_json::json!({ "first": rounds[0], "again": rounds[1], "delegated": delegated }));
        Ok(())
    }
}

fn read(session: &mut Session, file: &[u8], stateid: proto::nfs4::Stateid4) -> Result<()> {
    let count = super::SMALL as u32;
    let read = Read4Args { stateid, offset: 0, count };
    let results = session.call(|ops| ops.on(file).op(Operation::Read, &read))?;
    ensure!(results.rest().len() > super::SMALL, "a short read");
    Ok(())
}
