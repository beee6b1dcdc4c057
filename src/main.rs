//! nodegate
fn main() {}
