//! User and group names for `ls -l`, from /etc/passwd and /etc/group.
//!
//! NFSv3 carries numbers. Names are for display only, so the two files suffice, without a name service.

use std::collections::HashMap;
use std::path::Path;

/// Larger files aren't read.
const MAX_FILE: u64 = 4 << 20;

/// Names by number.
pub struct Ids {
    users: HashMap<u32, String>,
    groups: HashMap<u32, String>,
}

impl Ids {
    /// The names in this machine's files.
    pub fn of_this_machine() -> Self {
        Self { users: load(Path::new("/etc/passwd")), groups: load(Path::new("/etc/group")) }
    }

    /// No names, only numbers.
    pub fn numeric() -> Self {
        Self { users: HashMap::new(), groups: HashMap::new() }
    }

    /// The user's name, or the number.
    pub fn user(&self, uid: u32) -> String {
        self.users.get(&uid).cloned().unwrap_or_else(|| uid.to_string())
    }

    /// The group's name, or the number.
    pub fn group(&self, gid: u32) -> String {
        self.groups.get(&gid).cloned().unwrap_or_else(|| gid.to_string())
    }
}

fn load(path: &Path) -> HashMap<u32, String> {
    let small = std::fs::metadata(path).is_ok_and(|metadata| metadata.len() <= MAX_FILE);
    if !small {
        return HashMap::new();
    }
    parse(&std::fs::read(path).unwrap_or_default())
}

/// `name:password:number:...` lines. The first name of a number wins, as in getpwuid(3).
fn parse(text: &[u8]) -> HashMap<u32, String> {
    let mut names = HashMap::new();
    for line in text.split(|byte| *byte == b'\n') {
        let mut fields = line.split(|byte| *byte == b':');
        let (Some(name), Some(_), Some(number)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let number = std::str::from_utf8(number).ok().and_then(|digits| digits.parse().ok());
        if let Some(number) = number {
            names.entry(number).or_insert_with(|| crate::human::name(name));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_of_a_number_wins_and_broken_lines_are_skipped() {
        let names = parse(b"root:x:0:0::/root:/bin/sh\ntoor:x:0:0\n# a comment\nbad:x:many:1\ndaemon:*:1:1");
        assert_eq!(names.get(&0).map(String::as_str), Some("root"));
        assert_eq!(names.get(&1).map(String::as_str), Some("daemon"));
        assert_eq!(names.len(), 2);
    }
}
