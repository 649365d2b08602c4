//! Kills of a process that creates and drops keyspaces.
