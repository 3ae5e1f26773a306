//! When a request goes to Azure, as pure functions over values: its limits of requests are shared by all who ask.
//!
//! | module | decides |
//! |---|---|
//! | [`permit`] | which request to Azure goes out next, and when |
//! | [`poll`] | when to ask a long-running operation how it is doing |
//! | [`read`] | which reads answer which questions, and when one list costs less than many single reads |

pub mod permit;
pub mod poll;
pub mod read;
