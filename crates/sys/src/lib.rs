//! What Linux offers and no crate wraps; the only crate with unsafe code.
