//! The serving certificate: the gate's own in a Secret, or files from cert-manager.

mod issue;
mod keeper;
mod pair;
mod secret;

pub use issue::{Issued, issue};
pub use keeper::{CertificateError, Keeper, Source};
pub use pair::{Pair, PairError};
pub use secret::OwnSecret;
