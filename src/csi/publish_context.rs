//! What the controller and the node say to each other about a disk, beyond the keys of the Go driver.

/// The context key, in any letter case, by which a controller says that a disk was made from a snapshot, another disk
/// or an image. Such a disk is never formatted: if it looks blank, something is wrong with it. The Go driver's node
/// ignores it.
pub const SOURCE_KEY: &str = "sourceResourceId";
