//! The arguments of `mkvs`: status and changes of a matrix of devices.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::StoreArgs;

/// A change of a matrix.
#[derive(Debug, Args)]
pub struct MkvsArgs {
    /// The command.
    #[command(subcommand)]
    pub command: MkvsCommand,
}

/// The commands on a matrix.
#[derive(Debug, Subcommand)]
pub enum MkvsCommand {
    /// Write the state of the groups and devices
    Status(StoreArgs),
    /// Replace a failed or retired device by a new device, and wait until it has all data
    Replace {
        /// The matrix
        #[command(flatten)]
        store: StoreArgs,
        /// The group of the device, from 0
        group: usize,
        /// The index of the device in its group, from 0
        device: usize,
        /// The new device's directory
        directory: PathBuf,
        /// Open the matrix even if too few devices are left to have all acknowledged writes, copy
        /// the new device from the others, and give up the writes that only lost devices had
        #[arg(long)]
        salvage: bool,
        /// Wait at most this many seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
        patience: u64,
    },
    /// Add a group of new devices, and wait until its keys have moved to it
    AddGroup {
        /// The matrix
        #[command(flatten)]
        store: StoreArgs,
        /// A directory for each device of the group; default: below the matrix's own
        directories: Vec<PathBuf>,
        /// Wait at most this many seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
        patience: u64,
    },
    /// Wait until every key is in its group and every working device has all data, for example
    /// after an interrupted `add-group` or `replace`
    Rebalance {
        /// The matrix
        #[command(flatten)]
        store: StoreArgs,
        /// Wait at most this many seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
        patience: u64,
    },
}
