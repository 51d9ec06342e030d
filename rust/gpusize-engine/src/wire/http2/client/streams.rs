//! The requests under way on one connection.

use bytes::Bytes;

use super::STREAM_WINDOW;

/// One of them.
#[derive(Debug)]
pub struct Stream<T> {
    pub id: u32,
    pub to: T,
    /// What has not been cut into frames of its body.
    pub body: Bytes,
    pub send_window: i64,
    /// Bytes that the server may send, and those read of which it does not know yet.
    pub receive_window: i64,
    pub unreleased: u32,
    /// Its final head has come.
    pub has_head: bool,
    /// Bytes of its answer's body that are to come, where the head says so.
    pub length_left: Option<u64>,
    /// No body comes, whatever the head says.
    pub has_no_body: bool,
}

impl<T> Stream<T> {
    pub fn new(id: u32, to: T, body: Bytes, send_window: i64, has_no_body: bool) -> Self {
        Self {
            id,
            to,
            body,
            send_window,
            receive_window: i64::from(STREAM_WINDOW),
            unreleased: 0,
            has_head: false,
            length_left: None,
            has_no_body,
        }
    }
}

/// In the order in which they began. Answers come about in that order, so that the first look finds most.
#[derive(Debug)]
pub struct Streams<T>(Vec<Stream<T>>);

impl<T> Default for Streams<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T> Streams<T> {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn push(&mut self, stream: Stream<T>) {
        self.0.push(stream);
    }

    #[inline]
    pub fn get(&mut self, id: u32) -> Option<&mut Stream<T>> {
        self.0.iter_mut().find(|stream| stream.id == id)
    }

    pub fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<u32> {
        self.0.iter().find(|stream| is_it(&stream.to)).map(|stream| stream.id)
    }

    pub fn remove(&mut self, id: u32) -> Option<Stream<T>> {
        let k = self.0.iter().position(|stream| stream.id == id)?;
        Some(self.0.remove(k))
    }

    /// Take those after this one.
    pub fn take_after(&mut self, last: u32) -> Vec<Stream<T>> {
        let from = self.0.partition_point(|stream| stream.id <= last);
        self.0.split_off(from)
    }

    pub fn drain(&mut self) -> impl Iterator<Item = Stream<T>> {
        std::mem::take(&mut self.0).into_iter()
    }

    pub fn each(&mut self) -> impl Iterator<Item = &mut Stream<T>> {
        self.0.iter_mut()
    }
}
