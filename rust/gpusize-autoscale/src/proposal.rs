//! How many replicas one metric asks for.

use crate::NS_PER_S;
use crate::policy::{HpaPolicy, MetricSpec, Source, Target};
use crate::seen::{Phase, Pod, PodReading, Reading, Seen};

/// Replicas that the metric at `place` of the policy asks for; `None`: it cannot be told.
pub(crate) fn propose(policy: &HpaPolicy, place: usize, seen: &Seen) -> Option<i32> {
    let MetricSpec { source, target } = policy.metrics[place];
    match (seen.readings.get(place)?, target) {
        (Reading::Values(values), Target::Value(target)) => by_value(policy, seen, total(values)?, target),
        (Reading::Values(values), Target::AverageValue(target)) => {
            Some(by_average(policy, seen, total(values)?, target))
        }
        (Reading::PerPod(readings), Target::AverageValue(target)) => {
            by_pods(policy, seen, readings, source, &Wanted::Average(target))
        }
        (Reading::PerPod(readings), Target::Utilization(target)) => {
            by_pods(policy, seen, readings, source, &Wanted::Utilization(target))
        }
        _ => None,
    }
}

/// The sum of several series of one metric, at most what a counter holds.
fn total(values: &[i64]) -> Option<i64> {
    (!values.is_empty()).then(|| values.iter().fold(0, |sum: i64, &value| sum.saturating_add(value)))
}

/// `Value`: in proportion to the pods that are ready.
fn by_value(policy: &HpaPolicy, seen: &Seen, usage: i64, target: i64) -> Option<i32> {
    let ratio = usage as f64 / target as f64;
    if seen.spec_replicas == 0 {
        return Some(ratio.ceil() as i32);
    }
    if policy.tolerances().hold(ratio) {
        return Some(seen.spec_replicas);
    }
    if seen.pods.is_empty() {
        return None;
    }
    let ready = seen.pods.iter().filter(|pod| pod.phase == Phase::Running && pod.ready == Some(true)).count();
    Some((ratio * ready as f64).ceil() as i32)
}

/// `AverageValue` of a metric that no pod has: over all pods, whether they are ready or not.
fn by_average(policy: &HpaPolicy, seen: &Seen, usage: i64, target: i64) -> i32 {
    let ratio = usage as f64 / (target as f64 * f64::from(seen.status_replicas));
    if policy.tolerances().hold(ratio) {
        return seen.status_replicas;
    }
    (usage as f64 / target as f64).ceil() as i32
}

/// What the pods' values are held against.
enum Wanted {
    Average(i64),
    Utilization(i32),
}

impl Wanted {
    /// Of the values that are there, over the target; `None` without any to go by.
    fn ratio(&self, values: &[Option<i64>], pods: &[Pod]) -> Option<f64> {
        let known = || values.iter().zip(pods).filter_map(|(value, pod)| value.map(|value| (value, pod.request)));
        let sum: i64 = known().map(|(value, _)| value).sum();
        match *self {
            Self::Average(target) => {
                let average = sum / i64::try_from(known().count()).ok().filter(|&count| count > 0)?;
                Some(average as f64 / target as f64)
            }
            Self::Utilization(target) => {
                let requested: i64 = known().map(|(_, request)| request).sum();
                let percent = (sum * 100).checked_div(requested)? as i32;
                Some(f64::from(percent) / f64::from(target))
            }
        }
    }

    /// What a pod without a value is taken to have as replicas are to go: so much that it is no reason to remove one.
    fn on_target(&self, pod: &Pod) -> i64 {
        match *self {
            Self::Average(target) => target,
            Self::Utilization(target) => pod.request * i64::from(target.max(100)) / 100,
        }
    }
}

/// What the controller makes of one pod and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Ready,
    Unready,
    Missing,
    Ignored,
}

/// A metric of which each pod has its own value. Pods without one count so that they hold back what the others ask for.
fn by_pods(
    policy: &HpaPolicy,
    seen: &Seen,
    readings: &[Option<PodReading>],
    source: Source,
    wanted: &Wanted,
) -> Option<i32> {
    let pods = &seen.pods;
    let reading = |place: usize| readings.get(place).copied().flatten();
    let standing: Vec<Standing> = pods
        .iter()
        .enumerate()
        .map(|(place, pod)| standing(policy, seen.now_ns, pod, reading(place), source))
        .collect();
    let count = |kind| standing.iter().filter(|&&each| each == kind).count();
    let mut values: Vec<Option<i64>> = (0..pods.len())
        .map(|place| reading(place).filter(|_| standing[place] == Standing::Ready).map(|one| one.value))
        .collect();
    if values.iter().all(Option::is_none) {
        return None;
    }
    let tolerances = policy.tolerances();
    let ratio = wanted.ratio(&values, pods)?;
    let up_with_unready = count(Standing::Unready) > 0 && ratio > 1.0;
    if !up_with_unready && count(Standing::Missing) == 0 {
        let held = tolerances.hold(ratio);
        return Some(if held { seen.spec_replicas } else { (ratio * count(Standing::Ready) as f64).ceil() as i32 });
    }
    for (place, value) in values.iter_mut().enumerate() {
        match standing[place] {
            Standing::Missing if ratio < 1.0 => *value = Some(wanted.on_target(&pods[place])),
            Standing::Missing if ratio > 1.0 => *value = Some(0),
            Standing::Unready if up_with_unready => *value = Some(0),
            _ => {}
        }
    }
    let again = wanted.ratio(&values, pods)?;
    if tolerances.hold(again) || (ratio < 1.0 && again > 1.0) || (ratio > 1.0 && again < 1.0) {
        return Some(seen.spec_replicas);
    }
    let replicas = (again * values.iter().flatten().count() as f64).ceil() as i32;
    let turns = (again < 1.0 && replicas > seen.spec_replicas) || (again > 1.0 && replicas < seen.spec_replicas);
    Some(if turns { seen.spec_replicas } else { replicas })
}

fn standing(policy: &HpaPolicy, now_ns: i64, pod: &Pod, reading: Option<PodReading>, source: Source) -> Standing {
    if pod.deleted || pod.phase == Phase::Failed {
        return Standing::Ignored;
    }
    if pod.phase == Phase::Pending {
        return Standing::Unready;
    }
    let Some(reading) = reading else { return Standing::Missing };
    if source == Source::Cpu && is_starting(policy, now_ns, pod, reading) { Standing::Unready } else { Standing::Ready }
}

/// Whether what a pod uses of the CPU is still that of its start.
fn is_starting(policy: &HpaPolicy, now_ns: i64, pod: &Pod, reading: PodReading) -> bool {
    let (Some(ready), Some(started_ns)) = (pod.ready, pod.started_ns) else { return true };
    if started_ns + policy.cpu_initialization_s * NS_PER_S > now_ns {
        return !ready || reading.at_ns < pod.ready_since_ns + reading.window_ns;
    }
    !ready && started_ns + policy.initial_readiness_s * NS_PER_S > pod.ready_since_ns
}
