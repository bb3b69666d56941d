//! The NFS server: programs over store, exports and lane.
