//! The serving certificate: the gate's own in a Secret, or files from cert-manager.

mod issue;
mod keeper;
mod pair;
mod renewal_error;
mod secret;
#[cfg(test)]
mod tests;

pub use issue::{Issued, issue};
pub use keeper::{Keeper, Refreshed, Source};
pub use pair::{ClientCas, Pair, PairError};
pub use renewal_error::CertificateError;
pub use secret::OwnSecret;
