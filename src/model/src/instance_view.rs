//! What Azure shows of a machine that runs, or no longer does.

use crate::ProvisioningState;

/// The power state in a VM's instance view (source: the compute API's `PowerState/…` status codes).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerState {
    /// `stopped`: switched off, and still on its host.
    Stopped,
    /// `deallocated`: on no host.
    Deallocated,
    /// Any other, such as `running` or `stopping`, and one that this program does not know.
    Other,
}

/// What Azure's instance view says of a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InstanceView {
    /// Where its last operation is.
    pub provisioning_state: ProvisioningState,
    /// Whether it runs; `None` where Azure does not say.
    pub power: Option<PowerState>,
}

impl PowerState {
    /// Reads the code of a status; `None` for a status of something else.
    pub fn of_code(code: &str) -> Option<Self> {
        let (kind, state) = code.split_once('/')?;
        if !kind.eq_ignore_ascii_case("PowerState") {
            return None;
        }
        Some(match state.to_ascii_lowercase().as_str() {
            "stopped" => Self::Stopped,
            "deallocated" => Self::Deallocated,
            _ => Self::Other,
        })
    }
}
