//! One instance of an engine: who is in an iteration, how much of the cache they hold, and who has to go.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::draws::{Draws, Purpose};
use crate::engine::sequence::{PARTS, Sequence, Slot, parts};
use crate::engine::{Chances, Engine, Prompts, Stretch, Work};
use crate::server::Told;

/// What an instance does with its requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// All, or what is left of those whose prompts were computed elsewhere.
    Whole,
    /// Prompts alone.
    Prompts,
}

/// One instance, with a time of its own.
#[derive(Debug)]
pub struct Instance<'a> {
    config: &'a Engine,
    role: Role,
    chances: Chances,
    jitter: Draws,
    speed: f64,
    slots: Vec<Slot>,
    free: Vec<u32>,
    waiting: VecDeque<Sequence>,
    prefilling: VecDeque<u32>,
    /// (step after which it has all its tokens, slot, generation).
    leaving: BinaryHeap<Reverse<(i64, u32, u32)>>,
    /// Running ones as they were let in; entries of older generations are void.
    admitted: Vec<(u32, u32)>,
    running: usize,
    decoding: u64,
    /// Parts of tokens: contexts of the decoding sequences, what a step adds to them, what the cache holds and can hold.
    context: i64,
    growth: i64,
    held: i64,
    room: i64,
    steps: i64,
    start_s: f64,
    /// Iterations under way.
    stretch: Stretch,
    stretches: u64,
    /// Whether they decode, and whether somebody new could join before they are over.
    decodes: bool,
    open: bool,
    /// (slot, prompt tokens per iteration) of those under way, in the order of `prefilling`.
    chunks: Vec<(u32, u32)>,
    preemptions: u64,
    prompt_tokens: u64,
}

impl<'a> Instance<'a> {
    /// An idle one; `number` tells its draws from those of others.
    pub fn new(config: &'a Engine, role: Role, chances: Chances, seed: u64, number: u64) -> Self {
        let cache = config.cache_tokens - u64::from(config.prefix.common);
        Self {
            config,
            role,
            chances,
            jitter: Draws::new(seed, Purpose::Jitter, number),
            speed: Draws::new(seed, Purpose::Speed, number).factor(0, config.speed_sigma),
            slots: Vec::new(),
            free: Vec::new(),
            waiting: VecDeque::new(),
            prefilling: VecDeque::new(),
            leaving: BinaryHeap::new(),
            admitted: Vec::new(),
            running: 0,
            decoding: 0,
            context: 0,
            growth: 0,
            held: 0,
            room: (cache as i64) << PARTS,
            steps: 0,
            start_s: 0.0,
            stretch: Stretch::default(),
            stretches: 0,
            decodes: false,
            open: false,
            chunks: Vec::new(),
            preemptions: 0,
            prompt_tokens: 0,
        }
    }

    /// How often a sequence was sent away for lack of room.
    pub fn preemptions(&self) -> u64 {
        self.preemptions
    }

    /// Prompt tokens computed, again after a preemption included.
    pub fn prompt_tokens(&self) -> u64 {
        self.prompt_tokens
    }

    /// Whether nobody is in it, and nothing is held.
    pub fn is_empty(&self) -> bool {
        let sums = (self.held, self.context, self.growth, self.decoding);
        self.load() == 0 && self.prefilling.is_empty() && sums == (0, 0, 0, 0)
    }

    /// Sequences that run or wait.
    pub fn load(&self) -> usize {
        self.running + self.waiting.len()
    }

    /// When something happens next.
    pub fn next_s(&self) -> Option<f64> {
        (self.stretch.count > 0).then(|| self.start_s + self.stretch.time_s(self.stretch.count))
    }

    /// Take a request at `now_s`, up to which all events have happened.
    pub fn arrive(&mut self, now_s: f64, sequence: Sequence) {
        // As the longest context that the engine serves: what would not fit alone is cut.
        let most = ((self.room >> PARTS) as u32).saturating_sub(2 * self.config.block).max(2);
        let prompt = sequence.prompt.min(most - 1);
        let output = sequence.output.min(most - prompt).max(sequence.made + 1);
        let first = self.waiting.is_empty();
        self.waiting.push_back(Sequence { prompt, output, to_compute: sequence.to_compute.min(prompt), ..sequence });
        if self.stretch.count == 0 {
            self.begin(now_s);
        } else if first && self.open {
            self.stretch.cut(now_s - self.start_s);
        }
    }

    /// Tokens of the prompt that are in the part that is held once for all.
    fn shared(&self, sequence: &Sequence) -> u32 {
        let common = self.config.prefix.common;
        if sequence.prompt > common { common } else { 0 }
    }

    /// Parts of tokens that it holds with no token of this stay: its own context and half of its last block.
    fn own(&self, sequence: &Sequence) -> i64 {
        parts(sequence.prompt - self.shared(sequence) + sequence.made) + (parts(self.config.block) >> 1)
    }

    fn begin(&mut self, now_s: f64) {
        self.start_s = now_s;
        self.stretch.count = 0;
        self.chunks.clear();
        let sent_away = self.make_room();
        let left = self.schedule(sent_away);
        if self.running == 0 {
            return;
        }
        let whole = self.config.prompts == Prompts::First;
        self.decodes = self.decoding > 0 && (!whole || self.chunks.is_empty());
        let (work, most) = self.work(left);
        // Whoever waits behind one that was sent away may come in with the next iteration.
        let most = if sent_away && !self.waiting.is_empty() { 1 } else { most };
        self.open = self.running < self.config.sequences && (left > 0 || whole);
        let drafts_s = self.config.speculative.map_or(0.0, |speculative| speculative.draft_s);
        let mut stretch = self.config.roof.stretch(&work, most);
        if self.decodes {
            stretch.first_s += drafts_s;
        }
        self.stretches += 1;
        let sigma = self.config.jitter_sigma / (stretch.count as f64).sqrt();
        self.stretch = stretch.slowed(self.speed * self.jitter.factor(self.stretches, sigma));
    }

    /// What the iteration that begins does, and how many such may follow each other.
    fn work(&mut self, left: u64) -> (Work, u64) {
        let mut work = Work { sequences: self.chunks.len(), ..Work::default() };
        let mut most = u64::MAX;
        if self.decodes {
            work.tokens = self.decoding * self.config.step_tokens();
            work.sequences += self.decoding as usize;
            work.read = self.context as f64 / f64::from(1 << PARTS);
            work.read_grow = self.growth as f64 / f64::from(1 << PARTS);
            most = self.until_one_leaves().min(((self.room - self.held) / self.growth.max(1)).max(1) as u64);
        }
        for &(slot, chunk) in &self.chunks {
            let sequence = &self.slots[slot as usize].sequence;
            let done = f64::from(sequence.prompt + sequence.made - sequence.to_compute);
            let tokens = f64::from(chunk);
            work.tokens += u64::from(chunk);
            work.pairs += tokens * (done + f64::midpoint(tokens, 1.0));
            work.read += done;
        }
        match self.chunks[..] {
            [] => {}
            // A long prompt that takes all that the budget leaves: equal chunks, but for the last one.
            [(slot, chunk)] if left == 0 && self.slots[slot as usize].sequence.to_compute > chunk => {
                work.pairs_grow = f64::from(chunk) * f64::from(chunk);
                work.read_grow += f64::from(chunk);
                most = most.min(u64::from((self.slots[slot as usize].sequence.to_compute - 1) / chunk));
            }
            _ => most = 1,
        }
        (work, most)
    }

    fn until_one_leaves(&mut self) -> u64 {
        while let Some(&Reverse((at, slot, generation))) = self.leaving.peek() {
            if self.is_current(slot, generation) {
                return (at - self.steps).max(1) as u64;
            }
            self.leaving.pop();
        }
        1
    }

    fn is_current(&self, slot: u32, generation: u32) -> bool {
        let slot = &self.slots[slot as usize];
        slot.live && slot.generation == generation
    }

    /// Send the youngest away until a step fits; whether any was.
    fn make_room(&mut self) -> bool {
        let mut any = false;
        while self.running > 1 && self.held + self.growth > self.room {
            let Some((slot, generation)) = self.admitted.pop() else { break };
            if !self.is_current(slot, generation) {
                continue;
            }
            let at = self.slots[slot as usize];
            let made = at.sequence.made + self.gained(&at);
            self.release(slot);
            if !at.decoding {
                self.prefilling.retain(|&other| other != slot);
            }
            // What all have in common is still there; the rest was given to others.
            let to_compute = at.sequence.prompt + made - self.shared(&at.sequence);
            self.waiting.push_front(Sequence { made, to_compute, new: false, ..at.sequence });
            self.preemptions += 1;
            any = true;
        }
        any
    }

    /// Tokens made in this stay; the last one is told with the end.
    fn gained(&self, at: &Slot) -> u32 {
        if !at.decoding {
            return 0;
        }
        let made = (at.rate * (self.steps - at.since)) >> PARTS;
        (made as u32).min(at.sequence.output - at.sequence.made - 1)
    }

    /// Share the budget out: to those whose prompts are begun, then to the head of the queue while there is room. What is left.
    fn schedule(&mut self, sent_away: bool) -> u64 {
        let whole = self.config.prompts == Prompts::First;
        let step_tokens = self.config.step_tokens();
        let decoding = if whole { 0 } else { self.decoding * step_tokens };
        let mut left = u64::from(self.config.batched_tokens).saturating_sub(decoding);
        for place in 0..self.prefilling.len() {
            if left == 0 {
                break;
            }
            let slot = self.prefilling[place];
            left -= self.chunk(slot, left);
        }
        while !sent_away && left > 0 && self.running < self.config.sequences {
            let Some(&head) = self.waiting.front() else { break };
            let spare = (self.room as f64 * self.config.watermark) as i64;
            let grows = if head.to_compute == 0 { self.growth } else { 0 };
            if self.running > 0 && self.held + self.own(&head) + grows + spare > self.room {
                break;
            }
            let decodes_now = head.to_compute == 0;
            // A prompt that is not cut waits for an iteration with room for it, but for one that is longer than any.
            if whole && u64::from(head.to_compute) > left && !self.chunks.is_empty()
                || decodes_now && left < step_tokens
            {
                break;
            }
            self.waiting.pop_front();
            let slot = self.admit(head);
            if decodes_now {
                self.decode(slot);
                left -= step_tokens;
            } else {
                self.prefilling.push_back(slot);
                let budget = if whole { u64::from(u32::MAX) } else { left };
                left -= self.chunk(slot, budget).min(left);
            }
        }
        left
    }

    /// Plan the next part of a prompt; its tokens.
    fn chunk(&mut self, slot: u32, budget: u64) -> u64 {
        let tokens = u64::from(self.slots[slot as usize].sequence.to_compute).min(budget);
        self.chunks.push((slot, tokens as u32));
        tokens
    }

    fn admit(&mut self, mut sequence: Sequence) -> u32 {
        let own = self.own(&sequence);
        if sequence.new {
            sequence.new = false;
            let free = (1.0 - self.held as f64 / self.room as f64).clamp(0.0, 1.0);
            let (prefix, block) = (&self.config.prefix, self.config.block);
            sequence.to_compute -= prefix
                .found(self.chances.prefix, sequence.row, sequence.prompt, block, free)
                .min(sequence.to_compute - 1);
        }
        self.held += own;
        self.running += 1;
        let fresh = Slot { sequence, generation: 0, live: true, decoding: false, since: 0, rate: 0 };
        let slot = if let Some(slot) = self.free.pop() {
            let generation = self.slots[slot as usize].generation.wrapping_add(1);
            self.slots[slot as usize] = Slot { generation, ..fresh };
            slot
        } else {
            self.slots.push(fresh);
            self.slots.len() as u32 - 1
        };
        self.admitted.push((slot, self.slots[slot as usize].generation));
        if self.admitted.len() > 2 * self.running + 64 {
            let slots = &self.slots;
            self.admitted.retain(|&(slot, generation)| {
                let slot = &slots[slot as usize];
                slot.live && slot.generation == generation
            });
        }
        slot
    }

    /// From now on it gets tokens with every step.
    fn decode(&mut self, slot: u32) {
        let Sequence { row, prompt, output, made, .. } = self.slots[slot as usize].sequence;
        let tokens = output - made;
        let steps = match &self.config.speculative {
            Some(speculative) => speculative.steps(self.chances.accept, row, made, tokens),
            None => tokens,
        };
        let at = &mut self.slots[slot as usize];
        at.decoding = true;
        at.since = self.steps;
        at.rate = parts(tokens) / i64::from(steps);
        self.leaving.push(Reverse((self.steps + i64::from(steps), slot, at.generation)));
        self.decoding += 1;
        self.growth += at.rate;
        self.context += parts(prompt + made);
    }

    /// It leaves, with all its tokens or with some.
    fn release(&mut self, slot: u32) {
        let at = self.slots[slot as usize];
        self.slots[slot as usize].live = false;
        self.held -= self.own(&at.sequence);
        if at.decoding {
            let gained = at.rate * (self.steps - at.since);
            self.held -= gained;
            self.context -= parts(at.sequence.prompt + at.sequence.made) + gained;
            self.growth -= at.rate;
            self.decoding -= 1;
        }
        self.running -= 1;
        self.free.push(slot);
    }

    /// Let the iterations under way end; prompts that are through go to `computed` where answers are made elsewhere.
    pub fn step(&mut self, told: &mut Vec<Told>, computed: &mut Vec<Sequence>) {
        let Some(end_s) = self.next_s() else { return };
        if self.decodes {
            let count = self.stretch.count as i64;
            self.steps += count;
            self.context += count * self.growth;
            self.held += count * self.growth;
            while let Some(&Reverse((at, slot, generation))) = self.leaving.peek() {
                if self.is_current(slot, generation) {
                    if at > self.steps {
                        break;
                    }
                    self.release(slot);
                    told.push(Told::Done { row: self.slots[slot as usize].sequence.row, at_s: end_s });
                }
                self.leaving.pop();
            }
        }
        self.prefill(end_s, told, computed);
        self.begin(end_s);
    }

    /// Prompts move on by their chunks; those that are through have their next token.
    fn prefill(&mut self, end_s: f64, told: &mut Vec<Told>, computed: &mut Vec<Sequence>) {
        let mut through = 0;
        for &(slot, chunk) in &self.chunks {
            let sequence = &mut self.slots[slot as usize].sequence;
            let tokens = chunk * self.stretch.count as u32;
            sequence.to_compute -= tokens;
            self.prompt_tokens += u64::from(tokens);
            through += usize::from(sequence.to_compute == 0);
        }
        self.chunks.clear();
        // The budget goes out in order, so those that are through stand in front.
        for _ in 0..through {
            let Some(slot) = self.prefilling.pop_front() else { break };
            let sequence = self.slots[slot as usize].sequence;
            if sequence.made == 0 {
                told.push(Told::First { row: sequence.row, at_s: end_s });
            }
            if sequence.made + 1 == sequence.output {
                self.release(slot);
                told.push(Told::Done { row: sequence.row, at_s: end_s });
            } else if self.role == Role::Prompts {
                self.release(slot);
                computed.push(sequence.computed());
            } else {
                self.slots[slot as usize].sequence.made += 1;
                self.held += parts(1);
                self.decode(slot);
            }
        }
    }
}
