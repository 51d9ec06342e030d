//! The parts of objects that words are made of. All other fields are passed over, null is as good as missing where a field
//! may be missing.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::text::Text;

/// An object's `metadata`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Metadata<'a> {
    /// Its name.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// Where it is.
    #[serde(borrow)]
    pub namespace: Option<Text<'a>>,
    /// What it is known by.
    #[serde(borrow)]
    pub uid: Text<'a>,
    /// Its version.
    #[serde(borrow)]
    pub resource_version: Text<'a>,
    /// When it was made.
    #[serde(borrow)]
    pub creation_timestamp: Option<Text<'a>>,
    /// When it may go at the latest.
    #[serde(borrow)]
    pub deletion_timestamp: Option<Text<'a>>,
    /// How long before that its deletion was asked for.
    pub deletion_grace_period_seconds: Option<i64>,
    /// Names and values.
    #[serde(borrow)]
    pub labels: Option<Pairs<'a>>,
    /// Names and values.
    #[serde(borrow)]
    pub annotations: Option<Pairs<'a>>,
    /// What it goes with.
    #[serde(borrow)]
    pub owner_references: Option<Vec<Owner<'a>>>,
}

/// An entry of `ownerReferences`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct Owner<'a> {
    /// The owner's.
    #[serde(borrow)]
    pub uid: Text<'a>,
}

/// An entry of `managedFields`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct Written<'a> {
    /// Who.
    #[serde(borrow)]
    pub manager: Text<'a>,
    /// When last.
    #[serde(borrow)]
    pub time: Option<Text<'a>>,
    /// Which fields, as they came.
    #[serde(borrow, rename = "fieldsV1")]
    pub fields: Option<&'a RawValue>,
}

/// A condition in any object's status.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition<'a> {
    /// Such as `Ready`.
    #[serde(borrow)]
    pub r#type: Text<'a>,
    /// `True`, `False` or `Unknown`.
    #[serde(borrow)]
    pub status: Text<'a>,
    /// Since when.
    #[serde(borrow)]
    pub last_transition_time: Option<Text<'a>>,
    /// In one word.
    #[serde(borrow)]
    pub reason: Option<Text<'a>>,
    /// In more.
    #[serde(borrow)]
    pub message: Option<Text<'a>>,
}

/// A pod.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Pod<'a> {
    /// Its own.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// What it is to be.
    #[serde(borrow, default)]
    pub spec: Option<PodSpec<'a>>,
    /// What it is.
    #[serde(borrow, default)]
    pub status: Option<PodStatus<'a>>,
}

/// A pod's `spec`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodSpec<'a> {
    /// The node that it is bound to.
    #[serde(borrow)]
    pub node_name: Option<Text<'a>>,
    /// What it mounts.
    #[serde(borrow)]
    pub volumes: Option<Vec<Volume<'a>>>,
}

/// A pod's volume.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Volume<'a> {
    /// Where it is one of those.
    #[serde(borrow)]
    pub persistent_volume_claim: Option<ClaimName<'a>>,
}

/// A volume's claim.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClaimName<'a> {
    /// In the pod's namespace.
    #[serde(borrow)]
    pub claim_name: Text<'a>,
}

/// A pod's `status`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodStatus<'a> {
    /// From `Pending` to `Succeeded` or `Failed`.
    #[serde(borrow)]
    pub phase: Option<Text<'a>>,
    /// Of the phase.
    #[serde(borrow)]
    pub reason: Option<Text<'a>>,
    /// Of the phase.
    #[serde(borrow)]
    pub message: Option<Text<'a>>,
    /// What holds.
    #[serde(borrow)]
    pub conditions: Option<Vec<Condition<'a>>>,
    /// Of each container.
    #[serde(borrow)]
    pub container_statuses: Option<Vec<Container<'a>>>,
}

/// A container's status.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container<'a> {
    /// In its pod.
    #[serde(borrow)]
    pub name: Text<'a>,
    /// Now.
    #[serde(borrow)]
    pub state: Option<State<'a>>,
    /// Before it was started again.
    #[serde(borrow)]
    pub last_state: Option<State<'a>>,
}

/// A container's state: one of the two, or neither while it waits.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct State<'a> {
    /// It runs.
    #[serde(borrow)]
    pub running: Option<Ran<'a>>,
    /// It has run.
    #[serde(borrow)]
    pub terminated: Option<Ran<'a>>,
}

/// A container that runs or has run.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ran<'a> {
    /// From then on.
    #[serde(borrow)]
    pub started_at: Option<Text<'a>>,
    /// Until then.
    #[serde(borrow)]
    pub finished_at: Option<Text<'a>>,
}

/// A job, a pod group, a workload in a queue, or any other object with conditions.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Workload<'a> {
    /// Its own.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// As it came: only Run:ai's workloads have their name in it.
    #[serde(borrow, default)]
    pub spec: Option<&'a RawValue>,
    /// What it is.
    #[serde(borrow, default)]
    pub status: Option<WorkloadStatus<'a>>,
}

/// A workload's `status`: conditions, and times of their own.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WorkloadStatus<'a> {
    /// What holds.
    #[serde(borrow)]
    pub conditions: Option<Vec<Condition<'a>>>,
    /// Of a Run:ai or KAI pod group.
    #[serde(borrow)]
    pub scheduling_conditions: Option<Vec<Condition<'a>>>,
    /// Of a job.
    #[serde(borrow)]
    pub start_time: Option<Text<'a>>,
    /// Of a job.
    #[serde(borrow)]
    pub completion_time: Option<Text<'a>>,
}

/// A volume claim.
#[derive(Clone, Debug, serde::Deserialize)]
pub struct Claim<'a> {
    /// Its own.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// What it is.
    #[serde(borrow, default)]
    pub status: Option<ClaimStatus<'a>>,
    /// Of [`Managed`]: half of an object is `managedFields`, and only a claim's are looked at.
    #[serde(skip)]
    pub written: Vec<Written<'a>>,
}

/// Who wrote which fields of an object.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct Managed<'a> {
    /// With nothing else in it.
    #[serde(borrow)]
    pub metadata: ManagedMetadata<'a>,
}

/// What is in a `metadata` beside [`Metadata`].
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ManagedMetadata<'a> {
    /// Who wrote which fields, and when last.
    #[serde(borrow)]
    pub managed_fields: Option<Vec<Written<'a>>>,
}

/// A claim's `status`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default)]
pub struct ClaimStatus<'a> {
    /// `Bound`, or not yet.
    #[serde(borrow)]
    pub phase: Option<Text<'a>>,
}

/// An Event of `events.k8s.io/v1`, whoever wrote it: legacy ones have the `deprecated` times.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event<'a> {
    /// Its own.
    #[serde(borrow)]
    pub metadata: Metadata<'a>,
    /// The object that it is about.
    #[serde(borrow, default)]
    pub regarding: Option<Regarded<'a>>,
    /// In one word.
    #[serde(borrow, default)]
    pub reason: Option<Text<'a>>,
    /// In more.
    #[serde(borrow, default)]
    pub note: Option<Text<'a>>,
    /// When, in microseconds.
    #[serde(borrow, default)]
    pub event_time: Option<Text<'a>>,
    /// Where it repeated.
    #[serde(borrow, default)]
    pub series: Option<Series<'a>>,
    /// When first, in seconds.
    #[serde(borrow, default)]
    pub deprecated_first_timestamp: Option<Text<'a>>,
    /// When last, in seconds.
    #[serde(borrow, default)]
    pub deprecated_last_timestamp: Option<Text<'a>>,
}

impl Event<'_> {
    /// What words are made of, kept beyond the document.
    pub fn into_owned(self) -> Event<'static> {
        let own = |text: Option<Text<'_>>| text.map(Text::into_owned);
        Event {
            metadata: Metadata { name: self.metadata.name.into_owned(), ..Metadata::default() },
            regarding: self.regarding.map(|about| Regarded {
                kind: about.kind.into_owned(),
                uid: about.uid.into_owned(),
                field_path: own(about.field_path),
            }),
            reason: own(self.reason),
            note: own(self.note),
            event_time: own(self.event_time),
            series: self.series.map(|series| Series { last_observed_time: own(series.last_observed_time) }),
            deprecated_first_timestamp: own(self.deprecated_first_timestamp),
            deprecated_last_timestamp: own(self.deprecated_last_timestamp),
        }
    }
}

/// The object that an Event is about.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Regarded<'a> {
    /// Its kind.
    #[serde(borrow)]
    pub kind: Text<'a>,
    /// What it is known by.
    #[serde(borrow)]
    pub uid: Text<'a>,
    /// Which part of it, such as `spec.containers{main}`.
    #[serde(borrow)]
    pub field_path: Option<Text<'a>>,
}

/// How an Event repeated.
#[derive(Clone, Debug, Default, serde::Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Series<'a> {
    /// When last.
    #[serde(borrow)]
    pub last_observed_time: Option<Text<'a>>,
}

/// Names with values, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Pairs<'a>(pub Vec<(Text<'a>, Text<'a>)>);

impl Pairs<'_> {
    /// The value of a name; of several the last one's.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().rev().find_map(|(each, value)| (**each == *name).then_some(&**value))
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Pairs<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Pairs<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("names with strings")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
                let mut pairs = Vec::new();
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Pairs(pairs))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}
