//! The tables as docs/benchmarks.md.

use std::fmt::Write;
use std::fs;

use crate::Effort;
use crate::figure::Table;

/// All of it.
pub fn markdown(tables: &[Table], effort: &Effort, arguments: &[String]) -> String {
    let mut text = String::from("# Benchmarks\n\n");
    let arguments: Vec<&str> = {
        // What make passes by itself is in the Makefile.
        let mut kept = Vec::new();
        let mut words = arguments.iter().map(String::as_str);
        while let Some(word) = words.next() {
            if matches!(word, "--nfsload" | "--write") {
                words.next();
            } else {
                kept.push(word);
            }
        }
        kept
    };
    let command = if arguments.is_empty() {
        "make bench".to_owned()
    } else {
        format!("make bench BENCH='{}'", arguments.join(" "))
    };
    let _ = write!(
        text,
        "Written by `{command}`; repeat it with that command. Medians of {} runs of {} s, and after the sign half the distance \
         between the fastest and the slowest run. What is compared took turns in one run on one machine, so the ratios are \
         what counts.\n\nMachine: {}.\n",
        effort.runs,
        effort.seconds,
        machine()
    );
    for table in tables {
        let _ = write!(text, "\n## {}\n\n{}\n\n| {} |\n", table.title, table.about, table.head.join(" | "));
        let rule: Vec<&str> = (0..table.head.len()).map(|i| if i == 0 { "---" } else { "---:" }).collect();
        let _ = writeln!(text, "| {} |", rule.join(" | "));
        for row in &table.rows {
            let _ = writeln!(text, "| {} |", row.join(" | "));
        }
    }
    text
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
