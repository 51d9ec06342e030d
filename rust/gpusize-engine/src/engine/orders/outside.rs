//! What a worker has of the outside in tests: that of the world that the test has made, or the real one where there is none.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use tokio::task::{JoinError, JoinHandle};

use super::world::{self, here};
use gpusize_base::clock;
use gpusize_load::pace::timer;

pub fn now_ns() -> i64 {
    here().map_or_else(clock::now_ns, |world| world.now_ns())
}

/// A wait for an instant.
#[derive(Debug)]
pub struct Timer(Option<timer::Timer>);

impl Timer {
    pub fn new() -> io::Result<Self> {
        Ok(Self(if here().is_some() { None } else { Some(timer::Timer::new()?) }))
    }

    pub async fn wait_until(&self, due_ns: i64) -> io::Result<()> {
        match (&self.0, here()) {
            (Some(real), _) => real.wait_until(due_ns).await,
            (None, Some(world)) => {
                world.sleep_until(due_ns).await;
                Ok(())
            }
            (None, None) => Err(io::Error::other("the world has ended")),
        }
    }
}

/// A task of this thread.
pub enum Task<T> {
    Real(JoinHandle<T>),
    OfWorld(Rc<world::Task>),
}

pub fn spawn_local<F>(future: F) -> Task<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let Some(world) = here() else { return Task::Real(tokio::task::spawn_local(future)) };
    let name = short(std::any::type_name::<F>());
    Task::OfWorld(world.spawn(name, async move { drop(future.await) }))
}

/// The function that a future's type was made of, without the path to it.
fn short(name: &str) -> String {
    let inner = name.rsplit('<').next().unwrap_or(name).replace("::{{closure}}", "");
    let mut path: Vec<&str> = inner.trim_end_matches('>').rsplit("::").take(2).collect();
    path.reverse();
    path.join("::")
}

impl<T> Task<T> {
    pub fn abort(&self) {
        match self {
            Self::Real(task) => task.abort(),
            Self::OfWorld(task) => task.abort(),
        }
    }
}

impl<T> Future for Task<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.get_mut() {
            Self::Real(task) => Pin::new(task).poll(cx),
            Self::OfWorld(_) => Poll::Pending,
        }
    }
}

impl<T> std::fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Task")
    }
}
