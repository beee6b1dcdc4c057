//! Tests of the probers. Time is a number here; nothing waits.

mod acknowledgement;
mod anything;
mod handover;
mod scenario;
mod strangers;
