//! `samehost serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::cluster::CephArgs;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgAction, Args, ValueEnum};
use server::{IoMode, LaneOffer, MetricsAddress};

pub const LONG_HELP: &str = "\
The server runs in the foreground. When it accepts calls it writes a line to standard output that \
begins with `ready:` and has its exports, its addresses and its run directory, and then a line that \
begins with `note:` for each of its limitations, such as an export that can't be served.

Signals:
  SIGHUP            read the configuration and the exports files again; no client is disconnected
  SIGTERM, SIGINT   drain: finish running calls, recall grants, exit;
                    a second one exits at once; before the ready line: end the start

Examples:
  samehost serve --export '/srv *(ro)'
  samehost serve --listen 127.0.0.1:2049 --export '/home/me localhost(rw,insecure)' --run-dir ~/.samehost
  samehost serve --exports /etc/exports
  samehost serve --config /etc/samehost/samehost.toml

Exit codes:
  0  stopped on request
  1  couldn't start, or had to stop
  2  the command line couldn't be understood; nothing was tried";

/// Options of `samehost serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// A configuration file, samehost.toml(5): each option of `serve` is a key. The command line wins
    ///
    /// Read again on SIGHUP, which applies the keys that can change while the server runs, and logs those
    /// that can't.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Address and port to listen on; may be repeated. Port 0 chooses a free one, which the ready line names
    #[arg(long, value_name = "ADDR:PORT", default_value = "[::]:2049")]
    pub listen: Vec<SocketAddr>,

    /// An exports(5) line, such as '/srv 10.0.0.0/8(rw,no_subtree_check)'; may be repeated
    #[arg(long = "export", value_name = "LINE")]
    pub export: Vec<String>,

    /// A file of exports(5) lines; may be repeated. Read again on SIGHUP
    ///
    /// Of a directory all files are read whose names end in .exports. Without --exports and without --export,
    /// /etc/exports and the files in /etc/exports.d are read.
    #[arg(long = "exports", value_name = "FILE")]
    pub exports: Vec<PathBuf>,

    /// The directory of state that must survive a restart: the key that makes file handles unforgeable,
    /// and the NFSv4 clients that may reclaim their opens and locks
    ///
    /// Default: /var/lib/samehost for root; $XDG_STATE_HOME/samehost or ~/.local/state/samehost for others.
    #[arg(long, value_name = "DIR", env = "SAMEHOST_STATE_DIR")]
    pub state_dir: Option<PathBuf>,

    /// What clients on this host get over the lane: files and directory trees (on), files, or nothing (off)
    #[arg(
        long,
        value_name = "on|files|off",
        value_parser = lane_offer(),
        hide_possible_values = true,
        default_value_t = LaneOffer::On,
    )]
    pub lane: LaneOffer,

    /// The most open files that all clients on this host together may have over the lane
    ///
    /// Local users share them; one client gets a quarter at most, and the users of one client share that.
    /// Beyond its share a client uses the wire.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 65_536,
        value_parser = clap::value_parser!(u32).range(1..=16_777_216),
    )]
    pub lane_grants: u32,

    /// How files are read: buffered, dontcache or direct
    ///
    /// An export's option read_io= overrides it; `samehost ctl io-mode` changes it while the server runs.
    #[arg(
        long,
        value_name = "MODE",
        value_parser = io_mode(),
        hide_possible_values = true,
        default_value_t = IoMode::Buffered,
    )]
    pub read_io: IoMode,

    /// How files are written: buffered, dontcache or direct
    ///
    /// An export's option write_io= overrides it; `samehost ctl io-mode` changes it while the server runs.
    #[arg(
        long,
        value_name = "MODE",
        value_parser = io_mode(),
        hide_possible_values = true,
        default_value_t = IoMode::Buffered,
    )]
    pub write_io: IoMode,

    /// Worker threads: the most calls on the wire that can wait for the filesystem at the same time
    #[arg(
        long,
        value_name = "N",
        default_value_t = 16,
        value_parser = clap::value_parser!(u16).range(1..=256),
    )]
    pub threads: u16,

    /// The most TCP connections at the same time; further ones are closed
    #[arg(
        long,
        value_name = "N",
        default_value_t = 4096,
        value_parser = clap::value_parser!(u32).range(1..=1_000_000),
    )]
    pub max_connections: u32,

    /// Serve metrics for Prometheus by HTTP at an address and port, or on a Unix socket
    ///
    /// The path is /metrics. Everybody who can connect can read them: they name the exports, not the clients.
    #[arg(long, value_name = "ADDR:PORT|PATH")]
    pub metrics: Option<MetricsAddress>,

    /// Serve as a node of a cluster: several servers of one CephFS, whose state is in a namespace of a RADOS
    /// pool
    ///
    /// `samehost cluster add` adds the node first. All nodes export the same directories of CephFS by the
    /// same paths, or with the same fsid=. NFSv4.0 is off without
    /// --cluster-nfs40.
    #[arg(long, value_name = "rados://POOL/NAMESPACE")]
    pub cluster: Option<rados::ClusterAddress>,

    /// This server's name in the cluster
    #[arg(long, value_name = "NAME", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub node: Option<String>,

    /// A program that moves addresses between the nodes of a cluster
    ///
    /// It is run as `PROGRAM take NODE` on the server that takes over the clients of the drained node NODE,
    /// and as `PROGRAM give-up NODE` on that node, if it runs. It has to announce an address that it takes
    /// (`arping -A`): otherwise clients may find it too late to reclaim. Its umask is 022. After 60 seconds
    /// it is killed, with the processes that it has started.
    #[arg(long, value_name = "PROGRAM")]
    pub address_hook: Option<PathBuf>,

    /// The address of a node of a cluster, and the interface that gets it when the node is drained to this
    /// server
    ///
    /// For each node that may be drained, with the same interface on all servers. The server executes ip(8)
    /// and arping(8), and needs CAP_NET_ADMIN and CAP_NET_RAW. --address-hook replaces this.
    #[arg(long, value_name = "NODE=ADDRESS/LENGTH%INTERFACE")]
    pub node_address: Vec<server::NodeAddress>,

    /// Serve NFSv4.0 in a cluster, too
    ///
    /// Its clients never say that they have reclaimed everything: each grace period that this server begins
    /// lasts for a lease.
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value_t = false,
        hide_default_value = true,
        hide_possible_values = true,
        action = ArgAction::Set,
    )]
    pub cluster_nfs40: bool,

    /// How to reach the cluster.
    #[command(flatten)]
    pub ceph: CephArgs,

    /// Don't register with rpcbind, even if one is running
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value_t = false,
        hide_default_value = true,
        hide_possible_values = true,
        action = ArgAction::Set,
    )]
    pub no_rpcbind: bool,

    /// Don't log who mounts what from where, and who is refused and why
    #[arg(
        long,
        value_name = "true|false",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        default_value_t = false,
        hide_default_value = true,
        hide_possible_values = true,
        action = ArgAction::Set,
    )]
    pub no_audit: bool,

    /// How long to wait for a server that uses the state directory or an address and may be stopping, in
    /// seconds
    ///
    /// One server at a time uses a state directory. This one waits until the other has ended, and fails if it
    /// hasn't by then. 0: it fails at once.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 20,
        value_parser = clap::value_parser!(u16).range(0..=3600),
    )]
    pub takeover: u16,

    /// How long SIGTERM waits for I/O on granted files, and then for running calls, in seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 5,
        value_parser = clap::value_parser!(u16).range(0..=3600),
    )]
    pub grace: u16,

    /// How long an NFSv4 client may be silent before it loses its opens and locks to others, in seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 90,
        value_parser = clap::value_parser!(u16).range(1..=3600),
    )]
    pub lease: u16,

    /// How owners and groups are sent to NFSv4 clients: as numbers, or as name@domain if they have a name
    /// here
    ///
    /// Both forms are accepted from clients in either case.
    #[arg(
        long,
        value_enum,
        value_name = "numbers|names",
        hide_possible_values = true,
        default_value_t = Owners::Numbers,
    )]
    pub nfs4_owners: Owners,

    /// The domain of users' and groups' names in NFSv4
    ///
    /// Default: Domain in /etc/idmapd.conf, else this host's domain, else localdomain.
    #[arg(long, value_name = "DOMAIN", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub nfs4_domain: Option<String>,

    /// Stop, as on SIGTERM, when standard input ends: so that a server never outlives the script that started
    /// it
    #[arg(long, hide = true)]
    pub until_stdin_ends: bool,
}

/// Parses an [`IoMode`], and lists its values for shell completion.
fn io_mode() -> impl TypedValueParser<Value = IoMode> {
    PossibleValuesParser::new(IoMode::ALL.map(|mode| mode.to_string())).try_map(|word| word.parse())
}

/// Parses a [`LaneOffer`], and lists its values for shell completion.
fn lane_offer() -> impl TypedValueParser<Value = LaneOffer> {
    PossibleValuesParser::new(LaneOffer::ALL.map(|offer| offer.to_string())).try_map(|word| word.parse())
}

/// The form of users and groups in NFSv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Owners {
    /// Its number.
    Numbers,
    /// Its name and a domain.
    Names,
}
