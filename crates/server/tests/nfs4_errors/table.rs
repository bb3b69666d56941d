//! Comparison of the errors that were provoked with those of the RFCs and of docs/nfs4.md.

use std::collections::{BTreeMap, BTreeSet};

use proto::nfs4::{Nfsstat4, Operation};

const DOCS: &str = include_str!("../../../../docs/nfs4.md");

/// Provoked errors by operation.
#[derive(Default)]
pub struct Table {
    provoked: BTreeMap<&'static str, BTreeSet<String>>,
    /// Results that weren't expected.
    surprises: Vec<String>,
}

/// An error of an operation that no table has, and why it is right.
pub type Beyond = (Operation, Nfsstat4, &'static str);

/// The RFCs' name: BAD_STATEID for `BadStateid`.
fn name(status: Nfsstat4) -> String {
    let mut name = String::new();
    for letter in format!("{status:?}").chars() {
        if letter.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

impl Table {
    /// Records that an operation has returned `found`; `status` is expected.
    pub fn note(&mut self, op: Operation, status: Nfsstat4, found: u32) {
        if found != status as u32 {
            self.surprises.push(format!("{op:?} should fail with {status:?}, not {found}"));
        }
        self.provoked.entry(op.name()).or_default().insert(name(status));
    }

    /// Adds the records of another table.
    pub fn add(&mut self, other: Self) {
        self.surprises.extend(other.surprises);
        for (op, errors) in other.provoked {
            self.provoked.entry(op).or_default().extend(errors);
        }
    }

    /// Compares the errors with `rfcs`, which has lines "OPERATION: ERROR ERROR", and with docs/nfs4.md.
    pub fn check(&self, rfcs: &str, beyond: &[Beyond]) {
        assert!(self.surprises.is_empty(), "{:#?}", self.surprises);
        let allowed: BTreeMap<&str, BTreeSet<&str>> = rfcs
            .lines()
            .filter_map(|line| line.split_once(": "))
            .map(|(op, errors)| (op, errors.split(' ').collect()))
            .collect();
        let is_beyond =
            |op: &str, error: &str| beyond.iter().any(|(o, s, _)| o.name() == op && name(*s) == *error);
        let wrong: Vec<_> = self
            .provoked
            .iter()
            .flat_map(|(op, errors)| errors.iter().map(move |error| (*op, error.as_str())))
            .filter(|(op, error)| {
                !allowed.get(op).is_some_and(|known| known.contains(error)) && !is_beyond(op, error)
            })
            .collect();
        assert!(wrong.is_empty(), "no RFC lets these operations return these errors: {wrong:?}");
        let row = |(op, errors): (&&str, &BTreeSet<String>)| {
            let errors: Vec<_> = errors.iter().map(String::as_str).collect();
            format!("| {op} | {} |\n", errors.join(", "))
        };
        let table: String = self.provoked.iter().map(row).collect();
        assert!(DOCS.contains(&table), "docs/nfs4.md should have this table:\n{table}");
    }
}
