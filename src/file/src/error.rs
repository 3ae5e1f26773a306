//! Why an operation on a share or an account failed.

use std::{fmt, sync::Arc};

use lazuli_azure::error::ArmError;
use lazuli_engine::single::AzureFailure;
use lazuli_model::{
    ArmIdError,
    fault::{Code, Effect, Fault},
    parameter::ParameterError,
};

/// A failed operation: what a caller may do about it, and a sentence for the reader. Cheap to clone, because all callers
/// that wait for one write get the same failure.
#[derive(Debug, Clone)]
pub struct ShareError {
    /// What a caller may do about it.
    pub fault: Fault,
    /// Whether a write may be in progress, or has left something.
    pub effect: Effect,
    message: String,
    source: Option<Arc<ArmError>>,
    /// The gRPC code, where it follows from what was asked and not from the fault.
    code: Option<Code>,
}

impl ShareError {
    /// A failure that no answer of Azure's stands behind.
    pub(crate) fn new(fault: Fault, message: impl Into<String>) -> Self {
        Self { fault, effect: Effect::None, message: message.into(), source: None, code: None }
    }

    /// A failure that Azure's answer explains.
    pub(crate) fn azure(message: impl Into<String>, source: ArmError) -> Self {
        Self {
            fault: source.fault.clone(),
            effect: source.effect,
            message: message.into(),
            source: Some(Arc::new(source)),
            code: None,
        }
    }

    /// What is asked cannot be done, whatever Azure holds.
    pub(crate) fn parameter(error: ParameterError) -> Self {
        let code = error.code();
        Self { code: Some(code), ..Self::new(Fault::Invalid, error.to_string()) }
    }

    /// Names that make no id of Azure's.
    pub(crate) fn no_id(error: ArmIdError) -> Self {
        Self { code: Some(Code::NotFound), ..Self::new(Fault::Invalid, error.to_string()) }
    }

    pub(crate) fn with_code(mut self, code: Code) -> Self {
        self.code = Some(code);
        self
    }

    pub(crate) fn with_effect(mut self, effect: Effect) -> Self {
        self.effect = effect;
        self
    }

    pub(crate) fn resorted(mut self, fault: Fault) -> Self {
        self.fault = fault;
        self
    }

    /// The gRPC code, where it follows from what was asked. Else the fault says it for each call.
    pub fn code(&self) -> Option<Code> {
        self.code
    }

    /// Azure's `error.code`; empty when Azure gave none.
    pub fn azure_code(&self) -> &str {
        self.source.as_ref().map_or("", |source| &source.code)
    }

    /// The action of Azure's role-based access control that the failed call needs.
    pub fn action(&self) -> Option<String> {
        let source = self.source.as_ref()?;
        lazuli_model::rbac::action(source.verb.as_str(), &source.resource)
    }
}

impl fmt::Display for ShareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for ShareError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

impl AzureFailure for ShareError {
    fn fault(&self) -> &Fault {
        &self.fault
    }

    fn effect(&self) -> Effect {
        self.effect
    }

    fn code(&self) -> &str {
        self.azure_code()
    }
}

/// Azure's own error, as a step sees it.
#[derive(Debug, Clone)]
pub(crate) struct Answer(pub(crate) ArmError);

impl AzureFailure for Answer {
    fn fault(&self) -> &Fault {
        &self.0.fault
    }

    fn effect(&self) -> Effect {
        self.0.effect
    }

    fn code(&self) -> &str {
        &self.0.code
    }
}

/// The failure that a step gives, in these words.
pub(crate) fn of_step(fault: Fault, effect: Effect, azure: Option<Answer>, message: String) -> ShareError {
    match azure {
        Some(Answer(error)) => ShareError::azure(message, error).resorted(fault),
        None => ShareError::new(fault, message),
    }
    .with_effect(effect)
}

/// A bug of this program has broken the work off.
pub(crate) fn broken_off(what: &impl fmt::Display) -> ShareError {
    ShareError::new(Fault::OutcomeUnknown, format!("the work on {what} was broken off")).with_effect(Effect::Possible)
}
