//! The ledger of space: free space on the medium that each purpose has reserved, and the DRAM
//! budget.

pub(crate) mod dram;
pub(crate) mod gauge;
pub(crate) mod reserve;
pub(crate) mod sizes;
