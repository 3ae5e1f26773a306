//! What the Azure cloud-controller-manager is known to get wrong with Services of type LoadBalancer, what the planners here
//! do instead, and the tests that prove it. Disks are in `peer_defects`.
//!
//! Sources: that manager's code as published (2026-08), and the threads of its users where a number is given.
//!
//! # Reading a Service
//!
//! | the Go manager | here | proved by |
//! |---|---|---|
//! | everything but `true` is false, silently | a mistake that names annotation, value and what is allowed | `a_mistake_names_annotation_value_and_what_is_allowed` |
//! | `internal: "True"` is public for the load balancer and internal for the security group | internal; a Service that is live stays as it is, with a warning, until the annotation changes | `a_service_changes_its_side_by_no_spelling_of_true_and_by_no_mistake` |
//! | a flag with space around it is false | true; a Service that is live stays as it is until the annotation changes | `a_flag_that_cannot_be_read_is_what_azure_shows` |
//! | an unknown probe protocol is TCP, malformed pairs are dropped | a mistake; ignored with a warning on a live Service | `a_mistake_in_any_annotation_of_a_served_service_writes_nothing` |
//! | a range that is none closes the Service without a word (events are sent only while it is deleted) | a mistake; on a live Service it stays closed, with a warning | `a_range_that_is_none_closes_a_service_new_or_not` |
//! | an empty or unreadable `loadBalancerIP` counts as IPv6 | a mistake of the field | `a_mistake_in_a_field_names_the_field` |
//! | a node port of 0 reaches Azure | a mistake that says which port needs one and why | `a_mistake_in_a_field_names_the_field` |
//! | a misspelt annotation does nothing | a warning that names the one that was meant | `a_misspelt_key_names_the_one_that_was_meant` `what_has_no_effect_or_is_misspelt_is_a_warning` |
//! | one mistake at a time, each after a back-off | all of them at once | `all_mistakes_of_a_service_are_told_at_once` |
//! | any address may be an additional public IP: that of the cluster's DNS, of a node or of another Service | public ones that nothing of the cluster has, within `--allowed-external-addresses`; what the status has stays, with an event | `an_address_that_is_not_a_services_to_name_is_refused_whatever_its_class` `with_allowed_ranges_a_service_names_no_address_outside_of_them` `an_address_of_the_cluster_is_taken_from_no_service_and_stays_where_the_status_has_it` |
//!
//! # Load balancers
//!
//! | the Go manager | here | proved by |
//! |---|---|---|
//! | a write per Service, one Service at a time (#5909) | one write for a burst | `a_burst_is_one_write` |
//! | two writers overwrite each other's frontends (kubernetes#84052) | one plan for all Services; what no Service gave up stays | `no_wants_write_nothing_and_delete_nothing` |
//! | what it does not model is lost when a rule changes | edits of the body that was read | `what_the_body_holds_beside_is_kept_when_a_rule_changes` |
//! | a shared frontend gets another address under its other Services | refused, and the Service that shares it is named | `a_shared_frontend_does_not_get_another_address` |
//! | a node without an address of the family may join a pool as an empty one | it is no member | `a_node_without_an_address_of_the_family_is_left_out` |
//! | a wrong list of nodes empties all but the last member of a pool | a tenth or ten leave with one write, and the last one never | `a_tenth_of_a_pool_or_ten_leave_with_one_write_and_the_last_one_never` |
//! | a write of a scale set's model restarts instances that are not upgraded yet (kubernetes#71594) | the model is held meanwhile, with an event | `a_model_is_held_while_a_write_would_upgrade_instances_that_lag` `a_model_waits_while_instances_lag_behind_it` |
//! | it and the disk driver overwrite each other's changes of an instance | the network profile alone is written, on the version that was read | `of_an_instance_and_of_a_model_only_the_nics_are_written` `instances_join_by_a_write_and_new_ones_by_the_model` |
//! | it learns from Azure's refusal that a scale set keeps a load balancer, and parses the sentence (cloud-provider-azure#2510 for a set scaled to none) | the model leaves, then the instances, then the load balancer | `instances_and_their_model_join_together_and_the_model_leaves_first` `a_set_without_nodes_leaves_with_the_last_service` |
//! | a pool changes its kind with the configuration | it keeps its kind | `a_pool_keeps_its_kind` |
//! | a limit of Azure is an error of the whole write | the newcomer is refused in a sentence, and the others are served | `limits_of_azure_refuse_the_newcomer_in_a_sentence` `a_load_balancer_takes_as_many_rules_as_azure_allows_and_not_one_more` |
//! | a burst goes to the load balancer that had the fewest rules before | planned rules count | `a_burst_spreads_since_planned_rules_count` |
//! | puts a private link service before the frontend of another Service | before the Service's own frontends alone; one that is there stays, with an event | `none_is_made_or_changed_before_the_frontend_of_another_service` `a_private_link_service_is_the_services_own_before_its_own_frontend_alone` |
//! | a Service of any namespace shares the address that it names, in silence | the same with an event, or with `--share-addresses=namespace` only where the owner agrees; what is there stays | `addresses_that_are_not_to_be_shared_take_no_new_rule_of_another_namespace` `a_guest_stays_refused_in_a_new_process_while_the_owner_of_the_address_has_a_mistake` `a_guest_that_is_refused_stays_so_for_a_new_leader_to_which_the_owner_says_nothing` |
//!
//! # Security groups
//!
//! | the Go manager | here | proved by |
//! |---|---|---|
//! | drops every destination that it does not know, of another cluster too | a destination goes when a Service gives it up | `destinations_that_no_service_has_given_up_stay` |
//! | a user's rule named `k8s-azure-lb…` is collected | it stays unless it lists an address that a Service gives up | `destinations_that_no_service_has_given_up_stay` `rules_of_users_are_left_alone_also_when_they_name_our_addresses` |
//! | rules from before 1.30 are replaced by ones of another name | they count as present | `rules_with_names_from_before_1_30_count_as_present_and_end_with_their_service` |
//! | one Service without floating IP and with deny-all denies all traffic to every node | it is refused with the reason; a denial that is there stays, and none is made at a node | `a_denial_that_is_there_stays_at_nodes_and_none_is_made` `no_service_denies_anything_at_the_address_of_a_node` |
//! | a Service that shares an address opens ports there that no load-balancing rule has, and denies all other sources | neither, unless the owner of the address names the namespace; what is there stays | `a_service_of_another_namespace_admits_at_an_address_only_what_is_balanced_and_denies_nothing` `a_wrong_range_of_a_guest_denies_nothing_at_the_owners_address_and_keeps_none_of_its_rules` `what_a_guest_has_at_an_address_stays_when_the_owner_no_longer_agrees` `a_port_without_a_rule_is_open_at_anothers_address_once_its_owner_agrees` |
//!
//! # Public IPs
//!
//! | the Go manager | here | proved by |
//! |---|---|---|
//! | changed IP tags delete the public IP and make another: the address changes | an event, and the address stays | `changed_ip_tags_are_an_event_and_the_address_stays` |
//! | a public IP that cannot be deleted yet is left behind for ever | it is waited for | `the_last_service_in_the_tag_takes_the_public_ip_once_no_frontend_refers_to_it` |
//! | a tag that is full is an error of Azure | the next Service is refused in a sentence | `a_tag_that_is_full_refuses_the_next_service` |
//! | a removed label leaves its owner's tag, which keeps others from setting one | the tag goes with the label | `the_dns_label_belongs_to_one_service` |
//! | the DNS label of a public IP that a machine or a gateway uses is changed before the write of the load balancer fails | label and tags stay, with an event | `a_public_ip_that_something_else_uses_keeps_its_label_and_its_tags` |
//! | takes a public IP of any resource group | of those in `--allowed-service-resource-groups`, where it is given; what a Service has stays, with an event | `a_public_ip_of_a_resource_group_that_services_may_not_name_is_kept_and_not_taken` `a_service_keeps_a_public_ip_of_a_group_that_is_not_allowed_and_is_told_and_a_new_one_gets_none` `none_is_made_in_a_resource_group_that_services_may_not_name` `services_may_name_the_groups_of_the_configuration_and_those_that_are_allowed` |
