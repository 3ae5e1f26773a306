//! What azuredisk-csi-driver is known to get wrong with managed disks, what this driver does instead, and the tests that
//! prove it. The project's own rules are in `rules`, which says how the tests of these tables are run.
//!
//! Sources: that driver's code as published (2026-08), and the threads of its users where a number is given.
//!
//! # Parameters
//!
//! | the Go driver | here | proved by |
//! |---|---|---|
//! | two aliases of the disk type: one wins at random | refused when they differ | `both_sku_aliases_with_different_values_are_refused` |
//! | keys that differ only in case: one wins at random | refused | `two_keys_that_differ_only_in_case_are_refused` `a_context_may_say_the_same_twice_but_not_two_things` |
//! | performance of a disk that has none of its own: internal error | `INVALID_ARGUMENT` | `operations_and_throughput_are_for_disks_that_have_their_own` `audit_a_users_mistake_is_invalid_and_costs_azure_nothing` |
//! | its range is not looked at | refused with the range | `operations_and_throughput_stay_in_what_azure_takes` |
//! | a sector size that is none is sent | 512 or 4096 | `a_logical_sector_has_512_or_4096_bytes` |
//! | an encryption set that is no id: internal error | `INVALID_ARGUMENT` | `a_wrong_encryption_set_is_the_users_mistake` |
//! | an encryption type without a set: internal error | `INVALID_ARGUMENT` | `an_encryption_type_without_a_set_is_the_users_mistake` |
//! | private access without its disk access, or the reverse: internal error | `INVALID_ARGUMENT` | `private_access_and_its_disk_access_come_together_or_are_refused` |
//! | another subscription without a group: internal error | `INVALID_ARGUMENT` | `another_subscription_without_a_group_is_the_users_mistake` |
//! | a region or group that does not exist: internal error, or not found | `INVALID_ARGUMENT` in Azure's words | `disk_a_place_that_is_nowhere_is_the_users_mistake_and_is_named` `disk_a_volume_whose_group_was_deleted_is_deleted` |
//! | a user's mistake is retried for ever | one sentence with parameter, value and what is allowed; the code is final | `a_refusal_is_one_sentence_with_parameter_value_and_what_is_allowed` `a_users_mistake_is_never_a_retried_code` |
//! | a disk name that Azure refuses becomes a new random one on every try | refused; of a request's own name the same one every time | `an_invalid_disk_name_parameter_is_refused_instead_of_replaced_at_random` `audit_a_request_name_that_azure_refuses_is_one_disk_however_often_it_is_tried` |
//! | the file system is looked at by mkfs | refused before a disk is made | `a_filesystem_that_linux_cannot_make_is_refused_before_a_disk_is_made` |
//! | caching of an ultra or shared disk is not looked at | refused; a static volume's is left out | `a_disk_that_azure_never_caches_takes_no_caching_mode` `azure_caches_no_large_no_shared_and_no_fast_disk` |
//! | a kind that means blob disks is swallowed | a managed disk all the same, and a warning says so | `every_kind_makes_a_managed_disk_and_a_blob_kind_says_so` |
//! | performance plus enlarges the disk in silence | it says so, and keeps to the limit | `performance_plus_raises_the_size_and_says_so` |
//! | values that mean nothing for bursting are ignored | a warning; bursting where there is none is refused | `bursting_needs_a_premium_disk_of_more_than_512_gib` |
//! | the attach delay of one volume becomes everybody's, in a data race | accepted and not used: there is no delay | `audit_the_attach_delay_of_one_volume_delays_neither_it_nor_another` |
//! | a user agent builds a client, and signs in, per volume | accepted; one client, one token | `disk_a_class_with_a_user_agent_of_its_own_signs_in_no_second_time` |
//! | the translation library's own parameter is refused | accepted | `what_is_only_there_for_compatibility_is_accepted_and_kept` |
//!
//! # Create, delete, list
//!
//! | the Go driver | here | proved by |
//! |---|---|---|
//! | a disk of that name and another size is taken | `ALREADY_EXISTS` with both values | `audit_the_size_in_an_answer_is_that_of_the_disk_whether_made_found_or_grown` `every_difference_is_named_with_both_values` `one_disk_is_never_handed_to_two_volumes` |
//! | an existing disk of the name is taken, of whatever owner; a class may set the tags that say so | taken only if it was made for this very request; such tags of a class are left out | `disk_a_disk_that_was_not_made_for_the_request_is_never_handed_out` `a_class_sets_no_tag_of_the_driver` |
//! | the answer may lack the size | it is always that of the disk | `audit_the_size_in_an_answer_is_that_of_the_disk_whether_made_found_or_grown` |
//! | a size that cannot be made is an invalid argument | `OUT_OF_RANGE` | `a_size_that_cannot_be_made_is_out_of_range` `a_limit_between_two_gib_is_not_exceeded_by_rounding` |
//! | a throttled creation whose claim is deleted leaks its disk | no final code while a disk may be in the making | `disk_a_claim_that_is_deleted_while_its_creation_is_throttled_leaves_no_disk` `no_fault_is_final_while_a_disk_may_be_in_the_making` |
//! | no room in a zone is an internal error: no other zone is tried | `RESOURCE_EXHAUSTED`, and nothing is left behind | `disk_a_quota_that_is_used_up_makes_the_scheduler_choose_again_and_leaves_nothing` `disk_a_late_failure_comes_with_http_200_and_is_told_by_its_code` |
//! | the text of an error decides | code, status, target and state decide | `disk_words_in_a_refused_creation_decide_nothing` `audit_words_in_an_error_decide_nothing` `azures_codes_are_sorted_by_code_and_never_by_text` |
//! | deleting a blob disk succeeds and leaks it | refused | `audit_a_blob_disk_is_never_deleted_or_attached_with_success` |
//! | deleting an attached disk: code unknown | `FAILED_PRECONDITION` naming the node | `audit_an_attached_disk_is_not_deleted_and_its_node_is_named` |
//! | a disk may be deleted while it is being attached (kubernetes#82714) | `ABORTED` | `disk_the_opposite_request_is_aborted_while_a_write_is_in_flight` `a_disk_is_worked_on_as_a_whole_or_attached_and_detached` |
//! | any text of nine parts is a handle, and else publishing is an internal error | a managed disk's id, else `NOT_FOUND` | `only_the_id_of_a_managed_disk_or_the_address_of_a_blob_is_a_volume_id` `disk_what_is_not_there_is_deleted_and_unpublished` |
//! | no list unless asked for; it fails whole for one unknown machine, and shared disks have one node | unless told otherwise; every holder is told | `audit_a_list_names_every_node_of_a_shared_disk_and_survives_a_machine_that_nobody_knows` `disk_the_pages_of_a_list_tell_what_was_so_at_the_first_and_read_nothing_more` |
//! | handles are listed as Azure spells them | as Kubernetes does | `disk_listed_volumes_and_nodes_are_spelt_as_kubernetes_spells_them` |
//! | a single volume cannot be asked for | it can | `disk_a_single_volume_is_told_with_its_size_and_its_nodes` |
//! | nothing says whether the plugin can do its work | `/readyz` does; the probe says that it serves | `azure_is_ready_after_a_token_and_a_read_and_not_after_five_minutes_of_failure` `the_process_is_ready_after_the_first_lists_and_not_after_five_minutes_without_the_watches` `probe_is_true_once_the_plugin_serves` |
//! | growing is refused while attached, or fails in words of its own | online where Azure can, else `FAILED_PRECONDITION` | `disk_a_disk_grows_while_it_is_attached_and_by_whole_gibibytes` `disk_what_grows_only_while_detached_is_a_failed_precondition_until_it_is` |
//!
//! # Attach
//!
//! | the Go driver | here | proved by |
//! |---|---|---|
//! | a disk takes the LUN of one that vanished (azuredisk#2000) | a LUN that an attachment names is its own disk's | `disk_a_disk_that_vanished_comes_back_to_its_own_lun_and_no_other_takes_it_meanwhile` `a_lun_that_an_attachment_names_goes_to_no_other_disk` |
//! | two volumes at one LUN (azuredisk#3457) | a LUN that two attachments name belongs to neither | `disk_a_lun_that_two_attachments_name_is_given_to_neither_of_their_disks` |
//! | when the attachments come slowly they are not looked at for half an hour | no LUN is given until they are known | `disk_attachments_that_never_become_known_make_publish_unavailable_after_a_while` `disk_while_attachments_are_not_known_no_lun_is_given_and_disks_may_leave` |
//! | all attachments are listed for every attach, in one page | a watch; a change costs what changed | `thousands_of_attachments_are_listed_in_pages` `created_changed_and_deleted_attachments_show_without_a_new_list` |
//! | an attachment that names LUN 64 panics | it is named in a warning and passed over | `every_attachment_that_names_a_lun_is_reserved_whatever_its_state` `a_lun_is_0_to_63_and_nothing_else` |
//! | LUNs follow the random order of a map | the order of ids | `disk_a_storm_of_publishes_costs_one_write_per_vm_and_luns_follow_the_ids` `input_order_does_not_matter` |
//! | what does not fit is dropped at random, the caller's own disk too | by the order of ids, with the limit and the count; who leaves makes room | `disk_a_full_vm_refuses_the_next_disk_and_names_its_limit_and_foreign_disks_count` `a_disk_that_does_not_fit_waits_for_one_that_leaves` |
//! | the whole list, from a cache, unconditional: others' disks are lost | what changes, from a fresh read; or the list under its ETag | `disk_a_vm_that_changed_between_read_and_write_is_planned_again_and_loses_nothing` `the_action_says_only_what_changes` `disk_what_others_attached_keeps_its_lun_by_the_action_and_by_the_whole_list` |
//! | a write is verified by a copy of itself | by a read of the machine | `disk_a_write_that_azure_calls_done_is_believed_when_the_machine_says_so` `disk_an_attach_that_failed_and_stays_in_the_model_is_applied_again_by_the_next_publish` |
//! | a cache of ten minutes says that a disk is attached | Azure does | `audit_what_was_detached_behind_our_back_is_attached_again_and_not_remembered` |
//! | a disk held elsewhere may be taken away | `FAILED_PRECONDITION` naming the node; nothing is taken | `disk_a_disk_attached_elsewhere_is_refused_naming_the_node_as_kubernetes_spells_it` `audit_a_disk_that_was_freed_meanwhile_is_attached_by_the_next_try` |
//! | a disk that was freed is refused by what was read of it before | read anew for each try | `audit_a_disk_that_was_freed_meanwhile_is_attached_by_the_next_try` |
//! | a disk on its way off: internal error | `ABORTED`, then attached | `audit_a_disk_that_is_leaving_is_aborted_and_attached_when_it_has_left` |
//! | every disk that is not free: internal error | who holds it, or why not; an odd state is left to Azure | `disk_a_disk_that_is_read_by_a_signature_is_refused_with_the_reason_and_attached_afterwards` `a_disk_is_refused_by_what_it_says_of_itself_and_an_odd_state_is_left_to_azure` |
//! | one bad disk fails its batch | it fails alone | `disk_a_member_that_is_attached_elsewhere_fails_alone_before_anything_is_written` `disk_three_bad_members_fail_and_the_other_thirteen_do_not` `disk_a_member_that_is_deleted_while_the_write_runs_fails_alone` |
//! | a disk without an encryption set is attached with the machine's | with its own or none | `disk_each_disk_keeps_its_own_encryption_set_and_never_takes_the_machines` |
//! | a machine whose last operation failed is written empty first, or blocks (kubernetes#94764) | it takes and gives disks as it is | `audit_a_failed_vm_still_takes_and_gives_disks` |
//! | a second's sleep before each batch, holding the node's lock | a batch waits until the burst is over: milliseconds | `disk_one_disk_alone_waits_for_azure_and_for_nothing_else` `disk_what_arrives_while_a_write_is_in_flight_is_one_further_write` |
//! | who waits cannot leave | it leaves the batch, or the write goes on and its repetition joins | `disk_a_caller_that_gives_up_before_its_write_is_sent_leaves_the_batch` `disk_a_caller_that_gives_up_stops_nothing_and_its_repetition_joins` |
//! | a slow machine holds up others | each VM has a worker of its own | `disk_a_machine_whose_write_hangs_keeps_no_other_machine_waiting` |
//! | polls come every five seconds | when the operation is likely to have ended, six up to then | `a_median_operation_costs_at_most_six_polls_and_teaches_by_azures_clock` `one_operation_alone_costs_six_polls_before_anything_is_known_and_one_afterwards` |
//! | a write that was pushed aside is made good by an empty one | planned again from a read | `disk_what_happens_once_is_made_up_for_where_it_may_be` |
//! | a size that the table does not know takes 16, and a full one "no limit" | 16; a full machine says one, never none | `an_unknown_size_takes_sixteen` `a_full_vm_never_says_no_limit` |
//! | disks that are not Kubernetes' count for nothing (azuredisk#767) | they take their slots | `foreign_disks_count_against_the_limit_and_keep_their_slots` `the_node_tells_its_zone_and_its_limit_without_foreign_disks` |
//! | attaches the disk of a claim for a Pod that names it in `azureDisk` | only for its PersistentVolume, unless `--allow-inline-claimed-disks` says otherwise; what is attached stays, and the Node gets an event | `disk_a_disk_of_a_claim_is_not_attached_for_a_pod_that_names_it` `disk_with_the_option_a_pod_may_name_the_disk_of_a_claim` `a_disk_of_a_claim_is_attached_only_for_its_persistent_volume` `what_the_vm_holds_already_stays` `the_attachment_of_a_pods_own_volume_is_found_by_the_name_that_kubernetes_gives_it` |
//!
//! # Detach
//!
//! | the Go driver | here | proved by |
//! |---|---|---|
//! | any failure, a throttled one too, is followed by a forced detach | never by default; where the operator allows it, only after Azure took a detach and failed, from a VM that is proved stopped | `disk_without_the_option_a_stopped_vm_and_a_failed_detach_nothing_is_forced` `audit_a_detach_is_never_forced_whatever_went_wrong` |
//! | forces a detach from a node that is dead | what was dirty would be lost: only where the operator allows it, from a VM that Azure shows as stopped. A machine that is gone frees its disks; one that is only silent keeps them | `disk_a_detach_that_failed_is_repeated_by_force_from_a_stopped_vm_and_a_person_is_told` `a_vm_that_may_run_is_never_forced` |
//! | takes a disk off a machine on which no attachment names it | only if nothing there uses it, by live reads of Kubernetes; else it refuses, names the node, and the Node gets an event | `disk_a_dangling_attachment_is_detached_and_the_disk_attached_where_it_is_wanted` `disk_an_attachment_that_may_be_in_use_is_left_alone_and_the_answer_says_why` |
//! | "not found" in a text is success | two proofs that the machine is gone | `audit_words_in_an_error_decide_nothing` `disk_what_is_unknown_is_never_taken_for_gone` `disk_a_vm_is_gone_after_two_404s_seconds_apart_between_which_its_group_was_listed` |
//! | a write although nothing is to be detached | none | `disk_unpublishing_what_is_not_attached_there_costs_no_write` |
//! | the cached machine is changed before the call succeeds | nothing is kept of a write that failed | `audit_a_detach_is_never_forced_whatever_went_wrong` `disk_what_a_failed_attach_left_can_be_taken_off_by_an_unpublish` |
//! | a bad disk keeps the others of its batch on | it fails alone | `disk_a_bad_member_of_a_detach_batch_does_not_keep_the_others` |
//! | time-outs inside the call end the detach | it runs in a task that outlives its callers | `disk_a_write_goes_on_without_callers` |
//!
//! # Caches and throttling
//!
//! | the Go driver | here | proved by |
//! |---|---|---|
//! | one failure lists every machine of the scale set; a stuck detach does seven times | one machine is read | `disk_a_failed_attach_or_detach_costs_no_list_of_machines` `disk_publishing_what_is_attached_costs_no_write_and_one_read_in_any_spelling` |
//! | 429 is not tried again | after the pause that Azure asks for, while that is worth waiting for | `retry_after_is_law_for_every_verb` `disk_azures_pause_is_law_and_a_long_one_is_told_at_once` |
//! | one 429 closes the whole kind of resource, in a data race | its own scope, by what Azure says of it | `a_429_pauses_its_own_scope_until_its_time_is_over` `a_request_held_back_by_its_own_vm_lets_others_pass` |
//! | the skipped read under throttling is dead code | what is left of the quota is read from every answer | `waiting_requests_go_by_priority_then_by_arrival` `all_requests_of_a_paused_scope_wait_and_lists_go_last` |
//! | throttled attaches are internal errors | `UNAVAILABLE` | `throttling_never_makes_the_provisioner_choose_another_node` |
//! | the call sleeps up to twenty minutes | a long pause is told at once | `a_wait_that_is_too_long_is_told_at_once` |
//! | a storm meets the limits of requests (AKS#1187) | one write a machine | `disk_a_storm_over_ten_nodes_meets_no_request_limit` |
//!
//! # Node
//!
//! | the Go driver | here | proved by |
//! |---|---|---|
//! | the LUN alone says which device it is | LUN, size and the id in the metadata | `another_disk_at_the_lun_is_never_touched` `another_disk_at_the_lun_is_neither_mounted_nor_formatted` `a_disk_at_another_lun_is_refused_naming_both` |
//! | names and LUNs are matched by their ends, and another disk is taken (azuredisk#2034) | whole, and what is ambiguous is refused | `a_lun_is_matched_whole_and_not_by_its_last_digit` `a_disk_whose_name_begins_with_anothers_is_no_partition_of_it` `two_disks_at_one_lun_are_ambiguous_and_named` |
//! | the machine's own disks are told by links and host numbers | also by the bus, and by what holds the root | `the_operating_system_and_resource_disks_are_never_found` `the_vmbus_id_of_the_controller_tells_data_disks_from_the_machines_own` `the_disk_that_holds_the_root_file_system_is_never_found` `a_disk_of_another_maker_at_the_same_lun_is_not_taken` |
//! | a device that comes a second late fails the call: the loop ends at its first try | it is waited for, and events wake the waiter | `a_disk_that_comes_late_is_staged_in_the_same_call_which_has_the_volume_meanwhile` `an_event_wakes_the_waiter_before_the_slow_check` |
//! | every host is scanned for everything | for that LUN | `waiting_for_nothing_ends_at_the_deadline_and_asks_for_a_scan_of_that_lun` |
//! | what blkid and wipefs do not know is formatted | blank at both ends, no signature, no partitions | `blank_needs_all_three_witnesses` `foreign_data_is_never_formatted` `a_disk_that_is_not_blank_and_holds_no_filesystem_is_left_as_it_is` |
//! | a mkfs that was killed leaves a volume that no node mounts | recognised as ours and made again | `ext4_recovers_from_a_kill_at_twenty_points_of_mkfs` `xfs_recovers_from_a_kill_at_twenty_points_of_mkfs` `btrfs_recovers_from_a_kill_at_twenty_points_of_mkfs` |
//! | the turn to format ends after five minutes, whatever runs | when the child has ended | `sixteen_volumes_come_and_go_at_once_and_two_are_formatted_at_a_time` `children_are_capped` |
//! | fsck, umount and statfs may hang for ever, and the call with them | every call has a deadline; children are killed, stuck calls counted | `the_whole_group_dies_at_the_deadline` `a_hung_call_answers_by_its_deadline_and_is_counted_until_it_returns` `stuck_calls_are_capped` |
//! | two volumes' names are not told apart when growing and measuring | a path is its own volume's | `a_path_of_one_volume_is_not_grown_or_measured_under_the_name_of_another` `a_raw_device_of_one_volume_is_not_measured_under_the_name_of_another` |
//! | publishing does not look whether anything is staged | it does, and what | `nothing_is_published_that_is_not_staged` `a_pod_is_never_shown_another_volume_that_is_mounted_at_the_staging_path` |
//! | publishing takes no lock | one call a volume and target | `a_disk_that_comes_late_is_staged_in_the_same_call_which_has_the_volume_meanwhile` `targets_of_a_volume_go_side_by_side_and_each_once` |
//! | unstaging is done when the mount is gone | when no process holds the device | `an_open_file_keeps_the_disk_attached` `a_file_open_in_another_mount_namespace_keeps_the_disk_until_its_holder_ends` |
//! | a raw volume that grew has every disk of the machine scanned anew | its own | `a_rescan_is_asked_of_the_disks_own_scsi_device` |
//! | a disk's growth may not reach its file system (AKS#2260) | it is waited for, then `UNAVAILABLE` until it is there | `a_filesystem_grows_with_its_disk_and_not_before` |
//! | a device that multipath took fails in the words of mkfs (azuredisk#1717) | it is claimed first, and said to be in use | `a_device_that_someone_holds_is_not_formatted` |
//! | tuning runs a shell command a file | files are written, below the device only | `device_settings_are_written_below_the_device` `a_device_setting_stays_under_its_device` |
//! | NVMe disks are found by udev rules that some images lack (azuredisk#2777), or that mix up LUNs (azure-vm-utils#92) | they are found from sysfs alone, by the ids of their namespaces | `a_namespace_is_found_by_its_id_in_both_layouts_whatever_its_name` `a_reader_finds_each_disk_by_its_namespace_whatever_came_before_it` |
//! | the offset between namespace ids and LUNs is taken for granted (azuredisk#3632) | it is proved by where the system lies, or an operator's word is borne out by the metadata | `where_the_system_is_namespace_1_the_disk_at_a_lun_is_the_namespace_two_above` `metadata_bears_out_no_offset_but_the_right_one` |
//! | a grown NVMe disk is not read again | its controller is asked to | `the_controllers_of_a_disk_are_asked_to_read_its_size_and_all_remote_ones_to_look_for_disks` |
//! | what fsck could not look at is mounted | the mount stops | `a_check_that_could_not_run_says_nothing_of_the_data_and_stops_the_mount` |
//! | another file system than the one asked for: internal error | `FAILED_PRECONDITION` with both names, data untouched | `another_filesystem_than_the_one_asked_for_is_left_alone` `another_filesystem_than_the_one_asked_for_is_refused_and_keeps_its_data` |
//!
//! # Without an answer yet
//!
//! | the Go driver | here |
//! |---|---|
//! | takes six to eight minutes to free the disks of a node that died | the same where no cloud controllers run, for then no controller marks such a node out of service |
//! | holds a node's pod back until its volumes are gone (preStop) | nothing does: kubelet's order of shutting down has to do |
//! | takes a start-up taint off the node once it is ready | nothing does: a node pool that sets `disk.csi.azure.com/agent-not-ready` waits for ever |
//! | tells its limit once, until it starts again | the same; the controller goes by what the machine holds and says `RESOURCE_EXHAUSTED` |
//! | turns the read-write cache of translated in-tree volumes into a read cache when told to | has no such switch: what the volume says is done |
//! | takes every key of a class in a VolumeAttributesClass and ignores most | the same on creation, where they are not ignored; changing a volume is not offered |
//! | lists the volumes of one subscription | lists those of every subscription that a known volume is in, and no others |
//! | snapshots, clones, Windows | not in this version |
//! | runs fsck of a large disk inside the container's limit (AKS#4682) | the same; there are no manifests that could set one |
