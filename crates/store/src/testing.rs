//! Helpers for unit tests.

use std::path::Path;
use std::sync::Arc;

use crate::{HandleKey, Store, StoreOptions, WriteVerifier};

/// A store with located handles, which need no privileges.
pub(crate) fn store(path: &Path) -> Store {
    Store::open(StoreOptions {
        path: path.to_owned(),
        export_id: 1,
        key: HandleKey::new([1; 16]),
        read_only: false,
        subtree_check: true,
        verifier: Arc::new(WriteVerifier::new()),
        limits: crate::DescriptorLimits::default(),
        reserved_name: None,
    })
    .expect("opens")
}
