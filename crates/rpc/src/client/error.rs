//! Why a call has no results.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use crate::message::AuthStat;

/// Why a call has no results.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection could be made.
    #[error("no connection to {address}: {source}")]
    Connect {
        /// The server.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// A soft client's call has timed out. The server may still execute it.
    #[error("{address} does not answer (given up after {} s)", after.as_secs_f32())]
    TimedOut {
        /// The server.
        address: SocketAddr,
        /// How long the call has waited.
        after: Duration,
    },
    /// The server speaks other versions of RPC than 2.
    #[error("{address} speaks ONC RPC versions {low} to {high}, not 2")]
    RpcVersion {
        /// The server.
        address: SocketAddr,
        /// The lowest it speaks.
        low: u32,
        /// The highest it speaks.
        high: u32,
    },
    /// The server refuses the credential (RFC 5531 section 9, auth_stat), or every call from this host and
    /// port: knfsd and Samehost answer AUTH_BADCRED to hosts to which nothing is exported.
    #[error("{address} refuses {}", refused(*status))]
    Auth {
        /// The server.
        address: SocketAddr,
        /// Why.
        status: AuthStat,
    },
    /// The server does not have the program.
    #[error("{address} does not serve RPC program {program}")]
    ProgramUnavailable {
        /// The server.
        address: SocketAddr,
        /// The program.
        program: u32,
    },
    /// The server does not have this version of the program.
    #[error("{address} serves RPC program {program} in versions {low} to {high}, not {version}")]
    ProgramMismatch {
        /// The server.
        address: SocketAddr,
        /// The program.
        program: u32,
        /// The version that was wanted.
        version: u32,
        /// The lowest it has.
        low: u32,
        /// The highest it has.
        high: u32,
    },
    /// The server does not have the procedure.
    #[error("{address} does not serve procedure {procedure} of RPC program {program} version {version}")]
    ProcedureUnavailable {
        /// The server.
        address: SocketAddr,
        /// The program.
        program: u32,
        /// Its version.
        version: u32,
        /// The procedure.
        procedure: u32,
    },
    /// The server could not decode the arguments.
    #[error("{address} could not decode the arguments of procedure {procedure} of RPC program {program}")]
    GarbageArguments {
        /// The server.
        address: SocketAddr,
        /// The program.
        program: u32,
        /// The procedure.
        procedure: u32,
    },
    /// The server failed before it reached the procedure.
    #[error("{address} reports a system error")]
    System {
        /// The server.
        address: SocketAddr,
    },
    /// The reply is not an RPC reply, or longer than any reply to this call may be.
    #[error("{address} sent a reply that makes no sense: {what}")]
    Malformed {
        /// The server.
        address: SocketAddr,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The call is longer than a record can be.
    #[error("a call of {len} bytes is above the bound of {max}")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// The client was dropped during the call.
    #[error("the connection to {address} was closed")]
    Closed {
        /// The server.
        address: SocketAddr,
    },
}

/// What a denied call means.
fn refused(status: AuthStat) -> String {
    match status {
        AuthStat::BadCred => {
            format!("all calls: nothing is exported to this host (or to its port): {status}")
        }
        other => format!("the credential: {other}"),
    }
}

impl Error {
    /// Whether the server didn't answer in time.
    #[must_use]
    pub const fn is_timeout(&self) -> bool {
        matches!(self, Self::TimedOut { .. })
    }

    /// Whether the server couldn't be reached, which may be temporary.
    #[must_use]
    pub const fn is_unreachable(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::TimedOut { .. } | Self::Closed { .. })
    }
}
