//! The serving certificate: the gate's own in a Secret, or files from cert-manager.

mod error;
mod issue;
mod keeper;
mod pair;
mod secret;

pub use error::CertificateError;
pub use issue::{Issued, issue};
pub use keeper::{Keeper, Source};
pub use pair::{Pair, PairError};
pub use secret::OwnSecret;
