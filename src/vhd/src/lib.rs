//! Every decision about VHD blob disks, as pure functions over values: page blobs in storage accounts that virtual machines
//! without managed disks attach by address.
//!
//! | module | decides |
//! |---|---|
//! | [`life`] | what is sent next, and what is answered: the steps of a disk that is made, grows or is deleted |
//! | [`lease`] | whether a disk is attached, by its blob |
//! | [`uri`] | which blob an address names |
//! | [`class`] | whether a StorageClass asks for a blob disk, and for which one |
//! | [`accounts`] | in which storage account it is made, and which accounts are made |
//! | [`footer`] | the last 512 bytes of a fixed VHD |

pub mod accounts;
pub mod class;
pub mod footer;
pub mod lease;
pub mod life;
pub mod uri;
