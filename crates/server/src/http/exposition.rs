//! The two texts of `/metrics`: OpenMetrics 1.0, and the older text format of Prometheus.

use std::collections::HashMap;

/// Media type of OpenMetrics.
pub(super) const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Media type of the text format of Prometheus.
pub(super) const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a client accepts OpenMetrics. Other clients read the text format of Prometheus.
pub(super) fn accepts_openmetrics(accept: &str) -> bool {
    accept.split(',').any(|range| {
        let media_type = range.split(';').next().unwrap_or_default().trim();
        media_type.eq_ignore_ascii_case("application/openmetrics-text")
    })
}

/// Returns an OpenMetrics text in the text format of Prometheus. The samples are the same. In the
/// text format a family has the name of its samples, and there are no units and no end mark.
pub(super) fn to_prometheus_text(openmetrics: &str) -> String {
    let types = openmetrics.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let kinds: HashMap<&str, &str> = types.filter_map(|text| text.split_once(' ')).collect();
    let mut result = String::with_capacity(openmetrics.len());
    for line in openmetrics.lines() {
        if line == "# EOF" || line.starts_with("# UNIT ") {
            continue;
        }
        let comment = line.strip_prefix("# ").and_then(|comment| comment.split_once(' '));
        let Some((word, (name, text))) = comment.and_then(|(word, rest)| Some((word, rest.split_once(' ')?))) else {
            result.extend([line, "\n"]);
            continue;
        };
        let (suffix, kind) = match kinds.get(name) {
            Some(&"counter") => ("_total", "counter"),
            Some(&"info") => ("_info", "gauge"),
            Some(&"unknown") | None => ("", "untyped"),
            Some(kind) => ("", *kind),
        };
        // The text format has no escapes of quotes in a help.
        let text = if word == "TYPE" { kind.to_owned() } else { text.replace("\\\"", "\"") };
        result.extend(["# ", word, " ", name, suffix, " ", &text, "\n"]);
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_older_text_has_the_names_of_its_samples() {
        let openmetrics = "# HELP a_bytes Bytes.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total 1\n\
                           # TYPE b info\n# HELP b The \\\"b\\\".\nb_info{x=\"# TYPE y z\"} 1\n\
                           # TYPE c gauge\n# HELP c C.\nc 2\n# EOF\n";
        let text = "# HELP a_bytes_total Bytes.\n# TYPE a_bytes_total counter\na_bytes_total 1\n\
                    # TYPE b_info gauge\n# HELP b_info The \"b\".\nb_info{x=\"# TYPE y z\"} 1\n\
                    # TYPE c gauge\n# HELP c C.\nc 2\n";
        assert_eq!(to_prometheus_text(openmetrics), text);
    }

    #[test]
    fn openmetrics_is_for_clients_that_ask_for_it() {
        assert!(accepts_openmetrics("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"));
        assert!(accepts_openmetrics("text/plain;q=0.5, Application/OpenMetrics-Text ; q=0.9"));
        assert!(!accepts_openmetrics("*/*") && !accepts_openmetrics(""));
    }
}
