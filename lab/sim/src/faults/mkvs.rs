//! Faults of a matrix.

use lodestore_media::PlantedFault;
use lodestore_mkvs::planted as own;

/// Faults that an exploration of crashes sees.
pub const OF_CRASHES: &[PlantedFault] = &[
    own::OP_LOG_BEHIND_STORE,
    own::OP_ACKED_BY_FEWER,
    own::OP_APPLIED_EARLY,
    own::OP_EVICTED_EARLY,
    own::OPS_NOT_REDONE,
    own::MEMBER_BACK_UNSAID,
    own::EPOCH_NOT_BEGUN,
    own::FORK_CUT_UNSAID,
    own::FILTER_LEFT_KEPT,
    own::OPEN_ASKS_FOR_ALL,
    own::MOVED_DELETED_FIRST,
    own::REPLACED_EARLY,
];

/// Faults that damage shows.
pub const OF_DAMAGE: &[PlantedFault] = &[own::GIVEN_UP_UNMARKED, own::APPLIED_NOT_MARKED, own::OLDER_HOST_ACCEPTED];
