//! The real gate as the webhook of a simulated API server.

#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]

#[cfg(test)]
mod burst;
#[cfg(test)]
mod certificates;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod hostile;
#[cfg(test)]
mod lab;
#[cfg(test)]
mod table;
