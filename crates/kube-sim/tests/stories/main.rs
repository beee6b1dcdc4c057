//! The simulated API server against kubectl, and against what a real one answered.

#[cfg(test)]
mod client;
#[cfg(test)]
mod etcd;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod kubectl;
#[cfg(test)]
mod reads;
#[cfg(test)]
mod watches;
#[cfg(test)]
mod writes;
