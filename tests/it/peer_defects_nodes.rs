//! What the Azure cloud-controller-manager is known to get wrong with Nodes and routes, what the controllers here do
//! instead, and the tests that prove it. Services are in `peer_defects_services`.
//!
//! Sources: that manager's code as published (2026-08), and the threads of its users where a number is given.
//!
//! # Nodes
//!
//! | the Go manager | here | proved by |
//! |---|---|---|
//! | a Node is deleted on one answer, which a cache may give (#2156, kubernetes#93287) | two answers of Azure seconds apart, each with a control at 200, and a grace period | `a_machine_that_is_proved_gone_twice_takes_its_node_along` `a_node_is_deleted_only_by_two_proofs_a_grant_and_a_lease` `a_node_that_is_new_to_this_process_has_a_grace_period` |
//! | a missing right or group may count as a missing VM | it proves nothing | `what_is_not_proved_deletes_nothing` `a_vm_that_may_not_be_read_is_never_taken_for_gone` |
//! | all Nodes whose VMs look gone are deleted at once | more than 10 or a tenth: one in 10 s, after another read | `when_many_vms_are_gone_at_once_nodes_go_one_in_ten_seconds` `up_to_the_limit_all_go_at_once_and_above_it_one_in_ten_seconds_reads_again` |
//! | the taint out-of-service follows a cached power state | a read of its own, an operation at rest, and a Node that is not Ready | `a_stopped_machine_is_tainted_and_the_taints_go_when_it_runs_and_the_node_is_ready` `a_machine_that_is_on_its_way_is_not_out_of_service` |
//! | a person's taint out-of-service is taken for its own | one with a value stays | `a_persons_out_of_service_taint_stays` |
//! | run centrally, a Node gets one IPv4 address and no IPv6 (#3213) | the addresses of both families | `a_new_node_is_told_of_its_machine_by_two_writes_and_unavailable_until_its_route_exists` |
//! | addresses have two owners and change back and forth (#3401) | a Node that is initialised keeps its addresses and labels | `nothing_is_written_of_a_node_as_the_go_manager_left_it` |
//!
//! # Routes
//!
//! | the Go manager | here | proved by |
//! |---|---|---|
//! | the routes of `agent-10` go with those of `agent-1` | names are compared whole | `deletion_is_by_exact_name_and_only_of_what_the_cluster_routes` `the_node_of_a_name_is_exact` |
//! | a write that failed counts as success, and the Node as reachable | the table is read again, and the condition says what it shows | `a_new_node_is_initialised_routed_and_unavailable_until_then` `an_unreadable_table_changes_nothing_and_a_proven_absence_does` |
//! | the limit of 400 routes is met by an error of the whole write | the Node is refused in a sentence, and the others are served | `a_full_table_refuses_the_node_by_name_and_a_shared_range_the_second_node` |
//! | a table that it makes serves no subnet | it is given to the subnet of the configuration, if that has none | `a_subnet_without_a_table_gets_ours_and_one_with_another_keeps_it` |
//! | a route that another hand made for the range is deleted, or met by an error | it counts as present where it leads to the Node, and is named where it does not | `a_route_of_another_name_that_does_the_same_is_present` `a_route_of_the_node_is_led_elsewhere_and_another_ones_is_not` |
//! | each batch waits for 30 s, and for 30 s more (#527) | one write a burst, at once | `a_new_node_is_initialised_routed_and_unavailable_until_then` |
