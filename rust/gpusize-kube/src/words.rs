//! From an object to what it says of its moments: pure functions, one for each shape of object.

use std::fmt;

use crate::moments::{Moment, event_moment, pod_condition, workload_condition, workload_condition_false};
use crate::shapes::{Claim, Condition, Container, Event, Metadata, Pod, PodStatus, Workload};
use crate::text::Text;
use crate::times::{SECOND_NS, event_name_ns, parse_time};

/// One source's word on one moment of one object.
#[derive(Clone, Debug)]
pub struct Word<'a> {
    /// Which moment.
    pub moment: Moment<'a>,
    /// Such as a container's name.
    pub part: Option<&'a str>,
    /// What tells this occurrence of the moment from another one: its time as written, or the state it shows.
    pub token: &'a str,
    /// Who says when; none where the object shows the moment but no time, so that only its arrival is known.
    pub source: Option<Source<'a>>,
    /// The time as the API writes it; without one it is in the token, an Event's name.
    pub text: Option<&'a str>,
    /// Of the condition or Event.
    pub reason: Option<&'a str>,
    /// Of the condition or Event.
    pub message: Option<&'a str>,
    /// Whether the object's arrival is a word on the same moment (else it only explains an earlier one).
    pub shows: bool,
    /// Seconds to be taken off the time.
    pub before_s: i64,
}

/// Who says when.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Source<'a> {
    /// A field of the object.
    Field(&'static str),
    /// A condition, by its type.
    Condition(&'a str),
    /// The time of who wrote a field.
    ManagedFields(&'a str),
    /// An Event, by its reason.
    Event(&'a str),
    /// The name that an Event's sender gave it, by its reason.
    EventName(&'a str),
}

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => f.write_str(name),
            Self::Condition(kind) => write!(f, "condition {kind}"),
            Self::ManagedFields(manager) => write!(f, "managedFields {manager}"),
            Self::Event(reason) => write!(f, "event {reason}"),
            Self::EventName(reason) => write!(f, "event {reason} name"),
        }
    }
}

impl<'a> Word<'a> {
    /// The object shows the moment, and says no time.
    pub fn shown(moment: &'static str, token: &'a str) -> Self {
        Self {
            moment: Moment::Known(moment),
            part: None,
            token,
            source: None,
            text: None,
            reason: None,
            message: None,
            shows: true,
            before_s: 0,
        }
    }

    fn timed(moment: &'static str, source: Source<'a>, text: &'a str) -> Self {
        Self { source: Some(source), text: Some(text), ..Self::shown(moment, text) }
    }

    /// When, in ns since 1970, and how exact that is; none where what should say so is no time.
    pub fn time(&self) -> Option<(i64, i64)> {
        let (at_ns, resolution_ns) = match self.text {
            Some(text) => parse_time(text)?,
            None => (event_name_ns(self.token)?, 1),
        };
        Some((at_ns.checked_sub(self.before_s.checked_mul(SECOND_NS)?)?, resolution_ns))
    }

    /// An explanation of a moment that the object's arrival does not show.
    fn later(self) -> Self {
        Self { shows: false, ..self }
    }

    fn because(self, reason: Option<&'a Text<'_>>, message: Option<&'a Text<'_>>) -> Self {
        Self { reason: given(reason), message: given(message), ..self }
    }

    fn of(condition: &'a Condition<'_>, moment: Moment<'a>) -> Self {
        let text = condition.last_transition_time.as_deref();
        Self {
            moment,
            source: text.map(|_| Source::Condition(&condition.r#type)),
            text,
            ..Self::shown("", text.filter(|text| !text.is_empty()).unwrap_or(&condition.status))
        }
        .because(condition.reason.as_ref(), condition.message.as_ref())
    }
}

/// A text that says something.
fn given<'a>(text: Option<&'a Text<'_>>) -> Option<&'a str> {
    text.map(|text| &**text).filter(|text| !text.is_empty())
}

/// What a pod says.
pub fn pod<'a>(pod: &'a Pod<'_>) -> Vec<Word<'a>> {
    let mut words = of_metadata(&pod.metadata);
    if let Some(node) = given(pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref())) {
        words.push(Word::shown("bound", node));
    }
    let Some(status) = &pod.status else { return words };
    let mut disrupted = false;
    for each in status.conditions.iter().flatten() {
        if *each.status == *"True" {
            words.push(Word::of(each, pod_condition(&each.r#type)));
            disrupted |= *each.r#type == *"DisruptionTarget";
        } else if *each.r#type == *"PodScheduled"
            && let Some(reason) = each.reason.as_deref()
        {
            let gated = reason == "SchedulingGated";
            words.push(Word::of(each, Moment::Known(if gated { "queued" } else { "unschedulable" })));
        }
    }
    let ended = containers(status.container_statuses.as_deref().unwrap_or_default(), &mut words);
    match status.phase.as_deref() {
        Some("Running") => words.push(Word::shown("running", "Running")),
        Some("Succeeded") => over(status, "succeeded", "Succeeded", ended, disrupted, &mut words),
        Some("Failed") => over(status, "failed", "Failed", ended, disrupted, &mut words),
        _ => {}
    }
    words
}

/// Add when containers began; when the last of them ended, none where none has.
fn containers<'a>(statuses: &'a [Container<'_>], words: &mut Vec<Word<'a>>) -> Option<&'a str> {
    let mut ended: Option<&str> = None;
    for container in statuses {
        for (state, now) in [(&container.state, true), (&container.last_state, false)] {
            let Some(ran) = state.as_ref().and_then(|state| state.running.as_ref().or(state.terminated.as_ref()))
            else {
                continue;
            };
            let Some(began) = ran.started_at.as_deref() else { continue };
            let word = Word::timed("started", Source::Field("containerStatuses.startedAt"), began);
            words.push(Word { part: Some(&container.name), shows: now, ..word });
            if now {
                // Times of one server are of one length, so that the later one is the greater text; no text is the least.
                ended = ended.max(ran.finished_at.as_deref());
            }
        }
    }
    ended
}

fn over<'a>(
    status: &'a PodStatus<'_>,
    moment: &'static str,
    phase: &'static str,
    ended: Option<&'a str>,
    disrupted: bool,
    words: &mut Vec<Word<'a>>,
) {
    let because = |word: Word<'a>| word.because(status.reason.as_ref(), status.message.as_ref());
    let source = ended.map(|_| Source::Field("containerStatuses.finishedAt"));
    words.push(Word { source, text: ended, ..because(Word::shown(moment, phase)) });
    if !disrupted && status.reason.as_deref() == Some("Evicted") {
        words.push(because(Word::shown("evicted", phase))); // by a kubelet before 1.26
    }
}

/// What a job, a pod group, a workload in a queue, or another object with conditions says.
pub fn workload<'a>(item: &'a Workload<'_>) -> Vec<Word<'a>> {
    let mut words = of_metadata(&item.metadata);
    let Some(status) = &item.status else { return words };
    if let Some(began) = status.start_time.as_deref() {
        words.push(Word::timed("started", Source::Field("status.startTime"), began));
    }
    for each in status.conditions.iter().flatten().chain(status.scheduling_conditions.iter().flatten()) {
        if *each.status == *"True" {
            let moment = workload_condition(&each.r#type);
            words.push(Word::of(each, moment));
            if moment == Moment::Known("completed")
                && let Some(done) = status.completion_time.as_deref()
            {
                words.push(Word::timed("completed", Source::Field("status.completionTime"), done).later());
            }
        } else if *each.status == *"False"
            && let Some(moment) = workload_condition_false(&each.r#type)
        {
            words.push(Word::of(each, Moment::Known(moment)));
        }
    }
    words
}

/// What a volume claim says. It has no times of its own: who wrote a field says when last.
pub fn claim<'a>(claim: &'a Claim<'_>) -> Vec<Word<'a>> {
    let mut words = of_metadata(&claim.metadata);
    let bound = claim.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Bound"));
    let asked = claim.metadata.annotations.as_ref().and_then(|notes| {
        let node = notes.get("volume.kubernetes.io/selected-node").filter(|node| !node.is_empty());
        let provisioner = || notes.0.iter().find(|(name, _)| name.ends_with("/storage-provisioner"));
        node.or_else(|| provisioner().map(|(_, value)| &**value))
    });
    if let Some(asked) = asked {
        words.push(Word::shown("bind_requested", asked));
    }
    if bound {
        words.push(Word::shown("claim_bound", "Bound"));
    }
    for entry in &claim.written {
        let Some(time) = entry.time.as_deref() else { continue };
        let fields = entry.fields.map_or("", |fields| fields.get());
        let wrote = |moment, token| Word { token, ..Word::timed(moment, Source::ManagedFields(&entry.manager), time) };
        if bound && fields.contains("\"f:volumeName\"") {
            words.push(wrote("claim_bound", "Bound").later());
        } else if fields.contains("/selected-node") || (!bound && fields.contains("/storage-provisioner")) {
            // Whoever binds the claim writes its provisioner, too, and has one time for both.
            words.push(wrote("bind_requested", asked.unwrap_or_default()).later());
        }
    }
    words
}

/// What an Event says of the object that it is about.
///
/// Two sources: `event REASON` (`eventTime` in microseconds, or the whole seconds of old recorders), and `event REASON
/// name`, the nanoseconds in the name that its sender gave it.
pub fn event<'a>(event: &'a Event<'_>) -> Vec<Word<'a>> {
    let reason = event.reason.as_deref().unwrap_or_default();
    let Some(about) = &event.regarding else { return Vec::new() };
    let Some(moment) = event_moment(&about.kind, reason) else { return Vec::new() };
    let part = about.field_path.as_deref().and_then(part);
    let word = |source, text| {
        Word { part, ..Word::timed(moment, source, text) }.because(event.reason.as_ref(), event.note.as_ref()).later()
    };
    let mut words = Vec::with_capacity(3);
    let time = |text: Option<&'a Text<'_>>| given(text);
    let first = time(event.event_time.as_ref()).or_else(|| time(event.deprecated_first_timestamp.as_ref()));
    if let Some(first) = first {
        words.push(word(Source::Event(reason), first));
    }
    let last = match &event.series {
        Some(series) => series.last_observed_time.as_ref(),
        None => event.deprecated_last_timestamp.as_ref(),
    };
    if let Some(last) = given(last).filter(|last| Some(*last) != first) {
        words.push(word(Source::Event(reason), last));
    }
    words.push(Word { text: None, ..word(Source::EventName(reason), &event.metadata.name) });
    words
}

/// The container in `spec.containers{NAME}`.
fn part(path: &str) -> Option<&str> {
    path.strip_prefix("spec.containers{").map(|rest| rest.strip_suffix('}').unwrap_or(rest))
}

fn of_metadata<'a>(metadata: &'a Metadata<'_>) -> Vec<Word<'a>> {
    let mut words = Vec::with_capacity(16);
    if let Some(made) = metadata.creation_timestamp.as_deref() {
        words.push(Word::timed("created", Source::Field("creationTimestamp"), made));
    }
    if let Some(gone) = metadata.deletion_timestamp.as_deref() {
        // The server writes when the object may go at the latest: when that was asked for, and the grace. Asked for once:
        // when the object goes, its time is set anew.
        let before_s = metadata.deletion_grace_period_seconds.unwrap_or(0);
        let word = Word::timed("deleting", Source::Field("deletionTimestamp"), gone);
        words.push(Word { token: "", before_s, ..word });
    }
    words
}
