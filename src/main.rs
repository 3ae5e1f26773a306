//! The command line of Lazuli.
fn main() {}
