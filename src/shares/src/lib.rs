//! Every decision about file shares and the storage accounts they are in, as pure functions over values.
//!
//! | module | decides |
//! |---|---|
//! | [`account`] | in which account a share is made |
//! | [`parameters`] | what a StorageClass asks for, and what is wrong with it |
//! | [`share`] | the share of a claim, what one that exists means for it, and how it grows |
//! | [`adoption`] | which requests have a share though no PersistentVolume shows it yet |
//! | [`deletion`] | what DeleteVolume may delete |
//! | [`mount`] | how a node mounts and publishes a share |
//! | [`network`] | what an account needs in the network: service endpoints, a private endpoint and its name |
//! | [`secret`] | the Secrets in which keys are, and which node may have a key |
//! | [`volume_id`] | what a volume id names |
//! | [`name`] | what shares are called |
//! | [`work`] | what is sent next, and what is answered: the steps of shares and accounts |
//! | [`limits`] | nothing: what Azure allows |

pub mod account;
pub mod adoption;
pub mod deletion;
pub mod limits;
pub mod mount;
pub mod name;
pub mod network;
pub mod parameters;
pub mod secret;
pub mod share;
pub mod volume_id;
pub mod work;
