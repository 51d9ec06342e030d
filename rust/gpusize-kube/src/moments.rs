//! Which moments conditions and Events speak of.

use std::fmt;

/// A moment, by the name that `stamps` has for it.
#[derive(Clone, Copy, Debug, Hash, PartialEq, Eq)]
pub enum Moment<'a> {
    /// One that has a name of its own.
    Known(&'static str),
    /// That another condition became true, by its type.
    Condition(&'a str),
}

impl fmt::Display for Moment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Known(name) => f.write_str(name),
            Self::Condition(kind) => write!(f, "condition:{kind}"),
        }
    }
}

/// What it means that a pod's condition is true.
pub fn pod_condition(kind: &str) -> Moment<'_> {
    Moment::Known(match kind {
        // The second is its name up to 1.27.
        "PodReadyToStartContainers" | "PodHasNetwork" => "ready_to_start",
        "Initialized" => "initialized",
        "ContainersReady" => "containers_ready",
        "Ready" => "ready",
        "PodScheduled" => "scheduled",
        "DisruptionTarget" => "evicted",
        _ => return Moment::Condition(kind),
    })
}

/// What it means that a condition of another object is true.
pub fn workload_condition(kind: &str) -> Moment<'_> {
    Moment::Known(match kind {
        // Job, JobSet, PyTorchJob
        "Complete" | "Completed" | "Succeeded" => "completed",
        "Failed" => "failed",
        "Suspended" => "suspended",
        "Running" => "running",
        // Kueue
        "QuotaReserved" => "quota_reserved",
        "Admitted" => "admitted",
        "PodsReady" => "pods_ready",
        "Finished" => "finished",
        "Evicted" => "evicted",
        "Preempted" => "preempted",
        "Requeued" => "requeued",
        // KAI, and the pod groups of Kubernetes itself
        "UnschedulableOnNodePool" => "unschedulable",
        "PodGroupScheduled" => "scheduled",
        _ => return Moment::Condition(kind),
    })
}

/// What it means that one is false; of others that is no moment.
pub fn workload_condition_false(kind: &str) -> Option<&'static str> {
    match kind {
        "QuotaReserved" => Some("queued"),
        "PodGroupScheduled" => Some("unschedulable"),
        "Suspended" => Some("resumed"),
        _ => None,
    }
}

/// Of which moment an Event speaks, by the kind that it is about and its reason.
///
/// The victim of an eviction is the object that the Event is about, whoever its text names.
pub fn event_moment(kind: &str, reason: &str) -> Option<&'static str> {
    Some(match (kind, reason) {
        ("Pod", "Scheduled") => "scheduled",
        ("Pod", "FailedScheduling") | ("Pod" | "PodGroup", "Unschedulable") => "unschedulable",
        ("Pod", "Started") => "started",
        ("Pod", "Preempted" | "Evict" | "Evicted") | ("PodGroup", "Evict") => "evicted",
        ("Job", "Completed") | ("JobSet", "AllJobsCompleted") => "completed",
        ("Job", "Suspended") => "suspended",
        ("Job", "Resumed") => "resumed",
        ("PersistentVolumeClaim", "ExternalProvisioning" | "Provisioning") => "bind_requested",
        ("PersistentVolumeClaim", "ProvisioningSucceeded") => "claim_bound",
        ("Workload", "Pending") => "queued",
        ("Workload", "QuotaReserved") => "quota_reserved",
        ("Workload", "Admitted") => "admitted",
        ("Workload", "Preempted") => "preempted",
        ("Workload", "Finished" | "FinishedWorkload") => "finished",
        ("Workload", reason) if reason.starts_with("Evicted") => "evicted",
        _ => return None,
    })
}
