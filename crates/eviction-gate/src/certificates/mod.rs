//! The serving certificate: the gate's own in a Secret, or files from cert-manager.

mod error;
mod issue;
mod keeper;
mod pair;
mod secret;
#[cfg(test)]
mod tests;

pub use error::CertificateError;
pub use issue::{Issued, issue};
pub use keeper::{Keeper, Refreshed, Source};
pub use pair::{ClientCas, Pair, PairError};
pub use secret::OwnSecret;
