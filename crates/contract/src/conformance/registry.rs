//! The single list of behaviours, for the table and for the `#[test]`s.

use super::{Case, Harness};

/// A behaviour that every engine must have.
pub struct Behaviour<H> {
    /// The function's name.
    pub name: &'static str,
    /// Panics if the engine behaves otherwise.
    pub run: fn(&Case<H>),
}

/// Passes the list of behaviours to `$then!`, after `$arguments`.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_behaviours {
    ($then:path, $($arguments:tt)*) => {
        $then! { [$($arguments)*]
            points a_fresh_store_is_empty;
            points put_get_contains_and_overwrite;
            points delete_says_whether_it_was_there;
            points insert_only_where_absent;
            points update_only_where_present;
            points binary_keys_are_opaque;
            points keys_that_begin_with_each_other_are_apart;
            points empty_values_are_values;
            points many_keys_stay_apart;
            points names_and_capabilities_are_steady;
            readers get_into_reuses_and_empties_its_buffer;
            readers get_with_shows_the_value_once;
            readers multi_get_answers_every_index_in_order;
            readers multi_get_refuses_before_it_answers;
            readers for_each_visits_every_key_once;
            readers for_each_stops_when_told;
            sizes keys_of_least_and_greatest_length;
            sizes keys_beyond_the_limits_are_refused;
            sizes values_of_all_sizes;
            sizes values_beyond_the_limit_are_refused;
            sizes a_key_changes_size_often;
            swaps compare_and_swap_all_cases;
            swaps compare_and_swap_counts_under_race;
            swaps one_insert_of_many_wins;
            swaps one_delete_of_many_wins;
            swaps update_with_keeps_puts_and_deletes;
            swaps update_with_counts_under_race;
            expiring expired_keys_are_absent_to_every_reader;
            expiring expired_keys_are_absent_to_every_writer;
            expiring later_expiry_is_told_and_harmless;
            expiring writes_clear_the_expiry;
            expiring insert_follows_its_lifetime;
            expiring update_follows_its_lifetime;
            expiring compare_and_swap_follows_its_lifetime;
            expiring update_with_follows_its_lifetime;
            expiring update_with_shows_the_expiry;
            expiring kept_expiries_never_go_back_under_race;
            expiring walks_report_the_expiry;
            expiring walks_pair_values_with_their_own_expiry;
            expiring snapshots_keep_their_expiries;
            expiring expiry_survives_reopening;
            expiring expired_keys_may_linger_in_len_only;
            scans scan_without_order_names_another_engine;
            scans bounds_included_excluded_and_open;
            scans prefixes_and_their_edges;
            scans limits_of_none_one_and_some;
            scans empty_ranges_are_empty;
            scans a_visitor_stops_a_scan;
            scans an_owned_scan_moves_and_outlives_writes;
            scans an_owned_scan_outlives_its_store;
            scans scans_follow_writes_at_once;
            scans scans_under_writers_are_ordered_and_complete;
            batches batches_are_all_or_nothing;
            batches batches_follow_the_model;
            batches batches_beyond_the_limits_are_refused;
            batches a_batch_refused_as_full_changes_nothing;
            batches batches_are_seen_in_one_step;
            batches batches_over_the_same_keys_are_never_mixed;
            conditions conditions_are_met_or_nothing_is_written;
            conditions the_first_unmet_condition_is_named;
            conditions conditions_beyond_the_limits_are_refused;
            conditions conditions_compare_values_of_all_sizes;
            conditions a_full_store_names_an_unmet_condition;
            conditions conditional_transfers_keep_the_sum;
            conditions conditional_batches_have_no_write_skew;
            range_conditions a_range_condition_is_met_by_its_keys_alone;
            range_conditions an_unmet_range_condition_is_counted_after_those_on_keys;
            range_conditions range_conditions_beyond_the_limit_are_refused;
            range_conditions no_key_comes_into_a_range_between_check_and_write;
            groups snapshots_stand_still;
            copies a_copy_holds_every_live_pair;
            copies a_copy_under_writers_is_of_one_moment;
            copies a_copy_has_batches_whole;
            copies a_failing_sink_ends_the_copy;
            lifecycle opening_where_nothing_is_says_so;
            lifecycle creating_where_a_store_is_is_refused;
            lifecycle a_second_opener_is_told_who_holds_it;
            lifecycle reopening_after_close_keeps_everything;
            lifecycle reopening_after_a_crash_keeps_everything;
            lifecycle reopening_an_empty_store;
            lifecycle reopening_again_and_again;
            lifecycle gets_are_right_at_once_after_a_crash;
            lifecycle writes_during_recovery_are_kept;
            lifecycle a_closed_store_says_closed;
            lifecycle closing_twice_is_no_error;
            accounts stats_add_up;
            accounts stats_follow_recovery;
            accounts space_is_used_again;
            accounts sync_keeps_the_store_going;
            accounts verify_counts_records_and_tells_progress;
            full a_full_store_loses_nothing;
            full a_full_store_reads_and_deletes;
            full deleting_makes_room_again;
            damage damaged_bytes_are_never_taken_for_right;
            damage damaged_values_are_found;
            damage a_truncated_store_is_an_error;
            threads disjoint_keys_follow_their_models;
            threads readers_never_see_time_go_back;
            threads for_each_under_writers_is_complete;
            threads growth_under_readers_loses_nothing;
            model sequences_match_the_model;
        }
    };
}

macro_rules! table {
    ([] $($module:ident $name:ident;)*) => {
        /// Returns every behaviour, in the order that helps to read failures: basic behaviours
        /// first.
        pub fn behaviours<H: Harness>() -> Vec<Behaviour<H>> {
            vec![$(Behaviour { name: stringify!($name), run: super::$module::$name::<H> }),*]
        }
    };
}
conformance_behaviours!(table,);

/// Generates one `#[test]` per behaviour. The argument is the path of a function that returns a new
/// [`Harness`](crate::conformance::Harness). Call the macro once per module. With `over` before the
/// names of several functions of the module, it generates one module per function.
#[macro_export]
macro_rules! conformance {
    (over $($make:ident)*) => {
        $(mod $make {
            $crate::conformance!(super::$make);
        })*
    };
    ($make:path) => {
        $crate::conformance_behaviours!($crate::conformance_tests, $make);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_tests {
    ([$make:path] $($module:ident $name:ident;)*) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::check(stringify!($name), $make());
            }
        )*
    };
}
