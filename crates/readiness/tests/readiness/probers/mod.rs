//! Tests of the probers. Time is a number here; nothing waits.

mod anything;
mod handover;
mod strangers;
mod told;
mod waiting;
mod world;
