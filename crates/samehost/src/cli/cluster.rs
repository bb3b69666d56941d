//! `samehost cluster`, and the options that name a cluster of servers.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use rados::ClusterAddress;

pub const LONG_HELP: &str = "\
The servers of a cluster export the same CephFS. They share the grace database, an object in RADOS: which \
servers there are, and which of them have clients that may reclaim opens and locks. It is nfs-ganesha's, \
whose tool ganesha-rados-grace shows and changes it, too.

Examples:
  samehost cluster status --cluster rados://cephfs.a.meta/nfs
  samehost cluster status --config /etc/samehost/samehost.toml
  samehost cluster add a b --cluster rados://cephfs.a.meta/nfs

Exit codes:
  0  done
  1  the cluster refused, or the change isn't permitted
  2  the command line couldn't be understood; nothing was tried
  4  the cluster couldn't be reached";

/// Options that name a cluster.
#[derive(Debug, Args)]
pub struct CephArgs {
    /// The Ceph configuration (default: /etc/ceph/ceph.conf)
    #[arg(long, global = true, value_name = "FILE", env = "CEPH_CONF")]
    pub ceph_conf: Option<PathBuf>,

    /// The Ceph user, without `client.`
    #[arg(long, global = true, value_name = "NAME", default_value = "admin")]
    pub ceph_user: String,
}

impl CephArgs {
    /// How to reach `address`.
    pub fn settings(&self, address: &ClusterAddress) -> rados::Settings {
        rados::Settings {
            address: address.clone(),
            user: self.ceph_user.clone(),
            configuration: self.ceph_conf.clone(),
            timeout: TIMEOUT,
        }
    }
}

/// How long Ceph may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Options of `samehost cluster`.
#[derive(Debug, Args)]
pub struct ClusterArgs {
    /// A server's configuration file, samehost.toml(5), whose keys `cluster`, `ceph-conf` and `ceph-user` are
    /// used. The command line wins
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where the cluster keeps its state: a namespace of a RADOS pool
    #[arg(long, global = true, value_name = "rados://POOL/NAMESPACE", env = "SAMEHOST_CLUSTER")]
    pub cluster: Option<ClusterAddress>,
    /// How to reach it.
    #[command(flatten)]
    pub ceph: CephArgs,
    /// What to do.
    #[command(subcommand)]
    pub what: ClusterCommand,
}

/// What can be done with a cluster.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Show the servers of the cluster, and whether it is in grace
    #[command(after_long_help = STATUS_LONG_HELP)]
    Status {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Add servers to the cluster
    #[command(after_long_help = ADD_LONG_HELP)]
    Add {
        /// Names of the servers, as `serve --node` has them
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
    },
    /// Remove servers without clients from the cluster
    #[command(after_long_help = REMOVE_LONG_HELP)]
    Remove {
        /// Names of the servers
        #[arg(required = true, value_name = "NODE")]
        nodes: Vec<String>,
    },
    /// Let one server take over the clients of another, which leaves the cluster
    #[command(after_long_help = DRAIN_LONG_HELP)]
    Drain {
        /// The server that leaves
        #[arg(value_name = "FROM")]
        from: String,
        /// The server that takes over
        #[arg(long, value_name = "TO")]
        to: String,
    },
}

const DRAIN_LONG_HELP: &str = "\
TO begins a grace period, takes over FROM's client records and, by its --address-hook, its address. FROM \
leaves the cluster; it may be down already. Its clients reconnect to the same address and reclaim. The \
command returns when the order is given; `samehost cluster status` shows the progress.

Exit codes:
  0  ordered
  1  not permitted, or the cluster refused
  4  the cluster couldn't be reached";

const STATUS_LONG_HELP: &str = "\
The flags are those of ganesha-rados-grace: N, the server has clients that may reclaim; E, it gives no new \
opens and locks. The grace period ends when all servers have E and none has N.

Exit codes:
  0  done
  1  there is no such cluster, or it refused
  4  the cluster couldn't be reached";

const ADD_LONG_HELP: &str = "\
The first server creates the cluster. A server is added before it is started.

Exit codes:
  0  added
  1  a server of this name is in the cluster already, or the cluster refused
  4  the cluster couldn't be reached";

const REMOVE_LONG_HELP: &str = "\
A server that may have clients with opens and locks isn't removed.

Exit codes:
  0  removed
  1  there is no such server, it may have clients, or the cluster refused
  4  the cluster couldn't be reached";
