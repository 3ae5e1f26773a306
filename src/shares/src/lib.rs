//! Every decision about file shares and the storage accounts they are in, as pure functions over values.
//!
//! | module | decides |
//! |---|---|
//! | [`parameters`] | what a StorageClass asks for, and what is wrong with it |
//! | [`volume_id`] | what a volume id names |
//! | [`name`] | what shares are called |
//! | [`limits`] | nothing: what Azure allows |

pub mod limits;
pub mod name;
pub mod parameters;
pub mod volume_id;
