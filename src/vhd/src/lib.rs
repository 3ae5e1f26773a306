//! Every decision about VHD blob disks, as pure functions over values: page blobs in storage accounts that virtual machines
//! without managed disks attach by address.
//!
//! | module | decides |
//! |---|---|
//! | [`uri`] | which blob an address names |
//! | [`class`] | whether a StorageClass asks for a blob disk, and for which one |
//! | [`footer`] | the last 512 bytes of a fixed VHD |

pub mod class;
pub mod footer;
pub mod uri;
