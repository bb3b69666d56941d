//! Whether a packet filter of this host drops NFS, as far as its rules say so plainly.

/// Whether a listing of nftables' rules (`nft list ruleset`, which includes iptables-nft's) drops what comes
/// in by default and names neither NFS nor its port. Rules that admit the port otherwise, such as by
/// interface or through a set, aren't understood.
pub fn drops_nfs(ruleset: &str) -> bool {
    let drops = ruleset.lines().any(|line| line.contains("hook input") && line.contains("policy drop"));
    let names_nfs =
        ruleset.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| matches!(word, "2049" | "nfs"));
    drops && !names_nfs
}

#[cfg(test)]
mod tests {
    use super::*;

    const DROPPING: &str = "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority \
                            filter; policy drop;\n\t\ttcp dport 22 accept\n\t}\n}\n";

    #[test]
    fn a_policy_of_drop_without_the_port_drops_nfs() {
        assert!(drops_nfs(DROPPING));
        for admitted in ["tcp dport { 22, 2049 } accept", "tcp dport nfs accept"] {
            assert!(!drops_nfs(&DROPPING.replace("tcp dport 22 accept", admitted)), "{admitted}");
        }
        assert!(!drops_nfs(&DROPPING.replace("policy drop", "policy accept")));
        assert!(!drops_nfs(""));
    }
}
