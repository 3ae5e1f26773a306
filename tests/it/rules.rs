//! Rules that the disk driver keeps so that no data is lost and no sidecar is misled, and rules that the cloud controllers
//! keep so that no Service is cut off or opened, each with the tests that hold it.
//! What the Go driver gets wrong is in `peer_defects`.
//!
//! `scripts/test rules` runs the tests that these tables name, wherever they are, and fails for a row whose tests are
//! gone, ignored, skipped or failing. So a row of three columns is a claim that has been tried, and what has no test
//! stands in a table of two.
//!
//! # Where data can be lost
//!
//! | rule | how it is kept | held by |
//! |---|---|---|
//! | a LUN that an attachment of the node names goes to no other disk | it stays empty, or waits for its own disk | `disk_a_lun_that_an_attachment_names_goes_to_no_other_disk` `disk_a_disk_that_vanished_comes_back_to_its_own_lun_and_no_other_takes_it_meanwhile` `no_lun_is_given_twice_nor_when_occupied_nor_when_anothers` |
//! | nor after a restart that knows no attachment yet | no LUN is given until they are known; what leaves may leave | `the_snapshot_is_cold_until_both_resources_are_listed` `disk_while_attachments_are_not_known_no_lun_is_given_and_disks_may_leave` |
//! | a LUN that two attachments name belongs to neither | both disks get other LUNs | `disk_a_lun_that_two_attachments_name_is_given_to_neither_of_their_disks` |
//! | a node asks the metadata five times a second at most | answers are shared, a refresh is never answered with older news | `however_many_ask_at_most_five_requests_go_out_in_a_second` `a_refresh_is_never_answered_with_what_was_asked_before_it` |
//! | a device is used when LUN, size and disk id agree | another id is waited out, then `UNAVAILABLE`; never a mount | `another_disk_at_the_lun_is_never_touched` `another_disk_at_the_lun_is_neither_mounted_nor_formatted` `metadata_that_still_shows_the_disk_before_is_waited_out` `a_disk_smaller_than_its_volume_is_not_the_disk` |
//! | the offset between NVMe namespace ids and LUNs is proved, or an operator's word holds while the metadata bears it out | else `UNAVAILABLE`; in silence nothing is formatted by a word | `where_nothing_proves_the_offset_no_disk_is_at_any_lun` `where_root_lies_outweighs_where_kubelet_s_folder_lies` `metadata_bears_out_no_offset_but_the_right_one` `a_given_offset_formats_a_disk_only_where_every_disk_of_the_metadata_is_found_by_it` `in_silence_a_given_offset_finds_a_volume_by_its_content_alone_whatever_the_operator_tolerates` `blank_disks_of_one_size_that_are_shifted_by_one_are_never_formatted` |
//! | an NVMe disk has the size that the metadata says, and comes from a controller of remote disks | a larger one is used for its own content alone; local disks are never used | `a_namespace_that_is_larger_than_the_metadata_says_is_not_formatted` `a_namespace_of_another_size_than_the_metadata_says_is_not_the_disk` `a_namespace_of_another_size_than_the_disk_is_neither_mounted_nor_formatted_nor_handed_out` `a_controller_of_another_model_has_no_data_disks` `a_local_disk_and_one_without_a_known_controller_are_never_found` |
//! | silence of the metadata proves nothing of a volume that the node never had, nor does an answer without the LUN | `UNAVAILABLE` until it confirms the disk, unless the operator lets the LUN decide | `silent_metadata_makes_a_volume_wait_that_this_node_has_never_had` `metadata_that_answers_without_the_lun_confirms_nothing_and_a_first_use_waits` `an_operator_can_let_the_lun_decide_while_the_metadata_does_not_say_which_disk_is_there` |
//! | what differs from the record is worse than what is unknown | time turns no mismatch into a match, and silence forgets none | `a_device_is_used_only_where_a_witness_says_that_it_is_the_volume_s_disk` `time_alone_never_turns_a_mismatch_into_a_match` `what_is_refused_while_the_metadata_answers_is_refused_when_it_falls_silent` `another_disk_at_the_lun_is_not_forgotten_when_the_metadata_falls_silent` `another_disk_at_the_lun_outlives_silence_absence_and_calls_until_the_volume_is_named_there` `time_that_passes_in_silence_confirms_no_device` `a_file_system_unlike_the_one_that_the_volume_had_is_never_mounted_by_waiting` `a_raw_volume_is_not_known_by_a_device_number_that_another_disk_has_now` `a_raw_volume_whose_disk_has_left_is_unstaged_while_another_disk_with_its_number_is_in_use` |
//! | a mkfs that was killed is told from foreign data | an intent block of this very volume, written and synced first | `ext4_recovers_from_a_kill_at_twenty_points_of_mkfs` `xfs_recovers_from_a_kill_at_twenty_points_of_mkfs` `btrfs_recovers_from_a_kill_at_twenty_points_of_mkfs` `another_volumes_unfinished_format_is_refused` `an_unfinished_format_is_not_taken_over_from_a_program_that_claims_nothing` `a_node_killed_inside_mkfs_is_followed_by_one_that_formats_again_and_only_then` |
//! | blank has three witnesses | both ends zero, no signature, no partition table | `blank_needs_all_three_witnesses` `foreign_data_is_never_formatted` `an_ext4_whose_first_superblock_was_lost_is_not_blank` |
//! | what should have content is not formatted | copies, restored disks and read-only volumes | `what_should_have_content_is_never_formatted` `disk_made_from_another_says_so_in_its_publish_context` |
//! | a disk leaves when no process holds it | unstaging opens it exclusively, or finds it gone; nothing is unmounted lazily | `an_open_file_keeps_the_disk_attached` `a_file_open_in_another_mount_namespace_keeps_the_disk_until_its_holder_ends` `an_orphaned_mkfs_keeps_the_disk_from_being_released` `a_disk_that_was_pulled_while_mounted_is_unstaged_once_it_is_gone` |
//! | two controllers at once lose nothing | writes commute or are conditional, and others' are waited for | `disk_leadership_that_moves_while_a_write_is_in_flight_loses_and_doubles_nothing` `disk_two_leaders_at_once_publish_and_unpublish_on_one_node_without_a_lost_update` `disk_two_leaders_that_send_one_disk_to_two_nodes_end_with_it_on_one` |
//! | a kill between any two writes is made good | the next process reads what is there | `disk_a_controller_killed_at_any_write_is_succeeded_by_one_that_ends_in_the_same_state` `a_controller_killed_after_any_request_of_any_call_leaves_one_disk_at_the_right_lun` `a_kill_at_any_moment_of_staging_costs_neither_the_volume_nor_its_data` |
//! | the registration survives the other driver's end | the socket is made anew when kubelet forgot the driver | `the_end_of_another_registrar_of_the_same_driver_makes_the_socket_anew` `a_removed_socket_is_made_anew_and_counts_as_unregistered` |
//! | volumes that the Go driver staged go on | they are published, grown and unstaged without a record of ours | `a_volume_staged_by_another_driver_is_taken_over` `go_and_lazuli_make_the_same_ext4` |
//! | of two Nodes with one provider id the one with the VM's own name is served | the other gets no disk, and a detach for it waits while the disk may be there for the first; where neither has the name, both wait for a person | `disk_of_two_nodes_with_one_provider_id_the_one_with_the_name_of_the_vm_is_served` `disk_of_two_nodes_with_one_provider_id_neither_gets_a_disk_nor_an_ok_until_one_is_gone` `of_several_nodes_that_name_a_machine_it_is_the_only_one_that_has_its_name` `a_disk_leaves_a_machine_for_a_node_that_it_is_not_only_where_no_other_one_may_use_it_there` `a_machine_that_two_nodes_name_is_left_only_where_the_node_named_another_one` |
//! | a detach is about every machine that a Node of its name named | these are remembered beside lists and when the Node is created again; the disk leaves them, or waits while another Node may use it there | `disk_a_disk_leaves_the_machine_that_a_node_was_before_it_was_created_again_on_another` `a_disk_leaves_the_machine_that_a_node_of_the_name_named_before` `a_machine_that_a_node_of_a_name_named_once_is_remembered_whatever_follows` |
//! | no detach is answered OK while an attach may begin that Azure does not show yet | a minute after this process may have become the leader, unless the attachment names a LUN | `disk_a_detach_is_not_ok_while_the_leader_before_may_have_an_attach_under_way_that_azure_does_not_show` `disk_a_detach_without_a_reason_to_suspect_an_attach_is_answered_at_once` `an_attach_is_suspected_where_no_attachment_records_that_it_has_ended` |
//! | a write that was delayed rests on a new look | creation, expansion and deletion are read again before they are sent again, and not sent for no caller | `disk_a_creation_that_azure_delayed_takes_no_disk_that_another_replica_made_meanwhile` `disk_an_expansion_that_azure_delayed_leaves_the_disk_that_another_claim_got_meanwhile` `disk_a_deletion_that_azure_delayed_leaves_the_disk_that_another_claim_got_meanwhile` `disk_a_deletion_whose_caller_left_while_it_waited_for_another_writer_is_not_sent` |
//! | gone is proved, never assumed | two answers seconds apart, a control after them, all since the request, and the disk does not contradict | `a_machine_is_gone_after_two_reads_apart_and_a_control_since` `an_instance_that_is_not_called_missing_is_gone_only_by_two_lists_or_reads_of_its_set_since_the_request` `disk_a_vm_is_gone_after_two_404s_seconds_apart_between_which_its_group_was_listed` `disk_what_is_unknown_is_never_taken_for_gone` `disk_without_the_groups_list_a_404_proves_nothing` `disk_a_vm_of_another_group_that_holds_the_disk_is_not_gone` |
//! | a request is answered only by a read that was sent after it came, and by a list only where a list may | the planner asks for the read that it lacks | `no_request_is_resolved_by_a_read_that_it_may_not_rest_on` `every_falsified_evidence_is_noticed` `a_publish_that_arrives_during_a_list_is_not_answered_by_it` `an_unpublish_that_arrives_during_a_list_is_not_answered_by_it` `a_new_leader_sends_no_attach_of_what_is_attached` `a_new_leader_sends_no_attach_of_what_is_attached_and_not_recorded` `what_a_single_read_showed_a_moment_ago_is_not_attached_again_by_a_list_that_lacks_it` `requests_that_arrive_while_others_are_under_way_get_no_answer_that_is_untrue` `the_worker_of_a_vm_answers_only_what_a_step_says` `an_unpublish_from_a_node_that_is_deleted_succeeds_only_when_its_machine_has_not_the_disk` |
//! | a disk leaves by force only a VM that does not run | opt-in, after an ordinary detach failed, by an instance view that is read right before | `disk_a_detach_that_failed_is_repeated_by_force_from_a_stopped_vm_and_a_person_is_told` `disk_without_the_option_a_stopped_vm_and_a_failed_detach_nothing_is_forced` `a_vm_that_may_run_is_never_forced` `disk_a_detach_that_was_not_sent_is_followed_by_an_ordinary_one` |
//! | a claim gets only a disk that was made for it | a tag names the request; a disk of the Go driver must name the volume and be free; a class sets no such tag | `disk_a_disk_that_was_not_made_for_the_request_is_never_handed_out` `disk_a_disk_that_the_go_driver_made_for_the_request_is_taken_over` `a_class_sets_no_tag_of_the_driver` `a_disk_without_our_tag_is_taken_only_if_it_names_the_persistent_volume_and_is_free` |
//! | a volume's mount reaches nothing but its own disk | options that open another device, run a program or stop the node are refused before a disk is made and when it is staged | `options_that_reach_beyond_the_volume_are_refused` `an_ext_file_system_turns_read_only_on_an_error_and_no_option_reaches_beyond_the_volume` `mount_flags_that_no_stage_would_take_make_no_disk` |
//! | two copies of one file system do not meet | btrfs is refused beside its twin, xfs is mounted without looking at its UUID | `a_copy_of_a_btrfs_in_use_is_refused_even_when_it_is_the_right_disk` `nouuid_is_added_once` |
//! | a creation or deletion that Azure delayed or refused is decided anew, and is not sent once its caller has left | the disk is read after each pause; a disk that another request got meanwhile stays as it is | `disk_a_creation_whose_caller_left_during_azures_pause_is_not_sent` `disk_a_creation_that_azure_delayed_takes_no_disk_that_another_replica_made_meanwhile` `disk_a_deletion_whose_caller_left_during_azures_pause_is_not_sent` `disk_a_deletion_that_azure_delayed_leaves_the_disk_that_another_claim_got_meanwhile` `disk_a_deletion_that_azure_delayed_leaves_a_disk_that_was_attached_meanwhile` `a_deletion_is_sent_again_only_for_the_disk_that_it_was_for_and_that_no_vm_holds` |
//! | a disk that a person attached by hand stays attached | for a deletion a disk is detached only where this process attached it, saw no detach since, and Azure's time stamp is no younger; else `FAILED_PRECONDITION` with node, command and event | `disk_a_disk_whose_volume_is_deleted_stays_where_this_process_has_not_attached_it` `disk_a_disk_whose_volume_is_deleted_stays_where_another_hand_has_attached_it_again` `disk_a_disk_that_another_hand_attaches_again_while_the_cluster_is_asked_stays` `disk_a_disk_that_another_hand_attaches_again_while_its_detach_waits_stays` `for_a_deletion_only_what_this_process_attached_and_has_not_detached_since_is_detached` `an_attach_that_azure_stamped_later_than_the_answer_that_this_process_saw_is_another_hands` `disk_with_detach_unused_disks_off_a_person_detaches_what_blocks_an_attach_or_a_deletion` |
//! | a disk that begins to be used while Kubernetes is asked is not detached | attachments are read before the Node and the Node before its Lease; before the detach is sent the attachments count again | `the_attachments_are_read_before_the_node_and_the_node_before_its_lease` `disk_an_attachment_that_begins_while_kubernetes_is_asked_is_left_alone` `disk_a_disk_that_a_volume_attachment_names_while_its_detach_waits_stays` `a_detach_is_sent_only_for_the_attachment_that_was_found_dangling` `disk_a_disk_whose_volume_is_deleted_stays_where_a_node_uses_it_or_may_use_it` |
//! | a detach from a Node that is deleted is OK only where no machine that may be the Node's has the disk | the disk is read singly; a machine that no Node names is not left with an OK | `a_holder_that_may_be_the_deleted_nodes_machine_is_never_left_with_an_ok` `disk_a_detach_from_a_deleted_node_is_not_ok_while_a_machine_that_no_node_names_has_the_disk` `disk_a_detach_from_a_deleted_node_whose_name_another_vm_has_leaves_the_vm_that_has_the_disk` `disk_a_node_that_registers_again_during_its_detach_is_not_answered_ok_by_the_guess` `disk_a_machine_with_the_vm_name_of_another_node_that_has_its_own_machine_is_not_left_with_ok` `an_unpublish_from_a_node_that_is_deleted_during_an_attach_leaves_no_disk_there` `the_machine_of_a_deleted_node_is_known_only_where_nothing_can_have_happened_since` |
//! | a VM that is no Node of the cluster gets no disk | a node id counts only where a Node has it as its name or its providerID | `a_node_id_counts_only_where_a_node_has_it_as_its_provider_id_or_its_name` `disk_a_vm_that_is_no_node_of_the_cluster_gets_no_disk_by_its_name` `disk_an_instance_that_is_no_node_takes_no_disk` |
//! | a disk of a resource group that is not allowed is not attached | the allowed groups hold at creation and at publish; a disk that is attached already stays, with an event | `disk_a_disk_of_a_resource_group_that_is_not_allowed_is_not_attached` `a_resource_group_that_is_not_allowed_holds_for_every_source` |
//! | a failed detach is a reason for force only if it was sent, and only for the attachment that it was of | a read or write that did not reach Azure is no failed detach; a younger time stamp is another attachment | `what_was_not_sent_has_not_failed` `the_failed_detach_of_an_earlier_attachment_is_no_reason_for_force` `disk_a_disk_that_another_hand_has_attached_again_since_its_detach_failed_is_detached_without_force_first` |
//! | an operator may accept a disk that differs from the record, once, and never against what the metadata says now | an empty file that the refusal names; it is removed when the disk is used | `an_operator_accepts_a_disk_by_the_file_that_the_refusal_names_and_for_this_once` `what_an_operator_accepts_against_the_metadata_names_what_it_said_and_never_holds_against_an_answer` `an_operator_s_word_is_for_what_speaks_against_the_disk_and_never_against_an_answer` `only_a_file_is_a_word_and_it_is_used_up` |
//! | what the metadata said of another disk at the LUN outlives the process | it is kept in a file of the node until the metadata names the volume there | `a_contradiction_is_of_one_volume_at_one_lun_and_outlives_the_process` `another_disk_at_the_lun_is_not_forgotten_when_the_metadata_falls_silent` |
//! | what a disk was made from is told at each publish, and is never taken from a list | the disk is read singly, unless it stayed attached since, as the version of its VM shows | `no_node_is_told_what_another_disk_of_the_name_was_made_from` `what_a_disk_was_made_from_is_not_taken_from_a_list` `disk_made_from_another_says_so_in_its_publish_context` |
//! | a process that has a device open is found whatever it is called, also between fork and exec | its standard input is compared with the device, and of a copy of this program all that it has open | `a_process_is_found_by_its_open_device_whatever_it_is_called_and_until_it_ends` `a_copy_of_this_program_that_has_the_device_open_anywhere_is_found` `an_unfinished_format_is_not_taken_over_from_a_program_that_claims_nothing` |
//! | a program that reads an untrusted disk reaches nothing but that disk | the capabilities that it needs, no new privileges, a filter of system calls and a mount namespace of its own | `a_program_has_the_capabilities_that_it_needs_and_can_gain_no_other` `no_system_call_reaches_beyond_a_program_s_files_whatever_its_capabilities` `a_program_sees_its_own_device_and_can_write_nothing_else` `every_program_that_reads_a_disk_is_started_with_what_it_needs_and_no_more` |
//!
//! # Codes and sidecars
//!
//! | rule | how it is kept | held by |
//! |---|---|---|
//! | no final code while a disk may be in the making | external-provisioner would forget it | `no_fault_is_final_while_a_disk_may_be_in_the_making` `disk_a_claim_that_is_deleted_while_its_creation_is_throttled_leaves_no_disk` `disk_each_refusal_of_a_write_becomes_the_code_of_its_rpc` |
//! | throttling is never `RESOURCE_EXHAUSTED` | the scheduler would choose another node | `throttling_never_makes_the_provisioner_choose_another_node` `disk_azures_pause_is_law_and_a_long_one_is_told_at_once` |
//! | before `RESOURCE_EXHAUSTED` the half-made disk is deleted | or the next try in another zone would meet it | `disk_a_quota_that_is_used_up_makes_the_scheduler_choose_again_and_leaves_nothing` `disk_a_late_failure_comes_with_http_200_and_is_told_by_its_code` |
//! | what grows only while detached is a `FAILED_PRECONDITION` | external-resizer reads it so | `disk_what_grows_only_while_detached_is_a_failed_precondition_until_it_is` `disk_a_refusal_to_grow_live_is_a_failed_precondition` |
//! | volumes and nodes are listed as Kubernetes spells them | external-attacher compares bytes | `disk_a_volume_is_spelt_as_its_persistent_volume_spells_it_whatever_requests_said` `disk_listed_volumes_and_nodes_are_spelt_as_kubernetes_spells_them` `disk_a_list_of_five_thousand_attachments_is_what_kubernetes_recorded` |
//! | an incomplete list is an error | what is missing counts as detached | `disk_a_list_of_which_a_page_fails_is_an_error` `disk_without_its_own_group_there_is_no_list` `an_incomplete_list_is_an_error` |
//! | a list is of one moment, whole, and no call of it is too large | its pages come from one snapshot; a page has at most 4 MiB; a token of a snapshot that is gone is `ABORTED` | `disk_the_pages_of_a_list_tell_what_was_so_at_the_first_and_read_nothing_more` `disk_a_token_of_a_list_that_was_read_to_its_end_or_by_another_replica_is_aborted` `disk_a_page_stays_below_the_limit_of_grpc_however_long_names_and_tags_are` `those_who_ask_while_a_list_is_read_share_the_next_one` |
//! | a list has every volume that Kubernetes names, in whatever group | the own group and those of all handles are listed | `disk_only_the_groups_that_a_volume_is_in_are_listed` `the_handles_of_the_drivers_volumes_are_known_also_of_those_that_nothing_attaches` |
//! | publishing what is attached costs one read | in any spelling; and one of the disk where this process does not know it, or another has written its VM | `disk_publishing_what_is_attached_costs_no_write_and_one_read_in_any_spelling` |
//! | ten calls at a time and fifteen seconds' patience are enough | external-attacher's defaults; a repetition joins its write | `disk_a_sidecar_with_ten_workers_and_little_patience_gets_everything_attached_in_few_writes` |
//! | sidecars have many workers, much time and the leases of the Go driver | the chart's arguments; lease names follow from the driver's name and the namespace | `sidecars_have_many_workers_much_time_and_one_leader` `a_role_has_no_wildcard_and_a_secret_is_read_by_name` |
//! | what no repetition cures is told to a person, once | an event of the claim or the Node when the reason changes, few for each object, never from the call itself | `disk_a_claim_shows_why_its_disk_cannot_be_made` `disk_trouble_with_a_vm_is_shown_on_its_node_and_what_heals_by_itself_is_not_shown` `an_event_is_written_when_its_state_changes_and_each_half_hour_while_it_stays` `an_object_gets_few_events` `an_api_server_that_hangs_slows_no_caller_and_what_does_not_fit_is_counted` `a_refused_format_is_told_on_the_claim_that_the_volume_context_names_else_on_the_node` |
//! | capacity is not claimed | Azure cannot tell it, and the claim blocks scheduling | `audit_what_azure_cannot_answer_is_not_claimed` |
//! | a node's answer to kubelet is quick, and right or none | memory stands in for a silent metadata service | `a_metadata_service_that_hangs_keeps_neither_the_registration_nor_a_call_waiting` `a_node_that_never_knew_its_zone_says_so_instead_of_guessing` |
//! | a node's limit leaves out disks that are not Kubernetes' | by table, option and what the metadata shows | `the_node_tells_its_zone_and_its_limit_without_foreign_disks` `the_limit_leaves_out_reserved_slots_and_foreign_disks` `an_override_counts_as_it_is` |
//! | a size newer than the table is known all the same | the controller asks Azure and publishes it in a ConfigMap that the nodes have as a volume | `what_the_controller_publishes_of_vm_sizes_is_what_its_next_process_reads` `what_is_mounted_of_newer_sizes_may_be_absent_come_change_and_go` `what_is_published_of_newer_sizes_comes_on_top_of_the_table` |
//! | zones are written in lower case by everybody | kubelet refuses a second value | `a_zonal_node_has_both_keys_in_lower_case` `a_region_is_written_in_lower_case_whatever_its_configuration_says` `a_node_without_a_zone_leaves_kubernetes_key_alone` |
//! | a credential goes where its owner sends it | a Secret that changes the endpoints brings its own; a private one gets no token for Azure's services | `a_secret_that_changes_where_the_credential_goes_brings_its_own` `a_private_resource_manager_gets_no_token_for_azures_own_services` |
//! | a node holds no credentials of Azure | it asks its own metadata and no other service | `the_node_plugin_is_given_no_credentials` `the_node_plugin_knows_of_azure_what_its_metadata_tells` |
//! | a resource group that this process may not read is no empty group | only a group that Azure says does not exist may be missing from a list, and never the cluster's own | `only_another_group_that_does_not_exist_may_be_missing` `disk_volumes_of_another_subscription_are_listed_and_while_it_is_closed_to_us_there_is_no_list` |
//! | a disk that Kubernetes has attached to a node is not foreign there | the Node's `volumesAttached` is read before the limit is told, and from Kubernetes 1.34 on kubelet asks again each minute | `a_disk_that_kubernetes_has_attached_is_not_foreign_before_it_is_staged` `what_is_attached_is_told_by_the_handles_of_the_driver_s_own_volumes` `kubelet_asks_for_the_limit_of_disks_again_where_kubernetes_knows_how` |
//! | no caller waits for work that broke off | its callers get an error that no sidecar takes for final, and the next request starts anew | `a_group_whose_task_is_broken_off_fails_its_callers_and_serves_the_next` `a_panic_of_the_work_on_a_vm_answers_all_who_wait_and_the_next_request_starts_anew` |
//! | a file sends no credential of a Secret anywhere else | Microsoft's own endpoints, those that the Secret names and those of `--trusted-endpoint` | `a_file_redirects_no_credential_of_the_secret_unless_an_argument_names_the_endpoint` `a_trusted_endpoint_is_scheme_host_and_port_alone` |
//! | a client certificate signs for the authority that is asked, and its replacement counts without a restart | the file is read for each exchange | `a_certificate_signs_for_the_authority_that_is_asked_and_is_read_for_each_exchange` `an_assertion_names_client_authority_time_and_certificate_and_is_signed_by_its_key` `a_client_certificate_lets_the_driver_in_and_its_replacement_on_disk_counts_without_a_restart` |
//! | cloud controllers in Pods of their own have rights of their own | account, Secret and ports are not the driver's, and SECURITY.md names each right | `cloud_controllers_in_pods_of_their_own_share_no_account_secret_or_port_with_the_driver` `security_md_names_every_right_that_the_chart_grants_and_no_other` |
//! | Prometheus' token goes only to a certificate that is verified | the chart names the authority and the name of the server | `metrics_that_other_machines_can_reach_are_for_those_whom_the_cluster_lets_get_them` |
//!
//! # Writes
//!
//! | rule | how it is kept | held by |
//! |---|---|---|
//! | where Azure's behaviour is unknown, every behaviour must do | each switch of the emulator in each position | `audit_a_volumes_life_by_the_action_ends_well_in_every_position_of_the_switches` `audit_a_volumes_life_by_the_whole_list_ends_well_in_every_position_of_the_switches` `audit_azure_stack_a_volumes_life_ends_well_in_every_position_of_the_switches` |
//! | a list has pages, and another client may share the request limits | lives of many volumes by pages of 50, and two controllers on one bucket | `audit_many_volumes_lives_end_well_when_their_lists_have_several_pages` `audit_two_controllers_on_one_bucket_share_it_and_lose_no_update` |
//! | a role or an Azure without the action is served | the whole list, conditional, from then on | `disk_a_role_without_the_action_writes_the_whole_list_under_its_etag_from_then_on` `a_missing_permission_falls_back_once_and_then_is_an_error` |
//! | a bad member costs few writes | it is named by the error, or found by halving | `one_failing_member_is_found_in_log2_n_writes` `disk_a_member_in_the_wrong_zone_is_found_by_halving_wherever_it_is` |
//! | without ETags a lost update is loud | read before and after; what vanished is told | `a_disk_that_left_with_a_write_that_did_not_name_it_is_told` `disk_a_node_shows_that_a_data_disk_is_gone_that_no_write_named` `a_whole_list_without_an_etag_is_never_sent_twice` `disk_azure_stack_what_others_attached_keeps_its_lun` |
//! | a disk write names data disks and nothing else of a machine | others write its network | `the_whole_list_goes_with_location_and_nothing_else_under_if_match` `the_action_says_only_what_changes` |
//! | a lost answer has one effect | the machine's state decides, not the answer | `disk_a_lost_answer_never_has_two_effects` `the_lost_answer_of_a_post_is_never_answered_with_another_post` |
//! | ids are the same in any letter case, and are sent on as they came | no extra write, nothing dropped | `disk_a_whole_life_in_nasty_casing_costs_no_extra_write_and_drops_nothing` `ids_that_differ_only_in_case_are_the_same_id` `letter_case_makes_no_write` |
//! | a class that asks for a blob disk and gets none writes no blob | refused, or told that the disk is a managed one | `a_switch_and_the_machines_decide_whether_a_blob_disk_is_made` `a_storage_account_is_refused_of_a_managed_disk` `every_kind_makes_a_managed_disk_and_a_blob_kind_says_so` |
//! | a blob disk of a class of the in-tree provisioner, which the API server refuses | refused before anything is made | `a_class_of_the_in_tree_provisioner_is_refused_where_it_would_get_a_blob_disk` |
//! | a write of an instance leaves its size as it is | the hardware profile that was just read goes with it, of disks and of pools | `disk_an_instance_with_a_size_of_its_own_keeps_it_when_its_disks_are_written` `an_instance_with_a_size_of_its_own_keeps_it_when_it_joins_a_pool` |
//! | a disk of a cluster in an edge zone is made there | the extended location goes with the creation; half of one is a warning | `a_disk_of_a_cluster_in_an_edge_zone_is_made_in_that_edge_zone` `an_edge_zone_has_a_name_and_a_type_or_a_warning` |
//!
//! # Admission
//!
//! | rule | how it is kept | held by |
//! |---|---|---|
//! | a webhook keeps nothing from working | no request waits for it longer than two seconds, and what is not known is admitted with a warning | `the_webhooks_keep_nothing_from_working_and_look_at_nothing_but_volumes_and_claims_that_grow` `a_volume_whose_disk_azure_does_not_tell_is_admitted_in_time_with_a_warning` |
//! | volumes of others are theirs | only those of `disk.csi.azure.com` and `azureDisk` are changed | `volumes_of_others_and_placeholders_are_admitted_as_they_are` |
//! | a label that is there stays, and none is empty | labels are added, never replaced | `labels_that_are_there_are_kept_also_the_older_ones` `only_labels_and_affinity_are_added_none_empty_and_none_that_is_no_label` `a_disk_without_a_zone_gives_its_volume_the_region_alone` |
//! | a fault domain is no zone, and nodes without a zone keep their disks | such a volume has no label of a zone | `a_volume_for_nodes_without_a_zone_gets_no_label_of_a_zone` `what_the_provisioner_wrote_tells_the_zone_and_stays_and_azure_is_not_asked` |
//! | a translated page blob is taken, with its address, and can be used | it gets back the source that it was translated from | `a_translated_volume_of_a_page_blob_gets_back_the_source_that_it_was_translated_from` `a_new_volume_gets_region_and_zone_of_its_disk_over_tls_and_without_the_lease` |
//! | a resize is refused early only when the driver would refuse it | both ask one function | `what_the_driver_would_grow_is_not_refused` `a_claim_that_azure_cannot_grow_as_asked_is_refused_with_a_sentence` |
//! | reviews of a hostile client cost few reads of Azure and delay no attach | 50 disks at once and two a second are read, all others are admitted with a warning | `ten_thousand_reviews_of_other_disks_cost_few_reads_and_delay_no_attach` `over_any_time_no_more_is_taken_than_the_start_and_the_time_give` `what_is_taken_comes_back_one_by_one_and_never_more_than_at_the_start` |
//!
//! # Services
//!
//! | rule | how it is kept | held by |
//! |---|---|---|
//! | between any two writes an unchanged Service is reached, and no source is let in that no spec admits | the order of the writes; what Azure may have in force of a running write counts too | `services_of_each_kind_come_and_go` `a_service_changes_its_side_and_back` `ports_and_ranges_change` `nodes_join_and_leave` `a_node_moves_between_load_balancers` `random_services_are_reached_by_those_they_admit_and_by_no_others` |
//! | no address is given up while a security rule admits it, and none keeps its rules | the records of what is to go outlive the security rules | `a_public_service_moves_to_an_address_of_the_user_and_back` `an_internal_service_changes_its_address` `services_share_an_address_and_the_first_of_them_goes` `a_service_deleted_after_any_write_leaves_nothing_behind` |
//! | a kill between any two writes of Services is made good | the next process reads what is there | `cloud_controllers_killed_after_any_write_are_succeeded_by_a_process_that_ends_in_the_same_state` |
//! | a leader that was frozen writes nothing once another one leads | no write starts without enough lease, and a lost lease ends the process | `a_frozen_leader_writes_nothing_once_another_replica_leads` `the_process_fails_when_another_replica_has_its_lease` |
//! | an access list admits nobody by mistake | an item that is wrong denies the rest; a list is never dropped for being empty | `an_access_list_admits_and_denies_as_the_go_manager_or_says_why_not` `no_malformed_list_lets_the_internet_in` |
//! | a typing error changes no side of a served Service | the value is read from what Azure shows | `a_typing_error_changes_no_side_and_holds_up_nothing_else_whichever_process_reads_it` |
//! | no Service denies anything at a Node, or takes an address of the cluster | such a rule is not made; what is there stays | `no_service_denies_anything_at_the_address_of_a_node` `an_address_of_the_cluster_is_taken_from_no_service_and_stays_where_the_status_has_it` |
//! | a Service that goes leaves nothing that it owns, whichever process meets it | what it may own is found before it is said to be gone | `a_service_is_gone_only_when_every_place_that_it_names_has_been_read` |
//! | what a policy refuses to one Service delays no other | the requester is found by halving and pauses alone | `a_service_that_a_policy_refuses_for_an_hour_delays_none_of_fifty_others` |
//! | an empty list of Nodes or Services changes nothing | it is taken for a mistake of what answers, until an object is listed | `an_empty_list_of_nodes_removes_no_route` |
//! | a load balancer that the operator has made stays, with its pools and their members | what the Service made goes; a last frontend stays with its address until another comes, with an event | `the_operators_load_balancer_and_its_pools_stay_and_its_last_frontend_until_another_comes` `the_operators_load_balancer_stays_with_its_frontend_pool_and_members` `the_last_frontend_of_a_pre_configured_load_balancer_stays_until_another_comes` `a_load_balancer_with_a_pool_of_others_keeps_its_last_frontend` |
//! | a public IP or private link service of another owner stays | in a resource group that the Service does not name, only the Service's uid in the name tells that it is its own | `in_a_group_that_the_service_does_not_name_a_public_ip_is_its_own_only_by_its_uid` `a_public_ip_of_another_cluster_is_never_its_own` `a_private_link_service_goes_with_its_service_where_the_service_names_the_group_or_it_bears_the_uid` |
//! | a Service that a process meets first as deleting leaves nothing in the resource groups that it names | groups of annotations, of the configuration and of prefixes are listed before the finalizer goes | `a_service_met_first_as_deleting_leaves_no_public_ip_in_the_group_that_it_names` `a_service_met_first_as_deleting_leaves_no_private_link_service_in_the_group_that_it_names` `every_group_that_a_service_the_configuration_or_a_prefix_names_is_listed_once` `an_annotation_that_went_with_the_process_hides_no_public_ip` |
//! | a resource group that cannot be read holds up only the Services that name it | their owners are told after a minute | `a_group_that_cannot_be_read_holds_up_only_services_that_name_it` `a_group_that_cannot_be_read_holds_up_only_the_service_that_names_it` `a_group_that_cannot_be_read_keeps_the_finalizer_and_the_owner_is_told_after_a_minute` `a_place_that_cannot_be_read_holds_up_only_services_that_name_it_now` |
//! | the NIC of a Node is a member, in whatever resource group it is | it is found by the id that its machine names | `the_primary_nic_of_a_machine_is_found_by_its_id_in_any_group` |
//! | what waits for longer than a minute says so, with the object | an event, once | `what_is_waited_for_longer_than_a_minute_is_reported_with_its_object` `a_first_backend_that_does_not_come_is_reported` `the_last_service_that_waits_for_a_set_that_lags_says_so_and_goes_when_nothing_lags` |
//! | a deletion ends although others use what the Service had, or no Node is left | the frontend and the public IP that others use stay, and an event names them | `a_public_ip_that_an_outbound_rule_of_others_uses_stays_and_the_service_goes` `a_service_is_deleted_while_the_cluster_has_no_node` |
//! | a take-over removes and opens nothing that the operator has not accepted | what is removed, replaced or admitted in addition waits for the hash of the plan that was shown | `a_take_over_that_would_remove_something_waits_for_the_operator` `a_rule_that_admits_more_where_a_service_is_reached_waits_at_a_take_over` `only_a_whole_plan_without_removals_or_the_accepted_one_begins_a_take_over` `a_plan_is_accepted_by_its_hash_and_a_plain_flag_says_how` |
//! | a second take-over waits as the first did | the mark on the Lease ends with the leadership of another controller | `a_take_over_after_a_rollback_to_the_go_manager_waits_again` `a_mark_ends_with_the_leadership_of_another_controller` `a_mark_goes_from_one_leadership_to_the_next_and_is_void_when_another_controller_led_in_between` |
//! | a dry run names the Services that would be refused, and why | they are read as the controllers read them | `a_dry_run_says_which_services_it_would_refuse_and_why` |
//! | a mistake of one Service keeps its own rules and opens nothing at an address of another | only rules at the Service's own ports stay | `a_mistake_of_one_service_keeps_its_own_rules_and_none_that_another_service_gives_up` `a_service_that_is_refused_at_an_address_has_opened_nothing_there` `a_frontend_that_stayed_makes_no_typing_error_of_a_new_service_public` |
//! | a port that is given up while no process runs is closed | a rule that no known Service asks for goes once all Services of the address are known | `a_port_without_a_load_balancing_rule_that_is_dropped_while_no_process_runs_is_closed` `a_rule_that_no_known_service_asks_for_stays_while_a_service_of_the_address_is_not_known` `a_rule_that_no_service_of_this_cluster_asks_for_stays_where_another_cluster_is_reached` |
//! | a refused requester is tried again, alone and in its turn | it pauses by itself, and what Azure says of missing rights is told to all | `who_was_denied_once_is_written_alone_when_the_others_are_served` `a_requester_that_is_refused_again_and_again_holds_up_nobody` `who_was_denied_has_its_turn_after_half_a_minute_though_another_always_asks_for_more` `what_one_member_can_cause_is_bisected_and_what_the_identity_lacks_is_not` |
//! | two Services whose local pools have one name do not share it | the second is refused; two that Azure has already stay | `a_second_service_whose_local_pool_has_the_same_name_is_refused` |
//! | a load balancer of another SKU serves on and takes no new Service | the new one is refused with what to do | `a_load_balancer_of_another_sku_serves_on_and_takes_no_new_service` |
//! | a Service changes label, tags and IP tags of its own public IP alone | the first of those that share it sets them, and no annotation sets a tag that says whose it is | `before_a_frontend_has_a_public_ip_its_maker_or_the_first_in_its_tag_sets_label_and_tags` `a_guest_does_not_change_the_ip_tags_which_would_replace_the_address` `no_annotation_sets_a_tag_that_says_whose_a_public_ip_is` |
//! | scale sets are listed where the machines are | in the subscription of the machines, not in that of the network | `scale_sets_are_listed_in_the_subscription_of_the_machines` |
//! | a network of another tenant is refused at the start | volumes do without it and warn | `the_cloud_controllers_refuse_a_network_of_another_tenant_and_volumes_do_without` |
//! | a large Service, or a client that names many subscriptions, costs little memory | only what is in use is decoded, up to a length; pages shrink; what nobody uses is dropped | `only_annotations_in_use_are_kept_and_only_so_many_bytes_of_them` `of_labels_and_of_the_specification_only_what_is_in_use_is_kept_and_no_more_than_azure_takes` `pages_of_large_objects_are_short_and_those_of_small_ones_grow` `subscriptions_that_are_asked_once_leave_nothing_behind` |
//!
//! # Nodes and routes
//!
//! | rule | how it is kept | held by |
//! |---|---|---|
//! | a Node's pod range diverts no traffic of others | no route outside the cluster's ranges, in that of Services or over another Node's; what exists stays, with an event | `a_range_that_would_divert_the_traffic_of_others_gets_no_route` `of_two_nodes_the_one_with_a_route_keeps_it_and_otherwise_the_older_gets_one` `a_write_adds_only_ranges_that_divert_no_traffic` `a_node_that_takes_the_range_of_another_gets_no_route_and_an_event` `a_route_that_exists_stays_and_is_named` `a_route_that_stays_though_it_would_not_be_added_is_reported` |
//! | a machine is gone by its own answer, and the control may be of any resource group | two answers, and a machine that answers after them; a resource group that is not found proves nothing and gets an event | `gone_needs_the_machines_own_answer_and_a_control_that_answers_after_it` `the_nodes_of_a_group_that_was_deleted_whole_are_proved_gone_by_a_machine_of_another_group` `an_instance_is_gone_with_its_scale_set_where_a_machine_of_another_group_answers` `a_resource_group_that_is_not_found_proves_nothing` `the_nodes_of_a_group_without_machines_go_and_that_of_a_missing_group_stays_with_an_event` |
//! | the addresses of a Node follow its machine | one list a scope every five minutes and at once after a boot; a change is written only after a read of the machine alone | `addresses_follow_their_machines_by_one_list_a_scope_and_at_once_after_a_boot` `an_added_address_is_written_after_a_read_of_the_machine_alone` `a_node_that_boots_anew_is_read_at_once_and_its_route_follows` `a_read_that_was_sent_before_the_boot_says_nothing_of_it` `the_frequency_is_spelled_as_gos` |
//! | labels of before Kubernetes 1.17 are written unless the operator says otherwise | a flag, as the Go manager's chart spells it | `the_labels_of_before_1_17_are_left_out_where_the_operator_says_so` `what_the_go_chart_says_of_pod_ranges_and_labels_is_taken` |
//! | a Node that lacks its pod range says so | an event after a minute, once | `a_node_that_is_without_an_expected_pod_range_for_a_minute_is_reported_once` |
//! | an SSH key is added only to machines that are the Nodes' | a providerID alone is no proof: the computer's name must be the Node's, and the subscription the cluster's | `a_machine_that_only_a_provider_id_gives_to_the_node_gets_no_key` |
//!
//! # Clock, client and judge
//!
//! | rule | how it is kept | held by |
//! |---|---|---|
//! | a credential that this build cannot use stops the start | and says why | `a_credential_that_cannot_work_stops_the_start_and_says_why` `a_credential_that_cannot_work_says_so` |
//! | paused time is exact | everything in one thread; children run by the real clock | `disk_the_same_seed_twice_gives_the_same_call_log` `a_paused_clock_does_not_kill_a_child_at_once` `in_process_and_over_tcp_the_same_calls_are_made_at_the_same_times` |
//! | who judges does not know who decided | leaks and doubles are counted from the emulator's dump | `the_judge_of_the_disk_suites_does_not_know_the_planner` `the_judge_of_services_does_not_know_the_planner` `the_manifests_keep_to_the_table` |
//! | arguments of the Go charts start the subcommand that takes their place | each has a sentence in the help; a value that it does not take ends the start | `every_argument_of_the_go_charts_starts_the_subcommand_that_takes_its_place` `a_value_that_an_argument_does_not_take_ends_the_start_and_says_what_is_allowed` `help_has_a_sentence_for_each_argument_and_the_short_help_has_none` `a_number_says_what_to_log_unless_words_say_it` |
//! | an API server that does not answer is named by its address | in the error, and the doctor asks Azure all the same | `an_api_server_that_does_not_answer_is_named_by_its_address` `an_api_server_that_does_not_answer_is_named_and_azure_is_asked_all_the_same` |
//! | text of Azure and of users breaks no line of a text log | line ends are written as two characters | `text_of_others_breaks_no_line` |
//! | a page of another site reaches no plane of the emulator | the host that a request names must be an address of this machine or a name that was given | `a_request_over_a_connection_that_names_a_host_of_another_site_reaches_no_plane` `the_planes_answer_to_every_address_and_to_no_name_that_can_be_pointed_here` |
//! | names of others bring no line into what Samba reads, and no file of others goes with the shares | what is no name of Azure's is not served; a folder with other files is refused | `no_name_brings_a_line_into_what_samba_reads` `a_root_that_samba_would_read_in_its_own_way_is_refused` `a_root_with_files_of_others_is_refused_and_one_of_an_earlier_run_is_taken` |
//! | the README's commands work when they are pasted as a whole | a test runs them from the README | `the_commands_to_run_it_by_hand_work_when_they_are_pasted_as_a_whole` |
//! | so do a Service's in the README and the examples of the emulator's page | a test runs them from the pages | `the_same_for_a_service_works_when_it_is_pasted` `the_examples_of_the_emulators_page_work_when_they_are_pasted_in_their_order` |
//! | the reference names all that the program knows, and nothing else | parser, registration and page share their tables | `the_reference_pages_are_made_of_the_programs_own_tables` `every_parameter_of_the_table_does_what_its_row_says` `the_table_has_the_keys_that_are_read_and_no_others` `every_key_of_an_object_that_the_program_names_is_explained_and_no_other` `every_metric_is_registered_by_its_row` |
//!
//! # Kept by nothing yet
//!
//! | rule | why |
//! |---|---|
//! | no write starts with less of a lease left than it may take | the leases are the sidecars' own and this process sees none of them; conditional and commuting writes carry the safety alone |
//! | the image resolves names | no test of this table; the tier `image` asks a name server from a container |
//! | fsck and mkfs have a memory limit of their own | they share the container's, to which the chart gives none |
//! | a copy of ext4 or xfs gets a UUID of its own | clones and restored volumes are not made yet; a copy made by others is mounted as it is |
//! | breaking a rule by hand makes a suite fail | done by hand; `disk_rig` says what was broken and what failed |

use std::{
    fs,
    path::{Path, PathBuf},
};

use clap::Parser as _;
use lazuli::cli::Cli;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap()
}

/// Every Rust source below a folder.
fn sources_below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources_below(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// The tier `rules` runs them; this tells within seconds that one was renamed.
#[test]
fn every_test_that_a_table_names_exists() {
    let sources: String =
        ["src", "tests"].iter().flat_map(|folder| sources_below(&root().join(folder))).map(read).collect();
    let mut named = 0;
    for table in ["rules.rs", "peer_defects.rs", "peer_defects_nodes.rs", "peer_defects_services.rs"] {
        let table = read(root().join("tests/it").join(table));
        let rows = table.lines().filter_map(|line| line.strip_prefix("//! |")?.trim_end().strip_suffix('|'));
        let rows = rows.filter(|row| row.matches('|').count() == 2);
        for tests in rows.filter_map(|row| row.rsplit('|').next()) {
            for name in tests.split('`').skip(1).step_by(2) {
                assert!(sources.contains(&format!("fn {name}(")), "no test has the name {name}");
                named += 1;
            }
        }
    }
    assert!(named > 100, "the reader finds nothing");
}

#[test]
fn the_judge_of_the_disk_suites_does_not_know_the_planner() {
    let source = fs::read_to_string(root().join("tests/it/disk_rig.rs")).unwrap();
    let code: Vec<&str> = source.lines().filter(|line| !line.trim().starts_with("//")).collect();
    assert!(code.iter().any(|line| line.contains("lazuli_emulator")));
    for decides in [
        "model",
        "quota",
        "engine",
        "volume",
        "vhd",
        "staging",
        "storage",
        "services",
        "balancing",
        "nodes",
        "diagnosis",
    ] {
        let imported = format!("lazuli_{decides}");
        assert!(!code.iter().any(|line| line.contains(&imported)), "the judge imports {imported}, which it judges");
    }
}

#[test]
fn the_judge_of_services_does_not_know_the_planner() {
    for file in ["service_reach.rs", "service_judge.rs"] {
        let source = fs::read_to_string(root().join("tests/it").join(file)).unwrap();
        let own: Vec<&str> = source.split("lazuli_").skip(1).collect();
        assert!(own.iter().any(|rest| rest.starts_with("emulator::")), "{file}: the reader finds nothing");
        assert!(own.iter().all(|rest| rest.starts_with("emulator::")), "{file}: the judge imports what it judges");
    }
}

#[test]
fn the_node_plugin_is_given_no_credentials() {
    let help = |command| Cli::try_parse_from(["lazuli", command, "--help"]).unwrap_err().to_string();
    // With its value: the Go driver's --cloud-config-secret-name is accepted from its chart's list, and read by nothing.
    let option = "--cloud-config <";
    assert!(help("csi-controller").contains(option), "{option} has another name now");
    assert!(!help("csi-node").contains(option), "a node is given {option}");
}

#[test]
fn the_node_plugin_knows_of_azure_what_its_metadata_tells() {
    let mut sources = sources_below(&root().join("src/csi/src/node"));
    sources.extend(["src/csi/src/node.rs", "src/cli/csi_node.rs"].map(|path| root().join(path)));
    let mut names = 0;
    let is_test = |path: &Path| path.strip_prefix(root()).unwrap().to_string_lossy().contains("tests");
    for path in sources.iter().filter(|path| !is_test(path)) {
        let source = fs::read_to_string(path).unwrap();
        for (at, _) in source.match_indices("lazuli_azure") {
            let named: String = source[at..].chars().take_while(|c| *c != ';').filter(|c| !c.is_whitespace()).collect();
            let harmless =
                ["lazuli_azure::imds::", "lazuli_azure::{imds::{Imds,Instance,InterfaceAddress},transport::"];
            assert!(harmless.iter().any(|start| named.starts_with(start)), "{}: {named}", path.display());
            names += 1;
        }
    }
    assert!(names >= 4, "the reader finds nothing");
}
