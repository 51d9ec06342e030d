//! The Prometheus text format, version 0.0.4.

use std::fmt::Write;

/// A histogram with fixed upper bounds.
#[derive(Debug, Clone)]
pub(super) struct Buckets {
    bounds: &'static [f64],
    /// Counts below each bound, not cumulated; the last is above all bounds.
    counts: Vec<u64>,
    sum: f64,
}

impl Buckets {
    pub(super) fn new(bounds: &'static [f64]) -> Self {
        Self { bounds, counts: vec![0; bounds.len() + 1], sum: 0.0 }
    }

    pub(super) fn observe(&mut self, value: f64) {
        self.observe_n(value, 1);
    }

    pub(super) fn observe_n(&mut self, value: f64, count: u64) {
        if count > 0 {
            self.counts[self.bounds.partition_point(|&bound| bound < value)] += count;
            self.sum += value * count as f64;
        }
    }

    /// Values up to each bound, and then all of them with an infinite bound.
    pub(super) fn cumulated(&self) -> impl Iterator<Item = (f64, u64)> {
        let bounds = self.bounds.iter().copied().chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().scan(0, |sum, &count| {
            *sum += count;
            Some(*sum)
        }))
    }
}

/// A page under construction.
#[derive(Debug, Default)]
pub(super) struct Page {
    text: String,
}

impl Page {
    /// Begin a family; its samples follow.
    pub(super) fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail.
        let _ = write!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    /// One sample; `labels` without braces.
    pub(super) fn sample(&mut self, name: &str, labels: &str, value: f64) {
        let _ = writeln!(self.text, "{name}{{{labels}}} {value}");
    }

    /// The samples of a histogram.
    pub(super) fn histogram(&mut self, name: &str, labels: &str, buckets: &Buckets) {
        let mut count = 0;
        for (bound, cumulated) in buckets.cumulated() {
            let bound = if bound.is_finite() { bound.to_string() } else { "+Inf".to_owned() };
            let _ = writeln!(self.text, "{name}_bucket{{{labels},le=\"{bound}\"}} {cumulated}");
            count = cumulated;
        }
        let _ = writeln!(self.text, "{name}_sum{{{labels}}} {}", buckets.sum);
        let _ = writeln!(self.text, "{name}_count{{{labels}}} {count}");
    }

    pub(super) fn into_text(self) -> String {
        self.text
    }
}

/// A label's value, with the characters escaped that the format asks for.
pub(super) fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_cumulative_and_ends_with_infinity() {
        let mut buckets = Buckets::new(&[0.5, 1.0]);
        buckets.observe(0.5);
        buckets.observe_n(0.75, 2);
        buckets.observe(9.0);
        let mut page = Page::default();
        page.family("x_seconds", "histogram", "Help.");
        page.histogram("x_seconds", "a=\"b\"", &buckets);
        assert_eq!(
            page.into_text(),
            "# HELP x_seconds Help.\n# TYPE x_seconds histogram\nx_seconds_bucket{a=\"b\",le=\"0.5\"} 1\n\
             x_seconds_bucket{a=\"b\",le=\"1\"} 3\nx_seconds_bucket{a=\"b\",le=\"+Inf\"} 4\nx_seconds_sum{a=\"b\"} 11\n\
             x_seconds_count{a=\"b\"} 4\n"
        );
    }

    #[test]
    fn label_values_are_escaped() {
        assert_eq!(escape("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
