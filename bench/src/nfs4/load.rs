//! The same load for READ and WRITE of both versions: a fixed number of requests in flight on one
//! connection, a new one for each reply.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use clap::{Args, ValueEnum};
use client::blocking::Session as Client;
use client::{Follow, LaneMode, Options, Url, Version};
use proto::nfs4::{Operation, Read4Args, SHARE_ACCESS_BOTH, StableHow4, Write4Args};
use proto::{nfs3, nfs4};
use xdr::{Encode as _, Opaque};

use super::session::Session;
use super::wire::Wire;

/// The access pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Work {
    Randread,
    Randwrite,
    Read,
    Write,
}

/// The child process that makes the load.
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

/// A connection by one of the two versions.
enum Connection {
    V3 { wire: Wire, file: Vec<u8> },
    V4 { session: Box<Session>, file: Vec<u8>, stateid: nfs4::Stateid4 },
}

impl Load {
    /// Makes the load and prints the result as JSON.
    pub fn run(self) -> Result<()> {
        let mut connection = self.connect()?;
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
        // The slot of each call in flight, by call number.
        let mut in_flight = HashMap::new();
        for slot in 0..self.depth {
            in_flight.insert(connection.send(slot, self.op, offset(), self.bs, &data)?, slot);
        }
        let start = Instant::now();
        let length = Duration::from_secs_f64(self.seconds);
        let (mut done, mut elapsed) = (0_u64, Duration::ZERO);
        while !in_flight.is_empty() {
            let xid = connection.receive()?;
            let slot = in_flight.remove(&xid);
            ensure!(slot.is_some(), "a reply to call {xid}, which wasn't sent");
            if elapsed < length {
                done += 1;
                elapsed = start.elapsed();
            }
            if let (Some(slot), true) = (slot, elapsed < length) {
                in_flight.insert(connection.send(slot, self.op, offset(), self.bs, &data)?, slot);
            }
        }
        let seconds = elapsed.as_secs_f64();
        println!("{}", serde_json::json!({ "ops": done, "ops_per_s": done as f64 / seconds }));
        Ok(())
    }

    fn connect(&self) -> Result<Connection> {
        let wire = Wire::connect(self.port)?;
        if self.vers == 3 {
            let options = Options::new().version(Version::V3).lane(LaneMode::Off);
            let session = Client::connect(&self.url, options)?;
            let inner = session.session();
            let found = session.run(inner.walk(inner.target(), Follow::Yes))?;
            return Ok(Connection::V3 { wire, file: found.handle.as_bytes().to_vec() });
        }
        let mut session = Session::new(wire, b"load", self.depth)?;
        let directory = session.walk(&self.directory)?;
        let share = SHARE_ACCESS_BOTH | nfs4::SHARE_ACCESS_WANT_NO_DELEG;
        let opened = session.open(&directory, self.name.as_bytes(), b"load", share)?;
        Ok(Connection::V4 { session: Box::new(session), file: opened.handle, stateid: opened.stateid })
    }
}

impl Connection {
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
            Self::V4 { session, file, stateid } => session.send(slot, |ops| {
                let (ops, stateid) = (ops.on(file), *stateid);
                if reads {
                    ops.op(Operation::Read, &Read4Args { stateid, offset, count })
                } else {
                    let stable = StableHow4::Unstable;
                    ops.op(Operation::Write, &Write4Args { stateid, offset, stable, data: Opaque(data) })
                }
            }),
        }
    }

    /// Receives the next reply, which must have succeeded; its call number.
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
