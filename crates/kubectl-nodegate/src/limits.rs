//! How many descriptors the program may have.

/// Every agent that is asked needs one, two if the API server is asked as well, and some systems give 256.
#[cfg(unix)]
const WANTED: u64 = 2048;

/// Takes what it is allowed to take; with fewer, some agents would seem not to answer.
pub(crate) fn raise() {
    #[cfg(unix)]
    {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
        let wanted = maximum.map_or(WANTED, |maximum| maximum.min(WANTED));
        if current.is_some_and(|current| current < wanted) {
            // What is not allowed is done without.
            let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum });
        }
    }
}
