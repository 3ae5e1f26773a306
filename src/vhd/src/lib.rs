//! Every decision about VHD blob disks, as pure functions over values: page blobs in storage accounts that virtual machines
//! without managed disks attach by address.
//!
//! | module | decides |
//! |---|---|
//! | [`class`] | whether a StorageClass asks for a blob disk, and for which one |
//! | [`accounts`] | in which storage account it is made, and which accounts are made |
//! | [`life`] | what is sent next, and what is answered: the steps of a disk that is made, grows or is deleted |
//! | [`attach`] | whether a machine may have it |
//! | [`PARAMETERS`] | which parameters a class may have |
//! | [`lease`] | whether it is attached, by its blob |
//! | [`disk`] | what a blob is as a disk on machines |
//! | [`shown`] | what people are shown of it |
//! | [`source`] | whether a managed disk may be imported from it now |
//! | [`import`] | what comes next of a managed disk that is made from one |
//! | [`footer`] | the last 512 bytes of a fixed VHD |
//! | [`work`] | the steps of disks and of their accounts, as tasks run them |

pub mod accounts;
pub mod attach;
pub mod class;
pub mod disk;
pub mod footer;
pub mod import;
pub mod lease;
pub mod life;
mod parameters;
pub mod shown;
pub mod source;
pub mod work;

pub use parameters::PARAMETERS;
