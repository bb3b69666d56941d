//! The reason, in words, why a connection has a lane or none.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use lane::{LaneInfo, LaneServer, NonceOutcome};

use crate::service::LaneAttempt;
use crate::service::Service;

/// The reasons for one snapshot.
pub(crate) struct LaneReasons<'a> {
    service: &'a Service,
    lane: Option<&'a LaneServer>,
    /// Whether the lane was configured.
    wanted: bool,
    bound: HashMap<SocketAddr, &'a LaneInfo>,
    /// By address: whether some export is for it, and all of those forbid the lane.
    no_lane: HashMap<IpAddr, bool>,
}

impl<'a> LaneReasons<'a> {
    pub(crate) fn new(
        service: &'a Service,
        lane: Option<&'a LaneServer>,
        wanted: bool,
        lanes: &'a [LaneInfo],
    ) -> Self {
        let bound = lanes.iter().map(|lane| (lane.bound.nfs_peer, lane)).collect();
        Self { service, lane, wanted, bound, no_lane: HashMap::new() }
    }

    /// Whether the connection has a lane, and the reason.
    pub(crate) fn of(&mut self, peer: SocketAddr) -> (bool, String) {
        let lane = self.bound.get(&peer).copied();
        let mut reason = match (self.lane, lane) {
            (None, _) if self.wanted => "the lane couldn't be started; see the notes".to_owned(),
            (None, _) => "the lane is off on this server (--lane off)".to_owned(),
            (Some(_), Some(lane)) => format!("over {}", lane.through),
            (Some(server), None) => self
                .service
                .lane_attempts
                .get(peer)
                .map_or_else(|| self.never_asked(peer), |note| said(&note, server)),
        };
        if self.lane.is_some() && self.keeps_off(peer) {
            reason.push_str("; but no export gives files to it over the lane (no_lane)");
        }
        (lane.is_some(), reason)
    }

    fn never_asked(&self, peer: SocketAddr) -> String {
        let other = self.bound.keys().filter(|other| other.ip() == peer.ip()).min();
        match other {
            Some(other) => format!("never asked; its address has a lane with {other}"),
            None => "never asked: not a Samehost client, or its lane is off".to_owned(),
        }
    }

    fn keeps_off(&mut self, peer: SocketAddr) -> bool {
        let access = &self.service.access;
        *self.no_lane.entry(peer.ip()).or_insert_with(|| {
            let table = access.table();
            let mut options =
                table.entries().iter().filter_map(|entry| access.options(entry, peer).ok()).peekable();
            options.peek().is_some() && options.all(|options| !options.lane)
        })
    }
}

fn said(note: &LaneAttempt, server: &LaneServer) -> String {
    let words = match note {
        LaneAttempt::Asked => "asked just now",
        LaneAttempt::Anonymous => "asked without AUTH_SYS: a lane is for users who say who they are",
        LaneAttempt::Ended(why) => return format!("had a lane until: {why}"),
        LaneAttempt::Refused { answer, kernel } => match answer {
            NonceOutcome::Unknown if *kernel => {
                "a Linux kernel client asked: its LOCALIO works with the kernel's server only"
            }
            NonceOutcome::Unknown if server.searches() => {
                "asked, but nothing on this host registered its nonce: another host, or a client that trusts \
                 no server here"
            }
            NonceOutcome::Unknown => {
                "asked, but nothing on this host registered its nonce: another host, or a container that \
                 doesn't share the run directory (--run-dir)"
            }
            NonceOutcome::Ambiguous => "asked, but two had registered its nonce: neither is believed",
            NonceOutcome::Spent => "asked with a nonce that was used before",
            NonceOutcome::TooMany => "asked, but its user, or this server, has as many lanes as there may be",
            NonceOutcome::Draining => "asked while the server was stopping",
            // `Local` is never recorded as a refusal.
            NonceOutcome::Failed | NonceOutcome::Local => "asked, but went before its lane was up",
        },
    };
    words.to_owned()
}
