//! Nodes, their machines and their routes, as pure functions over values.
//!
//! | module | decides |
//! |---|---|
//! | [`cloud_node`] | what a Node is told of its machine, and what becomes of it when the machine is stopped or gone |
//! | [`routing`] | which routes a route table needs for the Nodes, and which subnet it serves |
//! | [`vm_access`] | which machines get an SSH key, and by which extension |

pub mod cloud_node;
pub mod routing;
pub mod vm_access;
