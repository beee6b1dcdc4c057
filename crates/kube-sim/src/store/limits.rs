//! How much the store takes.

/// What the store holds at most.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Changes kept for each resource, for watches that start in the past; older ones are
    /// "compacted". Busy resources (Leases) do not push out quiet ones, as in the API server.
    pub history: usize,
    /// Bytes of objects that the history of one resource may keep alive.
    pub history_bytes: usize,
    /// Changes that one watch may lag behind before it is cut off.
    pub watch_queue: usize,
    /// Objects in all.
    pub objects: usize,
    /// Bytes of one object; etcd's default request limit.
    pub object_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            history: 1_000,
            history_bytes: 64 << 20,
            watch_queue: 1_000,
            objects: 100_000,
            object_bytes: 3 << 19,
        }
    }
}
