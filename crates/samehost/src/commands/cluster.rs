//! `cluster`: shows and changes the grace database of a cluster of servers.

use cluster::{ChangeRefused, Database, Flags};
use rados::{ClusterAddress, ObjectNamespace, Reason};
use recovery::{GraceDatabase, GraceError};
use serde::Serialize;

use crate::cli::{ClusterArgs, ClusterCommand};
use crate::exit::{CommandResult, Exit, Failure};
use crate::output::Output;
use crate::table::{Align, TextTable};

/// Shows or changes the database.
pub fn cluster(args: &ClusterArgs) -> CommandResult {
    let Some(address) = &args.cluster else {
        return Err(Failure::usage("cluster", "no cluster is named")
            .next("--cluster rados://POOL/NAMESPACE, or --config with the file of one of its servers")
            .into());
    };
    let objects = ObjectNamespace::connect(&args.ceph.settings(address)).map_err(unreachable)?;
    let grace = GraceDatabase::new(objects);
    match &args.what {
        ClusterCommand::Status { json } => {
            let database = grace.read().map_err(failed)?.database;
            let mut output = Output::stdout();
            if *json {
                output.json(&ClusterStatus::of(address, &database))?;
            } else {
                for line in lines(address, &database) {
                    output.line(line)?;
                }
            }
            output.flush()?;
        }
        ClusterCommand::Add { nodes } => {
            let add = |old: &Database| nodes.iter().try_fold(old.clone(), |new, node| new.add(node));
            grace.update(true, add).map_err(failed)?;
        }
        ClusterCommand::Remove { nodes } => {
            let remove = |old: &Database| nodes.iter().try_fold(old.clone(), |new, node| new.remove(node));
            grace.update(false, remove).map_err(failed)?;
        }
        ClusterCommand::Drain { from, to } => {
            grace.update(false, |old| old.drain(from, to)).map_err(failed)?;
        }
    }
    Ok(Exit::Done)
}

fn unreachable(error: rados::Error) -> Failure {
    Failure::new("cluster", error).exit(Exit::Unreachable)
}

/// The next step for each failure. Reasons of RADOS name their own.
fn failed(error: GraceError) -> Failure {
    let failure = Failure::new("cluster", &error);
    let next = match &error {
        GraceError::Object(object) => match object.reason {
            Reason::Missing => "`samehost cluster add NODE` creates the cluster".to_owned(),
            Reason::TimedOut => return failure.exit(Exit::Unreachable),
            Reason::Changed => "try again".to_owned(),
            _ => return failure,
        },
        GraceError::Damaged { .. } => return failure,
        GraceError::Refused(refused) => match refused {
            ChangeRefused::NotMember(_) | ChangeRefused::Member(_) => {
                "`samehost cluster status` lists the nodes".to_owned()
            }
            ChangeRefused::HasState(node) => {
                format!("`samehost cluster drain {node} --to OTHER`, also if it is down")
            }
            ChangeRefused::Drained(..) => {
                "`samehost cluster status` shows when the other node has taken over".to_owned()
            }
            ChangeRefused::NeverServed(node) => format!("start {node} first"),
            ChangeRefused::Name(_) => "a name has no comma, slash or control character".to_owned(),
            _ => return failure,
        },
    };
    failure.next(next)
}

/// What `--json` prints.
#[derive(Serialize)]
struct ClusterStatus<'a> {
    address: String,
    /// The epoch in which clients are recorded.
    epoch: u64,
    /// The epoch whose clients may reclaim, during a grace period.
    recovery_epoch: Option<u64>,
    nodes: Vec<NodeStatus<'a>>,
}

#[derive(Serialize)]
struct NodeStatus<'a> {
    name: &'a str,
    needs_grace: bool,
    enforces: bool,
    /// The sessions with the metadata server that may hold state of its clients.
    sessions: &'a [String],
    /// The server that takes its clients over.
    successor: Option<&'a str>,
}

impl<'a> ClusterStatus<'a> {
    fn of(address: &ClusterAddress, database: &'a Database) -> Self {
        let node = |(name, flags): (&'a String, &Flags)| {
            let notes = database.notes.get(name);
            NodeStatus {
                name,
                needs_grace: flags.needs_grace(),
                enforces: flags.enforces(),
                sessions: notes.map(|notes| notes.sessions.as_slice()).unwrap_or_default(),
                successor: notes.and_then(|notes| notes.successor.as_deref()),
            }
        };
        Self {
            address: address.to_string(),
            epoch: database.current,
            recovery_epoch: database.in_grace().then_some(database.recovery),
            nodes: database.nodes.iter().map(node).collect(),
        }
    }
}

/// The lines of the text form.
fn lines(address: &ClusterAddress, database: &Database) -> Vec<String> {
    let grace = if database.in_grace() {
        format!("in grace; clients of epoch {} may reclaim", database.recovery)
    } else {
        "not in grace".to_owned()
    };
    let mut lines = vec![format!("{address}: epoch {}, {grace}", database.current)];
    let mut table = TextTable::new(&[("node", Align::Left), ("flags", Align::Left), ("state", Align::Left)]);
    for (name, flags) in &database.nodes {
        let letters = [(flags.needs_grace(), "N"), (flags.enforces(), "E")];
        let letters: String =
            letters.iter().filter_map(|(is_set, letter)| is_set.then_some(*letter)).collect();
        table.row([name.as_str(), &letters, state(database, name, *flags)]);
    }
    lines.extend(table.lines(2));
    lines
}

/// A server's part in the cluster, in words.
fn state(database: &Database, node: &str, flags: Flags) -> &'static str {
    let is_drained = database.notes.get(node).is_some_and(|notes| notes.successor.is_some());
    match (database.in_grace(), flags.needs_grace(), flags.enforces()) {
        _ if is_drained => "is being drained",
        (true, true, true) => "its clients may reclaim",
        (true, true, false) => "has clients that may reclaim; still gives opens and locks",
        (true, false, true) => "waits for the end of the grace period",
        (true, false, false) => "still gives opens and locks, or is down: the grace period can't end",
        (false, _, true) => "hasn't started, or has stopped",
        (false, _, false) => "gives opens and locks",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_each_server_is_shown() {
        let address = "rados://p/n".parse().unwrap();
        let two = Database::default().add("alpha").and_then(|new| new.add("b")).unwrap();
        assert_eq!(
            lines(&address, &two.resume("alpha", "s").unwrap()),
            [
                "rados://p/n: epoch 1, not in grace",
                "  node   flags  state",
                "  alpha         gives opens and locks",
                "  b      E      hasn't started, or has stopped",
            ]
        );
        let begun = two.resume("alpha", "s").and_then(|new| new.begin_recovery("b")).unwrap();
        assert_eq!(
            lines(&address, &begun),
            [
                "rados://p/n: epoch 2, in grace; clients of epoch 1 may reclaim",
                "  node   flags  state",
                "  alpha         still gives opens and locks, or is down: the grace period can't end",
                "  b      NE     its clients may reclaim",
            ]
        );
        let json = serde_json::to_value(ClusterStatus::of(&address, &begun)).unwrap();
        assert_eq!(json["recovery_epoch"], 1);
        assert_eq!(json["nodes"][0]["sessions"][0], "s");
    }
}
