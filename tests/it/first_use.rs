//! What went wrong when people used this for the first time with its pages alone, how it is now, and the tests that
//! hold it so. `rules` says how the tests of such tables are run. What a browser shows is tested by the tier `page`, what
//! the chart refuses by the tier `chart`, from `tests/chart/values.tsv`.
//!
//! # The first commands
//!
//! | what went wrong | now | held by |
//! |---|---|---|
//! | the commands of the README died when pasted: the configuration was not written yet | programs wait for it up to 10 s, and say so | `the_commands_to_run_it_by_hand_work_when_they_are_pasted_as_a_whole` `a_process_that_starts_waits_ten_seconds_for_a_named_configuration_that_does_not_exist_yet` `a_start_waits_for_a_file_that_does_not_exist_yet_and_a_look_does_not` |
//! | the emulator's own configuration drew warnings, and `get routes` failed on it | it warns of nothing and serves every command | `the_emulators_own_configuration_warns_of_nothing_and_serves_every_command_that_reads` `the_configuration_that_the_emulator_writes_has_all_that_services_need_and_warns_of_nothing` |
//! | nothing led from a disk to a Service | the same page serves one | `the_same_for_a_service_works_when_it_is_pasted` |
//! | three programs had to be started by hand to see anything | `lazuli up` | `it_says_where_everything_is_and_what_happens_and_leaves_nothing_after_an_interrupt` `what_makes_no_sense_is_refused_with_what_is_allowed` `kubectl_prints_what_it_prints_on_any_cluster` |
//! | the demonstration showed six polls of each operation, where a table said one | it says why; later it is one | `one_operation_alone_costs_six_polls_before_anything_is_known_and_one_afterwards` |
//!
//! # The pages
//!
//! | what went wrong | now | held by |
//! |---|---|---|
//! | a README of 4,696 words claimed what it later took back | 1,300 words, a table of what works where | `the_readme_and_the_notes_of_the_release_are_short` |
//! | no page listed a parameter, an annotation, a key, a metric or an event | pages made from the program's own tables, and `lazuli explain` | `the_reference_pages_are_made_of_the_programs_own_tables` `every_metric_is_registered_by_its_row` `every_key_of_an_object_that_the_program_names_is_explained_and_no_other` `a_name_is_explained_in_any_letter_case_and_without_its_prefix` `a_misspelt_name_is_an_error_that_names_the_nearest` |
//! | incidents, scenarios, latencies and the emulator's token were learned from errors | a page whose examples are run | `the_examples_of_the_emulators_page_work_when_they_are_pasted_in_their_order` |
//! | commands and options in the pages drifted | every one is read by the program | `audit_every_command_in_the_pages_is_understood` `audit_every_script_and_option_in_the_pages_exists` `every_link_between_the_pages_leads_somewhere` |
//!
//! # The terminal
//!
//! | what went wrong | now | held by |
//! |---|---|---|
//! | help and tables were wider than the terminal and broke words | they fit | `lines_break_between_words_alone` `whatever_the_cells_a_table_fits_or_has_nothing_left_to_leave_out` `columns_go_in_their_order_and_wide_shows_all` |
//! | `get disks` said another thing with `--node`; two styles of JSON; no `-o` | one form for all | `every_command_prints_in_the_same_forms_by_the_same_option` `the_forms_of_a_list_are_those_of_kubectl` `of_a_node_its_luns_are_printed_and_the_next_free_one` `lists_have_the_fields_that_help_shows` |
//! | no completion, no manual, no colour, a version `unknown` | all there, colour on terminals alone | `every_command_is_completed_and_has_a_page` `a_build_in_a_repository_knows_its_revision` `who_wants_no_colour_gets_none` `a_pipe_has_neither_width_nor_colours_whatever_the_variables_say` |
//! | a bench was silent for half a minute, then 48 rows without a word | a line that tells how long, five figures in words | `a_bench_says_five_figures_with_their_bounds` `the_line_fits_and_says_how_long` |
//! | the JSON of `add-ssh-key` lacked the key's fingerprint | it has it | `a_key_is_added_on_machines_of_every_kind_and_one_that_refuses_stops_no_other` |
//!
//! # What is wrong is said
//!
//! | what went wrong | now | held by |
//! |---|---|---|
//! | doctor called nonsense in the configuration right | a sentence each | `what_the_configuration_names_and_azure_does_not_have_is_wrong` `a_credential_whose_key_is_misspelt_is_wrong_without_azure_too` `json_is_json_also_when_the_configuration_is_wrong` |
//! | a dead API server was named twice, and nothing else was looked at | once, and Azure is asked all the same | `an_api_server_that_does_not_answer_is_named_and_azure_is_asked_all_the_same` `a_cause_is_one_line` |
//! | the role's actions were not looked at | each that lacks is named with role and scope | `an_action_that_the_identity_lacks_is_named_with_its_role_and_scope` |
//! | nobody could ask before a move what would change | `doctor --migrate` | `a_cluster_of_the_go_projects_is_gone_through_before_a_move` `the_arguments_of_a_go_program_are_judged_by_the_command_line` |
//! | a byte order mark passed in silence | it is spoken of | `a_byte_order_mark_is_skipped_and_spoken_of` |
//!
//! # Fleets
//!
//! | what went wrong | now | held by |
//! |---|---|---|
//! | values that the programs refuse passed the chart | it knows their names and ranges | `the_chart_knows_the_names_that_the_program_knows` `every_name_of_the_chart_is_taken_by_the_program` `the_program_takes_the_address_ranges_that_the_chart_takes` |
//! | no file of the host, labels, accounts, volumes, sidecar arguments of one's own | all there | `the_configuration_of_the_node_is_a_single_file_that_only_those_read_who_speak_to_azure` `every_object_and_pod_has_the_standard_labels_and_those_of_the_operator` `an_account_of_the_operator_has_the_rights_and_is_the_one_that_policies_name` `pods_have_what_the_operator_adds_and_their_own_as_well` `sidecars_take_rates_gates_and_arguments_and_keep_what_the_driver_needs` `the_objects_of_the_drivers_say_what_the_operator_chose` |
//! | roles by the az command line alone | Terraform and Bicep read the same files | `both_modules_take_every_field_of_a_role_file` `every_role_file_is_read_by_both_modules_and_its_short_name_is_one` |
