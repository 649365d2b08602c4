//! The records of `evaluate`, in `runs.json`: all that a page needs besides the rows. The program
//! `lodestore-plots` makes the pages.

use serde::{Deserialize, Serialize};

use super::list::{Draw, Experiment, Medium, Scale};
use super::metric::Measure;
use super::presets::size_told;
use super::site::Site;

/// The record of an experiment that ran, in addition to its rows.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Record {
    /// The experiment.
    #[serde(flatten)]
    pub(super) about: About,
    pub(super) scale: Scale,
    /// Version and commit of this program.
    pub(super) program: String,
    pub(super) date: String,
    pub(super) site: Site,
    /// Duration in seconds.
    pub(super) seconds: f64,
    pub(super) expected_seconds: u64,
    /// The commands that ran.
    pub(super) commands: Vec<String>,
    /// Stores that were skipped, or that failed, and the reasons.
    pub(super) left_out: Vec<(String, String)>,
    /// Runs that failed as a whole, and the reasons.
    pub(super) failed: Vec<String>,
    /// Number of rows.
    pub(super) rows: usize,
}

/// The description of an experiment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct About {
    /// Its place among all experiments.
    pub(super) place: usize,
    pub(super) title: String,
    /// The question that it answers.
    pub(super) question: String,
    pub(super) medium: Medium,
    /// The measures that compare stores, the first for the summary.
    pub(super) measures: Vec<Measure>,
    /// The plot of its results.
    pub(super) draw: Option<Draw>,
    /// How its size differs from that of its preset, if it runs a preset.
    pub(super) size: Option<String>,
}

impl About {
    /// Returns the description of an experiment at this scale.
    pub(super) fn of(place: usize, experiment: &Experiment, scale: Scale) -> Self {
        Self {
            place,
            title: experiment.title.clone(),
            question: experiment.question.clone(),
            medium: experiment.medium,
            measures: experiment.measures.clone(),
            draw: experiment.draw,
            size: size_told(experiment, scale),
        }
    }
}
