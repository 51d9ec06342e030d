//! The times of rows, metric by metric.

use std::ops::Range;

use super::columns::Counted;
use super::row::NO_TIME;
use super::tally::{Metric, Tally};
use crate::outcome::Outcome;

/// Count the times of these rows.
pub fn count_times(tally: &mut Tally, rows: &Counted<'_>, range: &Range<usize>) {
    let (due, fired) = (&rows.due_ns[range.clone()], &rows.fired_ns[range.clone()]);
    let (sent, end) = (&rows.sent_ns[range.clone()], &rows.end_ns[range.clone()]);
    let outcome = &rows.outcome[range.clone()];
    let all_sent = sent.iter().all(|ns| *ns != NO_TIME) && fired.iter().all(|ns| *ns != NO_TIME);
    let ok = |i: &usize| outcome[*i] == Outcome::Ok as u8 && sent[*i] != NO_TIME && end[*i] != NO_TIME;
    let all_ended = end.iter().all(|ns| *ns != NO_TIME);
    if all_sent && all_ended && outcome.iter().all(|o| *o == Outcome::Ok as u8) {
        // Nearly always, so that the tests of each row are worth leaving out.
        tally.record_all(Metric::Lateness, sent.iter().zip(due).map(|(a, b)| a - b));
        tally.record_all(Metric::PacerLate, fired.iter().zip(due).map(|(a, b)| a - b));
        tally.record_all(Metric::NoConnection, sent.iter().zip(fired).map(|(a, b)| a - b));
        tally.record_all(Metric::Runtime, end.iter().zip(due).map(|(a, b)| a - b));
        tally.record_all(Metric::Service, end.iter().zip(sent).map(|(a, b)| a - b));
    } else {
        let went = |i: &usize| sent[*i] != NO_TIME;
        let fell = |i: &usize| went(i) && fired[*i] != NO_TIME;
        let n = range.len();
        tally.record_all(Metric::Lateness, (0..n).filter(went).map(|i| sent[i] - due[i]));
        tally.record_all(Metric::PacerLate, (0..n).filter(fell).map(|i| fired[i] - due[i]));
        tally.record_all(Metric::NoConnection, (0..n).filter(fell).map(|i| sent[i] - fired[i]));
        tally.record_all(Metric::Runtime, (0..n).filter(ok).map(|i| end[i] - due[i]));
        tally.record_all(Metric::Service, (0..n).filter(ok).map(|i| end[i] - sent[i]));
    }
    let first = rows.first_token_ns;
    let first = &first[range.start.min(first.len())..range.end.min(first.len())];
    let began = |i: &usize| first[*i] != NO_TIME && ok(i);
    tally.record_all(Metric::Ttft, (0..first.len()).filter(began).map(|i| first[i] - due[i]));
    tally.record_all(Metric::TtftSent, (0..first.len()).filter(began).map(|i| first[i] - sent[i]));
}
