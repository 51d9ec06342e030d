//! The instances of one tensor model and the queue in front of them. It has no clock; a driver tells it the time.

use std::collections::VecDeque;

use super::{Payload, TensorModel, ns};

/// A request as the queue sees it.
#[derive(Debug)]
pub struct Job<P> {
    /// When it arrived, in the queue's time.
    pub arrived_ns: i64,
    /// Items of the batch that it holds.
    pub items: u32,
    /// Jobs are executed together only when these agree.
    pub shape: Vec<i64>,
    /// Factor on its share of the execution.
    pub cost_factor: f64,
    /// The driver's own.
    pub payload: P,
}

/// Jobs that are executed together on one instance.
#[derive(Debug)]
pub struct Execution<P> {
    /// Instance that it runs on; instances go round the GPUs.
    pub instance: usize,
    /// When it began.
    pub start_ns: i64,
    /// Time before the computing.
    pub input_ns: i64,
    /// Time of the computing.
    pub infer_ns: i64,
    /// Time after the computing.
    pub output_ns: i64,
    /// Items of all its jobs.
    pub items: u32,
    /// Its jobs.
    pub jobs: Vec<Job<P>>,
    replies: u32,
    made: u32,
}

impl<P> Execution<P> {
    /// When all of it is over.
    pub fn end_ns(&self) -> i64 {
        self.start_ns + self.input_ns + self.infer_ns + self.output_ns
    }

    /// When the next reply is ready: the last with the end, those before evenly through the computing.
    fn next_ns(&self) -> i64 {
        if self.made + 1 >= self.replies {
            return self.end_ns();
        }
        let share = i128::from(self.infer_ns) * i128::from(self.made + 1) / i128::from(self.replies);
        self.start_ns + self.input_ns + share as i64
    }
}

/// What a driver gets to see.
pub trait TensorObserver<P> {
    /// Reply number `reply`, from 0, of every job is ready at `at_ns`; the last comes with `finished`.
    fn reply(&mut self, execution: &Execution<P>, reply: u32, at_ns: i64);
    /// The execution and its last reply are over.
    fn finished(&mut self, execution: Execution<P>);
}

/// The state machine.
#[derive(Debug)]
pub struct TensorQueue<P> {
    model: TensorModel,
    waiting: VecDeque<Job<P>>,
    running: Vec<Execution<P>>,
    idle: Vec<usize>,
    /// GPUs whose instances begin executions: the first so many.
    ready: usize,
    busy_ns: Vec<i64>,
}

impl<P: Payload> TensorQueue<P> {
    /// Idle instances of `model`, on so many GPUs.
    pub fn new(model: &TensorModel, gpus: u32) -> Self {
        let instances = (model.instances * gpus) as usize;
        Self {
            model: model.clone(),
            waiting: VecDeque::new(),
            running: Vec::with_capacity(instances),
            idle: (0..instances).rev().collect(),
            ready: gpus as usize,
            busy_ns: vec![0; gpus as usize],
        }
    }

    /// When something happens next; none when all instances are idle.
    pub fn next_event_ns(&self) -> Option<i64> {
        self.running.iter().map(Execution::next_ns).min()
    }

    /// Take a job at its `arrived_ns`, up to which the queue must have advanced; the job again when the queue is full.
    pub fn arrive(&mut self, job: Job<P>) -> Result<(), Job<P>> {
        let limit = self.model.max_queue_size.map_or(usize::MAX, |limit| limit as usize);
        if self.next_idle().is_none() && self.waiting.len() >= limit {
            return Err(job);
        }
        let now_ns = job.arrived_ns;
        self.waiting.push_back(job);
        self.begin(now_ns);
        Ok(())
    }

    /// Let everything happen that is due at `now_ns` or before.
    pub fn advance(&mut self, now_ns: i64, observer: &mut impl TensorObserver<P>) {
        loop {
            let next = self.running.iter().enumerate().min_by_key(|(_, execution)| execution.next_ns());
            let Some((place, at_ns)) = next.map(|(place, execution)| (place, execution.next_ns())) else { return };
            if at_ns > now_ns {
                return;
            }
            let execution = &mut self.running[place];
            if execution.made + 1 < execution.replies {
                execution.made += 1;
                observer.reply(execution, execution.made - 1, at_ns);
                continue;
            }
            let execution = self.running.swap_remove(place);
            self.idle.push(execution.instance);
            let gpu = execution.instance % self.busy_ns.len();
            self.busy_ns[gpu] += execution.end_ns() - execution.start_ns;
            observer.finished(execution);
            self.begin(at_ns);
        }
    }

    /// From `now_ns` on, only instances on the first `ready` GPUs begin executions; what runs on others goes on to its end.
    pub fn set_ready(&mut self, now_ns: i64, ready: usize) {
        self.ready = ready;
        self.begin(now_ns);
    }

    /// Place of the idle instance that is next to begin.
    fn next_idle(&self) -> Option<usize> {
        let gpus = self.busy_ns.len();
        self.idle.iter().rposition(|instance| instance % gpus < self.ready)
    }

    fn begin(&mut self, now_ns: i64) {
        while let Some(place) = self.next_idle() {
            let jobs = self.take_batch();
            if jobs.is_empty() {
                return;
            }
            let instance = self.idle.remove(place);
            let load: f64 = jobs.iter().map(|job| f64::from(job.items) * job.cost_factor).sum();
            self.running.push(Execution {
                instance,
                start_ns: now_ns,
                input_ns: ns(self.model.input_s),
                infer_ns: ns(self.model.base_s + self.model.per_item_s * load).max(1),
                output_ns: ns(self.model.output_s),
                items: jobs.iter().map(|job| job.items).sum(),
                jobs,
                replies: self.model.decoupled_replies.unwrap_or(1),
                made: 0,
            });
        }
    }

    /// The head of the queue, and those right behind it that can be executed with it; those whose clients have left are dropped.
    fn take_batch(&mut self) -> Vec<Job<P>> {
        let mut jobs: Vec<Job<P>> = Vec::new();
        let mut items = 0;
        while let Some(head) = self.waiting.front() {
            if !head.payload.cancelled() {
                let fits = match jobs.first() {
                    None => true,
                    Some(first) => {
                        self.model.batches()
                            && first.shape == head.shape
                            && items + head.items <= self.model.max_batch_size
                    }
                };
                if !fits {
                    break;
                }
            }
            let Some(job) = self.waiting.pop_front() else { break };
            if !job.payload.cancelled() {
                items += job.items;
                jobs.push(job);
            }
        }
        jobs
    }

    /// Jobs in the queue.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Jobs under way.
    pub fn running(&self) -> usize {
        self.running.iter().map(|execution| execution.jobs.len()).sum()
    }

    /// Time that the instances of a GPU have been busy up to `now_ns`.
    pub fn busy_ns(&self, gpu: usize, now_ns: i64) -> i64 {
        let gpus = self.busy_ns.len();
        let under_way = self.running.iter().filter(|execution| execution.instance % gpus == gpu);
        self.busy_ns[gpu] + under_way.map(|execution| (now_ns - execution.start_ns).max(0)).sum::<i64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Ticket(char, bool);

    impl Payload for Ticket {
        fn cancelled(&self) -> bool {
            self.1
        }
    }

    #[derive(Debug, Default)]
    struct Log(Vec<(i64, String)>);

    impl TensorObserver<Ticket> for Log {
        fn reply(&mut self, _: &Execution<Ticket>, reply: u32, at_ns: i64) {
            self.0.push((at_ns, format!("reply {reply}")));
        }

        fn finished(&mut self, execution: Execution<Ticket>) {
            let names: String = execution.jobs.iter().map(|job| job.payload.0).collect();
            self.0.push((execution.end_ns(), names));
        }
    }

    fn model() -> TensorModel {
        // 100 ns + 10 ns per item.
        TensorModel {
            base_s: 1e-7,
            per_item_s: 1e-8,
            input_s: 0.0,
            output_s: 0.0,
            max_batch_size: 4,
            ..TensorModel::default()
        }
    }

    fn job(name: char, arrived_ns: i64, items: u32, shape: &[i64]) -> Job<Ticket> {
        Job { arrived_ns, items, shape: shape.to_vec(), cost_factor: 1.0, payload: Ticket(name, false) }
    }

    fn run(model: &TensorModel, gpus: u32, jobs: Vec<Job<Ticket>>) -> Vec<(i64, String)> {
        let mut queue = TensorQueue::new(model, gpus);
        let mut log = Log::default();
        for job in jobs {
            queue.advance(job.arrived_ns, &mut log);
            queue.arrive(job).expect("room");
        }
        queue.advance(i64::MAX, &mut log);
        assert_eq!((queue.waiting(), queue.running(), queue.next_event_ns()), (0, 0, None));
        log.0
    }

    fn ends(of: &[(i64, &str)]) -> Vec<(i64, String)> {
        of.iter().map(|&(at_ns, names)| (at_ns, names.to_owned())).collect()
    }

    #[test]
    fn what_waits_is_executed_together_up_to_the_limit_and_only_in_one_shape() {
        let jobs = || {
            let mut jobs = vec![job('a', 0, 1, &[2]), job('b', 5, 2, &[2]), job('c', 6, 1, &[2]), job('d', 7, 2, &[2])];
            jobs.push(job('e', 8, 1, &[3]));
            jobs
        };
        assert_eq!(run(&model(), 1, jobs()), ends(&[(110, "a"), (240, "bc"), (360, "d"), (470, "e")]));
        let alone = TensorModel { dynamic_batching: false, ..model() };
        let expected = [(110, "a"), (230, "b"), (340, "c"), (460, "d"), (570, "e")];
        assert_eq!(run(&alone, 1, jobs()), ends(&expected));
    }

    #[test]
    fn every_instance_of_every_gpu_works() {
        let two = TensorModel { instances: 2, dynamic_batching: false, ..model() };
        let jobs = (0..5).map(|n| job((b'a' + n) as char, 0, 1, &[1])).collect();
        let log = run(&two, 2, jobs);
        assert_eq!(log.iter().filter(|(at_ns, _)| *at_ns == 110).count(), 4);
        assert_eq!(log.last(), Some(&(220, "e".to_owned())));
    }

    #[test]
    fn instances_of_removed_gpus_finish_and_those_of_new_ones_take_what_waits() {
        let alone = TensorModel { dynamic_batching: false, ..model() };
        let mut queue = TensorQueue::new(&alone, 2);
        let mut log = Log::default();
        queue.set_ready(0, 1);
        for (name, at_ns) in [('a', 0), ('b', 10), ('c', 20), ('d', 30)] {
            queue.arrive(job(name, at_ns, 1, &[1])).expect("room");
        }
        queue.advance(50, &mut log);
        assert_eq!((queue.running(), queue.busy_ns(1, 50)), (1, 0));
        queue.set_ready(50, 2);
        assert_eq!((queue.running(), queue.busy_ns(1, 60)), (2, 10));
        queue.advance(120, &mut log);
        queue.set_ready(120, 1);
        queue.advance(1000, &mut log);
        assert_eq!(log.0, ends(&[(110, "a"), (160, "b"), (220, "c"), (330, "d")]));
        assert_eq!(queue.busy_ns(1, 1000), 110);
    }

    #[test]
    fn replies_are_spread_through_the_computing() {
        let decoupled =
            TensorModel { decoupled_replies: Some(3), input_s: 1e-8, output_s: 2e-8, base_s: 8e-8, ..model() };
        let log = run(&decoupled, 1, vec![job('a', 0, 1, &[1])]);
        assert_eq!(log, ends(&[(40, "reply 0"), (70, "reply 1"), (120, "a")]));
    }

    #[test]
    fn a_full_queue_gives_the_job_back_and_those_who_left_take_no_room_in_a_batch() {
        let mut queue = TensorQueue::new(&TensorModel { max_queue_size: Some(2), ..model() }, 1);
        queue.arrive(job('a', 0, 1, &[1])).expect("idle");
        queue.arrive(Job { payload: Ticket('b', true), ..job('b', 1, 4, &[1]) }).expect("room");
        queue.arrive(job('c', 1, 4, &[1])).expect("room");
        assert_eq!(queue.arrive(job('d', 1, 1, &[1])).expect_err("full").payload.0, 'd');
        assert_eq!(queue.busy_ns(0, 60), 60);
        let mut log = Log::default();
        queue.advance(1000, &mut log);
        assert_eq!(log.0, ends(&[(110, "a"), (250, "c")]));
        assert_eq!(queue.busy_ns(0, 1000), 250);
    }
}
