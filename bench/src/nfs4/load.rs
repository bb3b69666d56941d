//! The same loop for READ and WRITE of both versions: so many requests under way on one connection, a new one
//! for each that is answered.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use client::blocking::Session as Client;
use client::{Follow, LaneMode, Options, Url};
use proto::nfs4::{Operation, Read4Args, SHARE_ACCESS_BOTH, StableHow4, Write4Args};
use proto::{nfs3, nfs4};
use xdr::{Encode as _, Opaque};

use super::session::Session;
use super::wire::Wire;

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Work {
    Randread,
    Randwrite,
    Read,
    Write,
}

/// The child that does it.
#[derive(Debug, Args)]
pub struct Load {
    /// 3 or 4
    #[arg(long)]
    vers: u32,
    #[arg(long)]
    port: u16,
    /// The file, for NFSv3
    #[arg(long)]
    url: Url,
    /// The directory of the file, for NFSv4
    #[arg(long)]
    directory: String,
    #[arg(long, default_value = "file")]
    name: String,
    #[arg(long)]
    op: Work,
    #[arg(long)]
    bs: u32,
    #[arg(long)]
    size: u64,
    #[arg(long, default_value_t = 8)]
    depth: u32,
    #[arg(long)]
    seconds: f64,
}

/// Which way requests go.
enum LoadTarget {
    V3 { wire: Wire, file: Vec<u8> },
    V4 { session: Box<Session>, file: Vec<u8>, right: nfs4::Stateid4 },
}

impl Load {
    /// Runs, and prints what came of it as JSON.
    pub fn run(self) -> Result<()> {
        let mut target = self.target()?;
        let data = vec![b'x'; self.bs as usize];
        let blocks = (self.size / u64::from(self.bs)).max(1);
        let (mut last, mut random) = (0, 0x9e37_79b9_7f4a_7c15_u64);
        let mut offset = || {
            let block = match self.op {
                Work::Read | Work::Write => {
                    last = (last + 1) % blocks;
                    last
                }
                Work::Randread | Work::Randwrite => {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    random % blocks
                }
            };
            block * u64::from(self.bs)
        };
        // Which slot waits for which reply.
        let mut under_way = HashMap::new();
        for slot in 0..self.depth {
            under_way.insert(target.send(slot, self.op, offset(), self.bs, &data)?, slot);
        }
        let start = Instant::now();
        let length = Duration::from_secs_f64(self.seconds);
        let (mut done, mut elapsed) = (0_u64, Duration::ZERO);
        while !under_way.is_empty() {
            let xid = target.receive()?;
            let slot = under_way.remove(&xid);
            ensure!(slot.is_some(), "a reply to call {xid}, which wasn't made");
            if elapsed < length {
                done += 1;
                elapsed = start.elapsed();
            }
            if let (Some(slot), true) = (slot, elapsed < length) {
                under_way.insert(target.send(slot, self.op, offset(), self.bs, &data)?, slot);
            }
        }
        let seconds = elapsed.as_secs_f64();
        println!("{}", serde_json::json!({ "ops": done, "ops_per_s": done as f64 / seconds }));
        Ok(())
    }

    fn target(&self) -> Result<LoadTarget> {
        let wire = Wire::connect(self.port)?;
        if self.vers == 3 {
            let options = Options { lane: LaneMode::Off, ..Options::default() };
            let session = Client::connect(&self.url, options)?;
            let inner = session.session();
            let found = session.run(inner.walk(inner.target(), Follow::Yes))?;
            return Ok(LoadTarget::V3 { wire, file: found.handle.as_bytes().to_vec() });
        }
        let mut session = Session::new(wire, b"load", self.depth)?;
        let directory = session.walk(&self.directory)?;
        let share = SHARE_ACCESS_BOTH | nfs4::SHARE_ACCESS_WANT_NO_DELEG;
        let opened = session.open(&directory, self.name.as_bytes(), b"load", share)?;
        Ok(LoadTarget::V4 { session: Box::new(session), file: opened.handle, right: opened.stateid })
    }
}

impl LoadTarget {
    fn send(&mut self, slot: u32, op: Work, offset: u64, count: u32, data: &[u8]) -> Result<u32> {
        let reads = matches!(op, Work::Read | Work::Randread);
        match self {
            Self::V3 { wire, file } => {
                let procedure = if reads { nfs3::Procedure::Read } else { nfs3::Procedure::Write };
                wire.send((nfs3::PROGRAM, nfs3::VERSION, procedure.number()), |to| {
                    let file = Opaque(&file[..]);
                    if reads {
                        nfs3::Read3Args { file, offset, count }.encode(to);
                    } else {
                        let stable = nfs3::StableHow::Unstable;
                        nfs3::Write3Args { file, offset, count, stable, data: Opaque(data) }.encode(to);
                    }
                })
            }
            Self::V4 { session, file, right } => session.send(slot, |ops| {
                let (ops, stateid) = (ops.on(file), *right);
                if reads {
                    ops.op(Operation::Read, &Read4Args { stateid, offset, count })
                } else {
                    let stable = StableHow4::Unstable;
                    ops.op(Operation::Write, &Write4Args { stateid, offset, stable, data: Opaque(data) })
                }
            }),
        }
    }

    /// The number of the call that was answered next, and well.
    fn receive(&mut self) -> Result<u32> {
        let wire = match self {
            Self::V3 { wire, .. } => wire,
            Self::V4 { session, .. } => &mut session.wire,
        };
        let (xid, results) = wire.receive()?;
        ensure!(results.starts_with(&[0; 4]), "status {:?}", results.get(..4));
        Ok(xid)
    }
}
