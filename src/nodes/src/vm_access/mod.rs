//! An SSH key for the machines of a cluster, by Azure's VM access extension.
//!
//! The extension runs in the machine as root. It makes the user where it does not exist, lets the user become root by
//! sudo, and appends the key to the user's `authorized_keys`; keys that are there stay (source: the documentation of
//! `VMAccessForLinux` 1.5, where `remove_prior_keys` is off unless it is set). A machine has at most one extension of
//! this publisher and type, so its settings are those of the last use: a person who has used it under another name gives
//! their settings up, and [`Existing::is_foreign`] asks for consent.
//!
//! | file | holds |
//! |---|---|
//! | `key` | the public key and the user's name |
//! | this one | what becomes of each machine, and the body of the extension |

mod key;
#[cfg(test)]
mod tests;

use std::fmt;

pub use key::{PublicKey, PublicKeyError, User, UserError};
use lazuli_model::{
    ArmId, PowerState, ProvisioningState,
    json::{at, list, text},
    scale_set::{is_instance, scale_set},
};
use serde_json::{Value, json};

/// The publisher of the extension, its type and its version.
pub const PUBLISHER: &str = "Microsoft.OSTCExtensions";
/// See [`PUBLISHER`].
pub const TYPE: &str = "VMAccessForLinux";
/// See [`PUBLISHER`].
pub const VERSION: &str = "1.5";
/// The name under which this program makes the extension. An extension of this name is this program's own.
pub const NAME: &str = "lazuli-vm-access";

/// The operating system of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Linux.
    Linux,
    /// Windows, which the extension is not for.
    Windows,
}

/// The VM access extension that a machine has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Existing {
    /// Its name.
    pub name: String,
    /// Where its last operation is; `None` where Azure does not say.
    pub state: Option<ProvisioningState>,
}

impl Existing {
    /// Whether it was not made by this program.
    pub fn is_foreign(&self) -> bool {
        !self.name.eq_ignore_ascii_case(NAME)
    }
}

/// A machine, as far as the extension is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// The name that people know: that of the Node.
    pub name: String,
    /// Its id.
    pub id: ArmId,
    /// The name of the computer in it; `None` where Azure does not say.
    pub computer_name: Option<String>,
    /// Its region.
    pub location: String,
    /// Its operating system; `None` where Azure does not say.
    pub system: Option<System>,
    /// Whether it runs; `None` where Azure does not say.
    pub power: Option<PowerState>,
    /// Whether its owner lets extensions run.
    pub takes_extensions: bool,
    /// The VM access extension that it has.
    pub existing: Option<Existing>,
}

impl Machine {
    /// Reads the body of a VM or of an instance, with its instance view.
    pub fn read(name: &str, id: &ArmId, body: &Value) -> Self {
        let system = text(body, &["properties", "storageProfile", "osDisk", "osType"]);
        let allowed = at(body, &["properties", "osProfile", "allowExtensionOperations"]).and_then(Value::as_bool);
        let statuses = list(body, &["properties", "instanceView", "statuses"]);
        Self {
            name: name.to_owned(),
            id: id.clone(),
            computer_name: text(body, &["properties", "osProfile", "computerName"]).map(str::to_owned),
            location: text(body, &["location"]).unwrap_or_default().to_owned(),
            system: system.and_then(|word| {
                let known = [("linux", System::Linux), ("windows", System::Windows)];
                known.into_iter().find(|(name, _)| word.eq_ignore_ascii_case(name)).map(|(_, system)| system)
            }),
            power: statuses.iter().find_map(|status| PowerState::of_code(text(status, &["code"])?)),
            takes_extensions: allowed.unwrap_or(true),
            existing: existing(body),
        }
    }

    /// Whether Azure says that it is the machine of its name: the computer in it is called so, or the machine is. Azure calls
    /// an instance of a scale set `set_3`.
    fn is_called_as_named(&self) -> bool {
        let is_name = |name: &str| name.eq_ignore_ascii_case(&self.name);
        let own = match scale_set(&self.id) {
            Some(set) => format!("{}_{}", set.name(), self.id.name()),
            None => self.id.name().to_owned(),
        };
        self.computer_name.as_deref().is_some_and(is_name) || is_name(&own)
    }
}

/// The VM access extension of a machine: in its list of extensions, else in its instance view.
fn existing(body: &Value) -> Option<Existing> {
    let is_access = |publisher: Option<&str>, kind: Option<&str>| {
        publisher.is_some_and(|publisher| publisher.eq_ignore_ascii_case(PUBLISHER))
            && kind.is_some_and(|kind| kind.eq_ignore_ascii_case(TYPE))
    };
    let listed = list(body, &["resources"]).iter().find_map(|resource| {
        let property = |name| text(resource, &["properties", name]);
        let state = property("provisioningState").map(ProvisioningState::from_azure);
        let name = text(resource, &["name"])?.to_owned();
        is_access(property("publisher"), property("type")).then_some(Existing { name, state })
    });
    let viewed = || {
        list(body, &["properties", "instanceView", "extensions"]).iter().find_map(|view| {
            let (publisher, kind) = text(view, &["type"])?.rsplit_once('.')?;
            let name = text(view, &["name"])?.to_owned();
            is_access(Some(publisher), Some(kind)).then_some(Existing { name, state: None })
        })
    };
    listed.or_else(viewed)
}

/// Whether a foreign extension may be given new settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Foreign {
    /// It stays, and its machine is left out.
    Keep,
    /// Its settings are replaced.
    Replace,
}

/// What becomes of a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The extension is made.
    Add,
    /// The extension that this program made before gets new settings.
    Update {
        /// Whether it must run again although its settings may be the same, because it failed.
        again: bool,
    },
    /// The foreign extension of this name gets new settings.
    Replace {
        /// Its name.
        name: String,
    },
    /// The machine is left out.
    Skip(Skip),
}

/// Why a machine is left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skip {
    /// It runs Windows.
    Windows,
    /// It is in another subscription than the cluster's.
    OtherSubscription {
        /// Which.
        subscription: String,
    },
    /// The Node's provider id names it, and Azure says that the computer in it is called otherwise. kubelet may choose the
    /// provider id of its Node.
    OtherComputer {
        /// How, where Azure says it.
        name: Option<String>,
    },
    /// It is stopped, and an extension runs only in a machine that runs.
    Stopped,
    /// Its owner has turned extensions off.
    NoExtensions,
    /// It has an extension of this type that this program did not make.
    Foreign {
        /// Its name.
        name: String,
    },
    /// An operation on that extension is in flight.
    Busy {
        /// Its name.
        name: String,
    },
}

impl Skip {
    /// Whether the machine should have the key and does not get it. Windows machines have no use for it.
    pub fn is_shortfall(&self) -> bool {
        *self != Self::Windows
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Windows => f.write_str("it runs Windows"),
            Self::OtherSubscription { subscription } => write!(
                f,
                "the Node's provider id names a machine of subscription {subscription}, which is not the cluster's; see \
                 whether the Node is genuine"
            ),
            Self::OtherComputer { name } => {
                let name = name.as_deref().map_or_else(|| "otherwise".to_owned(), |name| format!("{name:?}"));
                write!(
                    f,
                    "the Node's provider id names a machine whose computer is called {name}; see whether the Node is genuine"
                )
            }
            Self::Stopped => f.write_str("it is stopped; start it and repeat the command"),
            Self::NoExtensions => {
                f.write_str("its osProfile.allowExtensionOperations is false; set it to true and repeat the command")
            }
            Self::Foreign { name } => write!(
                f,
                "it has the VM access extension {name}, which was not made by this program; --replace gives it new settings"
            ),
            Self::Busy { name } => {
                write!(f, "its extension {name} is being changed; repeat the command when that has ended")
            }
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add => write!(f, "add the extension {NAME}"),
            // Azure gives its settings back to nobody.
            Self::Update { again: false } => {
                write!(f, "send the key by the extension {NAME}, which is there; a user who has it keeps it")
            }
            Self::Update { again: true } => write!(f, "run the extension {NAME} again, which failed"),
            Self::Replace { name } => write!(f, "replace the settings of the extension {name}"),
            Self::Skip(why) => write!(f, "left out: {why}"),
        }
    }
}

/// What becomes of a machine of a cluster in this subscription.
pub fn plan(machine: &Machine, foreign: Foreign, subscription: &str) -> Step {
    if !machine.id.subscription().eq_ignore_ascii_case(subscription) {
        return Step::Skip(Skip::OtherSubscription { subscription: machine.id.subscription().to_owned() });
    }
    if !machine.is_called_as_named() {
        return Step::Skip(Skip::OtherComputer { name: machine.computer_name.clone() });
    }
    if machine.system == Some(System::Windows) {
        return Step::Skip(Skip::Windows);
    }
    if matches!(machine.power, Some(PowerState::Stopped | PowerState::Deallocated)) {
        return Step::Skip(Skip::Stopped);
    }
    if !machine.takes_extensions {
        return Step::Skip(Skip::NoExtensions);
    }
    let Some(existing) = &machine.existing else { return Step::Add };
    let name = existing.name.clone();
    if existing.state == Some(ProvisioningState::InProgress) {
        return Step::Skip(Skip::Busy { name });
    }
    match (existing.is_foreign(), foreign) {
        (true, Foreign::Keep) => Step::Skip(Skip::Foreign { name }),
        (true, Foreign::Replace) => Step::Replace { name },
        (false, _) => {
            let again = matches!(existing.state, Some(ProvisioningState::Failed | ProvisioningState::Canceled));
            Step::Update { again }
        }
    }
}

/// An extension to write.
#[derive(Debug, Clone, PartialEq)]
pub struct Extension {
    /// Its name.
    pub name: String,
    /// The body. Its protected settings name user and public key; Azure never shows them.
    pub body: Value,
}

/// The extension that a step writes; `None` for a machine that is left out. Azure runs an extension when its settings or
/// its tag change, so a repetition with the same key appends nothing. `run` tells one run of the program from another.
pub fn extension(machine: &Machine, step: &Step, user: &User, key: &PublicKey, run: &str) -> Option<Extension> {
    let (name, again) = match step {
        Step::Add => (NAME, false),
        Step::Update { again } => (machine.existing.as_ref().map_or(NAME, |existing| existing.name.as_str()), *again),
        Step::Replace { name } => (name.as_str(), false),
        Step::Skip(_) => return None,
    };
    let mut body = json!({"properties": {
        "publisher": PUBLISHER, "type": TYPE, "typeHandlerVersion": VERSION, "autoUpgradeMinorVersion": true,
        "settings": {},
        "protectedSettings": {"username": user.as_str(), "ssh_key": key.line()},
    }});
    if again {
        body["properties"]["forceUpdateTag"] = run.into();
    }
    // An extension of an instance is part of its scale set and takes no region.
    if !is_instance(&machine.id) {
        body["location"] = machine.location.as_str().into();
    }
    Some(Extension { name: name.to_owned(), body })
}
