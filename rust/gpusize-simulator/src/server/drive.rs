//! What moves the cluster: the task that lets its iterations end on time, and what an administrator asks of it.

use std::io;
use std::rc::Rc;

use super::super::autoscale::Autoscaler;
use super::super::autoscale::front::Waiting;
use super::super::{Cluster, Gpu, Observer, Running, Sequence, Watch};
use super::metrics::Metrics;
use super::state::{ReplicaChange, Shared};
use super::ticket::Ticket;
use gpusize_load::pace::timer::Timer;

impl Shared {
    /// Let iterations and executions end when they are due, until the timer fails.
    pub(super) async fn run_cluster(&self) -> io::Error {
        let timer = match Timer::new() {
            Ok(timer) => timer,
            Err(error) => return error,
        };
        loop {
            let Some(next_ns) = self.next_event_ns() else {
                self.changed.notified().await;
                continue;
            };
            let waited = tokio::select! {
                biased;
                waited = timer.wait_until(self.epoch_ns + next_ns) => waited,
                () = self.changed.notified() => continue,
            };
            if let Err(error) = waited {
                return error;
            }
            self.catch_up(self.model_ns(self.now_ns()));
            self.thawed.notify_waiters();
        }
    }

    /// When something is to be done next, as the world sees it: in a stall, its end.
    fn next_event_ns(&self) -> Option<i64> {
        let stalls = self.stalls.borrow();
        let now_ns = self.now_ns();
        let thawed_ns = stalls.thawed_ns(now_ns);
        if thawed_ns > now_ns {
            return Some(thawed_ns);
        }
        let of_tensors_ns = self.tensors.borrow().next_event_ns();
        let of_cluster_ns = self.cluster.borrow().next_event_ns();
        let of_autoscaler_ns = self.autoscaler.borrow().as_ref().map(Autoscaler::next_ns);
        of_cluster_ns
            .into_iter()
            .chain(of_autoscaler_ns)
            .chain(of_tensors_ns)
            .min()
            .map(|model_ns| stalls.to_world_ns(model_ns))
    }

    /// Let everything happen that is due at `model_ns`, also what the engine is late for.
    pub(super) fn catch_up(&self, model_ns: i64) {
        let mut delivery = Delivery { shared: self, metrics: &mut self.metrics.borrow_mut() };
        self.advance(&mut self.cluster.borrow_mut(), model_ns, &mut delivery);
        self.tensors.borrow_mut().advance(model_ns, &self.stalls.borrow(), self.epoch_wall_s);
    }

    /// Let the cluster's events happen that are due at `model_ns` or before, and what its autoscaler does between them.
    pub(super) fn advance(&self, cluster: &mut Cluster<Gpu<Rc<Ticket>>>, model_ns: i64, delivery: &mut Delivery<'_>) {
        if let Some(autoscaler) = self.autoscaler.borrow_mut().as_mut() {
            while autoscaler.next_ns() <= model_ns {
                let act_ns = autoscaler.next_ns();
                cluster.advance(act_ns, delivery);
                let waiting = Waiting { arrived: self.requests(), held: 0 };
                if let Some(replicas) = autoscaler.act(act_ns, cluster, None, waiting) {
                    cluster.scale(act_ns, replicas, delivery);
                }
            }
        }
        cluster.advance(model_ns, delivery);
    }

    /// Ask for so many replicas, now.
    pub(super) fn scale(&self, replicas: u32) {
        let model_ns = self.model_ns(self.now_ns());
        self.catch_up(model_ns);
        let mut delivery = Delivery { shared: self, metrics: &mut self.metrics.borrow_mut() };
        self.cluster.borrow_mut().scale(model_ns, replicas, &mut delivery);
        self.changed.notify_one();
    }

    /// Freeze everything from `now_ns` on, which is now; when that ends, as the world sees it.
    pub(super) fn freeze(&self, now_ns: i64, length_ns: i64) -> i64 {
        self.catch_up(self.model_ns(now_ns));
        let thawed_ns = self.stalls.borrow_mut().freeze(now_ns, length_ns);
        self.changed.notify_one();
        thawed_ns
    }

    /// Whether a stall is on.
    pub(super) fn is_frozen(&self) -> bool {
        let now_ns = self.now_ns();
        self.stalls.borrow().thawed_ns(now_ns) > now_ns
    }

    /// Wait while a stall is on.
    pub(super) async fn thaw(&self) {
        loop {
            let thawed = self.thawed.notified();
            if !self.is_frozen() {
                return;
            }
            // An idle engine does not know that anybody waits for the end of the stall.
            self.changed.notify_one();
            thawed.await;
        }
    }
}

/// Takes what the cluster makes to the tickets and the metrics.
pub(super) struct Delivery<'a> {
    pub shared: &'a Shared,
    pub metrics: &'a mut Metrics,
}

impl Watch for Delivery<'_> {
    fn replicas(&mut self, at_ns: i64, desired: usize, ready: usize) {
        self.shared.note_replicas(ReplicaChange { at_ns, desired, ready });
        let mut tensors = self.shared.tensors.borrow_mut();
        // What ends before has ended with the instances that there were.
        tensors.advance(at_ns, &self.shared.stalls.borrow(), self.shared.epoch_wall_s);
        tensors.set_ready(at_ns, ready);
    }
}

impl Observer<Rc<Ticket>> for Delivery<'_> {
    fn iterations(
        &mut self,
        gpu: usize,
        end_ns: i64,
        iteration_ns: i64,
        count: u64,
        batch: &[Running<Rc<Ticket>>],
        fresh: usize,
    ) {
        let world_ns = self.shared.stalls.borrow().to_world_ns(end_ns);
        for running in batch {
            running.sequence.payload.deliver(count as u32, world_ns);
        }
        for running in &batch[fresh..] {
            let admitted_ns = self.shared.stalls.borrow().to_world_ns(running.admitted_ns);
            running.sequence.payload.begin(admitted_ns, world_ns);
        }
        let counts = &mut self.metrics.gpus[gpu];
        counts.note_iteration(iteration_ns, batch.len(), fresh);
        for running in &batch[fresh..] {
            counts.note_first_token(running, end_ns);
        }
    }

    fn finished(&mut self, gpu: usize, end_ns: i64, running: Running<Rc<Ticket>>, tokens: u32) {
        self.metrics.gpus[gpu].note_end(&running, end_ns, tokens, running.sequence.payload.is_cut());
        running.sequence.payload.finish(self.shared.stalls.borrow().to_world_ns(end_ns));
    }

    fn abandoned(&mut self, _sequence: Sequence<Rc<Ticket>>) {
        self.metrics.abandoned += 1;
    }
}
