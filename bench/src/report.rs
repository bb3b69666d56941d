//! The tables in docs/benchmarks.md, each a section. Text written by hand and sections that weren't measured
//! in this run stay.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use crate::Effort;
use crate::figure::Table;

/// The file's introduction.
const INTRODUCTION: &str = "# Benchmarks

Written by `make bench`; each section gives the command that measures it again, and the machine on which \
it was measured. Shown are medians of several runs, and after the sign half the distance between the \
fastest and the slowest run. The compared things took turns in one run on one machine, so the ratios are \
what counts: each is the median of the ratios of neighbouring runs, with the spread of those. Stolen time \
(steal in proc(5)) is what a virtual machine's host gave to others meanwhile: if it is more than a few \
percent, measure again.

The tables of small files, single operations and whole trees have a column for each data path. Raw is the \
directory itself. With a mount grant the export itself is mounted, and Samehost serves nothing. With a \
tree names and attributes are system calls on a directory that the server granted; a mount gets the \
kernel's requests by io_uring or through /dev/fuse. With files only (`serve --lane files`) open files are \
granted, and names and attributes are calls over the wire. Over the wire (`lane=off`), calls transfer \
data, too. Trees are used by NFSv4.2, the default, and the last two by NFSv3, unless the heading has another \
version. A data path that the measured build or machine lacks is left out, and the section says why.
";

/// The longest line of prose.
const MAX_COLUMNS: usize = 110;

/// `text` in lines of at most [`MAX_COLUMNS`], with its own line breaks kept.
fn wrapped(text: &str) -> String {
    let mut lines = Vec::new();
    for line in text.split('\n') {
        let mut current = String::new();
        for word in line.split(' ') {
            if !current.is_empty() && current.chars().count() + 1 + word.chars().count() > MAX_COLUMNS {
                lines.push(std::mem::take(&mut current));
            }
            if !current.is_empty() {
                current.push(' ');
            }
            current.push_str(word);
        }
        lines.push(current);
    }
    lines.join("\n")
}

/// The new text of the file: a section replaces the one of the same title, a new one is appended. `stolen`
/// is the steal time in percent of the processors' time.
pub fn merged(old: &str, tables: &[Table], effort: &Effort, stolen: u64, arguments: &[String]) -> String {
    let mut sections: Vec<String> = old.split_inclusive('\n').fold(Vec::new(), |mut sections, line| {
        match sections.last_mut() {
            _ if line.starts_with("## ") => sections.push(line.to_owned()),
            Some(section) => section.push_str(line),
            None => {}
        }
        sections
    });
    for table in tables {
        let new = section(table, effort, stolen, arguments);
        let head = new.lines().next().unwrap_or_default().to_owned();
        match sections.iter_mut().find(|section| section.lines().next() == Some(&head)) {
            Some(section) => *section = new,
            None => sections.push(new),
        }
    }
    let mut text = wrapped(INTRODUCTION);
    for section in sections {
        let _ = write!(text, "\n{}\n", section.trim_end());
    }
    text
}

fn section(table: &Table, effort: &Effort, stolen: u64, arguments: &[String]) -> String {
    let (title, description) = (&table.title, wrapped(&table.description));
    let mut text = format!("## {title}\n\n{description}\n\n| {} |\n", table.head.join(" | "));
    let rule: Vec<&str> = (0..table.head.len()).map(|i| if i == 0 { "---" } else { "---:" }).collect();
    let _ = writeln!(text, "| {} |", rule.join(" | "));
    for row in &table.rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
    let (command, machine) = (command(arguments), machine());
    let (runs, seconds) = (effort.runs, effort.seconds);
    let (commit, load) = (commit(), load());
    let origin =
        format!("`{command}`: {runs} runs of {seconds} s; {machine}; {stolen} % stolen{commit}{load}.");
    let _ = writeln!(text, "\n{}", wrapped(&origin));
    text
}

/// The command that measures a section again, without the arguments that the Makefile passes.
fn command(arguments: &[String]) -> String {
    let mut kept = Vec::new();
    let mut words = arguments.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if matches!(word, "--nfsload" | "--passthrough-ll" | "--uncounted" | "--write") {
            words.next();
        } else {
            kept.push(word);
        }
    }
    if let ["--only", "cluster", more @ ..] = kept.as_slice() {
        return match more.join(" ").as_str() {
            "" => "make bench-cluster".to_owned(),
            more => format!("make bench-cluster BENCH='{more}'"),
        };
    }
    if kept.is_empty() { "make bench".to_owned() } else { format!("make bench BENCH='{}'", kept.join(" ")) }
}

/// The commit of the working directory, if it is a checkout.
fn commit() -> String {
    let output = Command::new("git").args(["rev-parse", "--short", "HEAD"]).output();
    let output = output.ok().filter(|output| output.status.success());
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    text.map_or_else(String::new, |commit| format!("; commit {commit}"))
}

/// How many processes ran in the last 15 minutes, those of the benchmark among them.
fn load() -> String {
    let read = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    read.split_whitespace().nth(2).map_or_else(String::new, |load| format!("; load {load}"))
}

fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo
        .lines()
        .find_map(|l| l.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    let processors = cpuinfo.lines().filter(|l| l.starts_with("processor")).count();
    let memory = read("/proc/meminfo")
        .lines()
        .find_map(|l| l.strip_prefix("MemTotal:")?.split_whitespace().next()?.parse::<u64>().ok())
        .unwrap_or(0)
        >> 20;
    let release = read("/proc/sys/kernel/osrelease");
    let system = read("/etc/os-release");
    let system = system
        .lines()
        .find_map(|l| l.strip_prefix("PRETTY_NAME="))
        .map_or_else(|| "Linux".to_owned(), |name| name.trim_matches('"').to_owned());
    let version = release.trim().split('-').next().unwrap_or_default();
    format!("{processors} processors ({model}), {memory} GiB, {system}, Linux {version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_is_wrapped_and_keeps_its_line_breaks() {
        let word = "x".repeat(50);
        let text = format!("{word} {word} {word}\n\nshort");
        assert_eq!(wrapped(&text), format!("{word} {word}\n{word}\n\nshort"));
        assert_eq!(wrapped(&"x".repeat(200)), "x".repeat(200));
    }
}
