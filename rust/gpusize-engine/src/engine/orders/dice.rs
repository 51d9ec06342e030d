//! Draws of one case, one after another.

use std::cell::Cell;
use std::rc::Rc;

use gpusize_base::draw::Draw;

/// See the module.
#[derive(Clone, Debug)]
pub struct Dice {
    draw: Draw,
    rolled: Rc<Cell<u64>>,
}

impl Dice {
    pub fn new(seed: u64, purpose: u64) -> Self {
        Self { draw: Draw::new(seed, 0, purpose), rolled: Rc::default() }
    }

    pub fn below(&self, bound: u64) -> u64 {
        self.rolled.set(self.rolled.get() + 1);
        self.draw.u64(self.rolled.get()) % bound
    }

    pub fn one_of<T: Clone>(&self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
}
