//! The simulated API server against kubectl, and against what a real one answered.
#![allow(clippy::disallowed_methods, reason = "what programs do is measured from outside of them")]

#[cfg(test)]
mod client;
#[cfg(test)]
mod etcd;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod goaway;
#[cfg(test)]
mod kubectl;
#[cfg(test)]
mod pods;
#[cfg(test)]
mod program;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod reads;
#[cfg(test)]
mod releases;
#[cfg(test)]
mod service;
#[cfg(test)]
mod watches;
#[cfg(test)]
mod webhook;
#[cfg(test)]
mod writes;
