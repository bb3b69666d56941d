//! Options of every command that talks to a server: which road to take and how patient to be.

use std::str::FromStr;

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// How to reach the server. Names and units are nfs(5)'s.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Reaching the server")]
pub struct RoadArgs {
    /// auto: take the lane where one comes up; off: the wire only; required: fail (exit code 3) without a
    /// lane
    #[arg(
        long,
        value_enum,
        value_name = "auto|off|required",
        hide_possible_values = true,
        default_value_t = LaneWord::Auto
    )]
    pub lane: LaneWord,

    /// Give up on a call after --retrans repetitions, instead of repeating it until the server answers
    #[arg(long, overrides_with = "hard")]
    pub soft: bool,

    /// Repeat a call until the server answers (the default): a copy survives the server's restart
    #[arg(long, overrides_with = "soft")]
    pub hard: bool,

    /// Tenths of a second to wait for an answer before a call is sent again
    #[arg(long, value_name = "TENTHS", default_value_t = 600, value_parser = clap::value_parser!(u32).range(1..=36_000))]
    pub timeo: u32,

    /// How often to send a call again before --soft gives up
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub retrans: u32,

    /// TCP connections to the server
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub nconnect: u8,

    /// Largest READ in bytes (default: what the server prefers)
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1024..=16 << 20))]
    pub rsize: Option<u32>,

    /// Largest WRITE in bytes (default: what the server prefers)
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1024..=16 << 20))]
    pub wsize: Option<u32>,

    /// Look for a lane again after this many READs and WRITEs over the wire: a power of two, or 0 not to
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = throttle)]
    pub localio_probe_throttle: u32,

    /// Act as this user instead of yourself: `UID[:GID[,GID]...]`
    ///
    /// The server believes it over the wire (that is AUTH_SYS). Over the lane only root may speak for others.
    #[arg(long = "as", value_name = "UID[:GID,...]")]
    pub user: Option<UserArg>,

    /// Trust a lane of this user, besides root's and your own; may be repeated
    ///
    /// Whoever offers the lane decides what your reads return. It must be a user whom you would trust with
    /// that.
    #[arg(long, value_name = "UID")]
    pub trust_uid: Vec<u32>,
}

/// The values of the kernel's nfs3_localio_probe_throttle.
fn throttle(text: &str) -> Result<u32, String> {
    let number = text.parse::<u32>().map_err(|error| error.to_string())?;
    if number == 0 || number.is_power_of_two() { Ok(number) } else { Err("not a power of two".to_owned()) }
}

/// The word that switches the lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LaneWord {
    /// Take it where it comes up.
    Auto,
    /// Don't try.
    Off,
    /// Fail without it.
    Required,
}

impl From<LaneWord> for client::LaneMode {
    fn from(word: LaneWord) -> Self {
        match word {
            LaneWord::Auto => Self::Auto,
            LaneWord::Off => Self::Off,
            LaneWord::Required => Self::Required,
        }
    }
}

/// A user as AUTH_SYS names one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserArg {
    /// The user.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// Supplementary groups, sixteen at most (RFC 5531 appendix A).
    pub gids: Vec<u32>,
}

impl FromStr for UserArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |what: &str, digits: &str| {
            digits.parse::<u32>().map_err(|_| format!("'{digits}' is not a {what} number"))
        };
        let (user, groups) = text.split_once(':').unwrap_or((text, ""));
        let uid = number("user", user)?;
        if groups.is_empty() {
            return Ok(Self { uid, gid: uid, gids: Vec::new() });
        }
        let mut all = groups.split(',').map(|group| number("group", group)).collect::<Result<Vec<_>, _>>()?;
        let gid = all.remove(0);
        if all.len() > 16 {
            return Err(format!("{} supplementary groups; AUTH_SYS carries sixteen", all.len()));
        }
        Ok(Self { uid, gid, gids: all })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_numbers() {
        assert_eq!("7".parse(), Ok(UserArg { uid: 7, gid: 7, gids: vec![] }));
        assert_eq!("7:8".parse(), Ok(UserArg { uid: 7, gid: 8, gids: vec![] }));
        assert_eq!("7:8,9,10".parse(), Ok(UserArg { uid: 7, gid: 8, gids: vec![9, 10] }));
        assert!("root".parse::<UserArg>().is_err());
        assert!("7:8,".parse::<UserArg>().is_err());
        let many = (0..18).map(|gid| gid.to_string()).collect::<Vec<_>>().join(",");
        assert!(format!("7:{many}").parse::<UserArg>().is_err());
    }
}
