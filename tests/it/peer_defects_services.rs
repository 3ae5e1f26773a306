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
//!
//! # Security groups
//!
//! | the Go manager | here | proved by |
//! |---|---|---|
//! | drops every destination that it does not know, of another cluster too | a destination goes when a Service gives it up | `destinations_that_no_service_has_given_up_stay` |
//! | a user's rule named `k8s-azure-lb…` is collected | it stays unless it lists an address that a Service gives up | `destinations_that_no_service_has_given_up_stay` `rules_of_users_are_left_alone_also_when_they_name_our_addresses` |
//! | rules from before 1.30 are replaced by ones of another name | they count as present | `rules_with_names_from_before_1_30_count_as_present_and_end_with_their_service` |
//!
//! # Public IPs
//!
//! | the Go manager | here | proved by |
//! |---|---|---|
//! | changed IP tags delete the public IP and make another: the address changes | an event, and the address stays | `changed_ip_tags_are_an_event_and_the_address_stays` |
//! | a public IP that cannot be deleted yet is left behind for ever | it is waited for | `the_last_service_in_the_tag_takes_the_public_ip_once_no_frontend_refers_to_it` |
//! | a tag that is full is an error of Azure | the next Service is refused in a sentence | `a_tag_that_is_full_refuses_the_next_service` |
//! | a removed label leaves its owner's tag, which keeps others from setting one | the tag goes with the label | `the_dns_label_belongs_to_one_service` |
