//! Membership in netgroups: innetgr(3), which only glibc has.

/// Whether `host` is in the netgroup `group`, as the host part of a member. May wait for a directory service.
///
/// `None` where the C library has no netgroups, and for words with NUL bytes.
#[must_use]
pub fn has_host(group: &str, host: &str) -> Option<bool> {
    has_host_in_library(group, host)
}

#[cfg(target_env = "gnu")]
fn has_host_in_library(group: &str, host: &str) -> Option<bool> {
    use std::ffi::{CString, c_char, c_int};

    unsafe extern "C" {
        fn innetgr(
            netgroup: *const c_char,
            host: *const c_char,
            user: *const c_char,
            domain: *const c_char,
        ) -> c_int;
    }
    let (group, host) = (CString::new(group).ok()?, CString::new(host).ok()?);
    // SAFETY: glibc's prototype; both words are valid strings during the call, which keeps none of them. NULL
    // for user and domain matches any. glibc serializes its access to the name service (MT-Safe).
    let found = unsafe { innetgr(group.as_ptr(), host.as_ptr(), std::ptr::null(), std::ptr::null()) };
    Some(found != 0)
}

#[cfg(not(target_env = "gnu"))]
fn has_host_in_library(_: &str, _: &str) -> Option<bool> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_in_no_netgroup_that_does_not_exist() {
        let expected = if cfg!(target_env = "gnu") { Some(false) } else { None };
        assert_eq!(has_host("no such netgroup", "localhost"), expected);
        assert_eq!(has_host("a\0b", "localhost"), None);
    }
}
