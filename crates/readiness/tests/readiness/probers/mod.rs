//! Who has been told, told as stories: minutes pass as fast as they are counted.

mod anything;
mod handover;
mod strangers;
mod told;
mod waiting;
mod world;
