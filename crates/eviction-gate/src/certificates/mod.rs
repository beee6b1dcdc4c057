//! Renews the serving certificate: the gate's own in a Secret, or files from cert-manager.

mod issue;
mod keeper;
mod pair;
mod secret;
#[cfg(test)]
mod tests;

pub use issue::{Issued, issue};
pub(crate) use keeper::{Keeper, Source};
pub(crate) use secret::OwnSecret;
