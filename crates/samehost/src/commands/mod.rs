//! The commands, one module each. A command takes its parsed arguments and returns an exit code, or the
//! reason why it stopped.

pub mod bench;
pub mod cat;
pub mod check_config;
pub mod cluster;
pub mod cp;
pub mod ctl;
pub mod demo;
pub mod df;
pub mod doctor;
pub mod exports;
pub mod ls;
pub mod manual;
pub mod mkdir;
pub mod mount;
pub mod mv;
pub mod probe;
pub mod rm;
pub mod serve;
pub mod stat;
pub mod status;
pub mod top;
pub mod umount;
