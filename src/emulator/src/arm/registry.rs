//! Every resource provider. A new one is added here, a new type to the list of its own.

use super::descriptor::Types;
use super::{authorization, compute, network, resources, storage};

pub(crate) static TYPES: Types = Types {
    providers: &[
        &authorization::PROVIDER,
        &compute::PROVIDER,
        &network::PROVIDER,
        &resources::PROVIDER,
        &storage::PROVIDER,
    ],
    hidden: &[
        // The types of the engine's tests.
        #[cfg(test)]
        &crate::tests::engine::PROVIDER,
    ],
};
