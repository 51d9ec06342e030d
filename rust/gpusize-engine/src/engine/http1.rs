//! One exchange over a connection of HTTP/1.1: write the request, read and stamp its answer.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use tokio::io::ReadBuf;

use super::failure::{self, Failure};
use super::outside::now_ns;
use super::response::{Reader, ResponseFormat};
use super::slot::{Abort, Slot};
use super::stream::Stream;
use super::unsent::Unsent;
use super::worker::Worker;
use crate::record::Row;
use crate::spec::TargetSpec;
use crate::wire::WireError;
use crate::wire::http1::Response;

/// Room for one read; larger answers take several.
const READ_BYTES: usize = 1 << 20;
/// At most so much waits in the system until a reader wakes: each wake-up costs as much as half a small request.
const LARGEST_LOW_WATER: usize = 4 << 20;
/// An answer of which this much is still to come is large.
const LARGE: u64 = 128 << 10;

/// What a slot keeps for its exchanges.
#[derive(Debug)]
pub struct Exchange {
    /// The beginning of a head that has not come whole.
    begun: Vec<u8>,
    /// No byte of the answer has come, but perhaps of others that announce it (1xx).
    awaits_answer: bool,
    response: Response,
    /// As the stream was told.
    low_water: usize,
}

/// Where the connections of a worker read: room for the beginning of a head, and for a read.
pub fn read_buffer(target: &TargetSpec) -> Vec<u8> {
    vec![0; READ_BYTES + target.max_header_bytes]
}

/// What a look at the stream brought.
#[derive(Clone, Copy)]
enum Came {
    /// So many bytes, into the worker's buffer.
    Read(usize),
    /// So many that nobody needs, into nothing.
    Discarded(usize),
}

/// Why reading stopped.
enum Broken {
    Aborted(Abort),
    Io(io::Error),
    Wire(WireError),
    NoRoom,
}

impl Broken {
    /// A server may answer and close before it has read everything: what it said is worth more than the broken pipe.
    #[cold]
    fn failure(self, unsent: Option<io::Error>, worker: &Worker) -> Result<(), Failure> {
        Err(match (self, unsent) {
            (Self::NoRoom, _) => worker.context.format.no_room().into(),
            (Self::Aborted(a), _) => Failure::given_up(a, &|| worker.context.late()),
            (_, Some(e)) => failure::ended(format!("the connection broke while sending: {e}")),
            (Self::Io(e), None) => failure::ended(format!("the connection broke: {e}")),
            (Self::Wire(e), None) => e.into(),
        })
    }
}

impl Exchange {
    pub fn new(worker: &Worker) -> Self {
        let target = &worker.context.target;
        Self {
            begun: Vec::new(),
            awaits_answer: true,
            response: Response::new(target.method == "HEAD", target.max_header_bytes, target.max_body_bytes)
                .with_times(worker.context.format.head_times.clone()),
            low_water: 1,
        }
    }

    /// Send the rest of a message and read the answer; `reusable` says afterwards whether the stream may carry another request.
    ///
    /// One wait, and one closure that holds what it needs: an `async fn` would move all of it once more for every request.
    #[allow(clippy::too_many_arguments)] // the parts of a line, borrowed apart, and what the stamps need
    pub fn run<'a>(
        &'a mut self,
        stream: &'a mut Stream,
        reusable: &'a mut bool,
        unsent: &'a mut Unsent<'_>,
        slot: &'a Slot,
        reader: &'a mut Reader,
        worker: &'a Worker,
        row: &'a mut Row,
    ) -> impl Future<Output = Result<(), Failure>> + 'a {
        self.response.reset();
        self.begun.clear();
        self.awaits_answer = true;
        self.low_water = 1;
        row.bytes_out = unsent.length as u64;
        // Nearly every request fits the socket's buffer.
        let sends = unsent.flushes;
        poll_fn(move |cx| {
            let read = loop {
                if let Some(abort) = slot.abort.get() {
                    break Err(Broken::Aborted(abort));
                }
                // A write that fails is remembered; what the server has said by then may still be read.
                if sends && let Poll::Ready(Err(e)) = unsent.poll_send(stream, cx) {
                    unsent.error = Some(e);
                    unsent.flushes = false;
                }
                let mut buffer = worker.read_buffer();
                let came = match self.poll_read(stream, reader, &mut buffer, cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Err(e)) => break Err(Broken::Io(e)),
                    Poll::Ready(Ok(came)) => came,
                };
                match self.take(came, &buffer, stream, reusable, reader, &worker.context.format, row) {
                    Ok(false) => {}
                    Ok(true) => break Ok(()),
                    Err(broken) => break Err(broken),
                }
            };
            if sends {
                let left = unsent.left();
                row.bytes_out -= left as u64;
                *reusable &= left == 0 && unsent.error.is_none();
            }
            Poll::Ready(read.or_else(|broken| broken.failure(unsent.error.take(), worker)))
        })
    }

    /// Read what there is; before a wait, say how much to wait for.
    #[inline]
    fn poll_read(
        &mut self,
        stream: &mut Stream,
        reader: &Reader,
        buffer: &mut [u8],
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Came>> {
        let left = self.response.length_left();
        let came = if left > LARGE && reader.wants_no_more() {
            // All but the last byte: bytes after it, which nobody asked for, show only where it is read.
            let most = usize::try_from(left - 1).unwrap_or(usize::MAX);
            stream.poll_discard(cx, most).map(|came| came.map_ok(Came::Discarded))
        } else {
            None
        };
        let came = came.unwrap_or_else(|| {
            buffer[..self.begun.len()].copy_from_slice(&self.begun);
            let mut room = ReadBuf::new(&mut buffer[self.begun.len()..]);
            stream.poll_read(cx, &mut room).map_ok(|()| Came::Read(room.filled().len()))
        });
        if came.is_pending() && (left >= LARGE || self.low_water > 1) && reader.is_whole() {
            // Never wait for more than what is left, so that the reader wakes as its last byte arrives.
            self.wake_at(stream, usize::try_from(left).unwrap_or(usize::MAX).clamp(1, LARGEST_LOW_WATER));
        }
        came
    }

    /// More bytes have come; says whether they complete the answer.
    #[allow(clippy::too_many_arguments)] // as above
    #[inline]
    fn take(
        &mut self,
        came: Came,
        buffer: &[u8],
        stream: &Stream,
        reusable: &mut bool,
        reader: &mut Reader,
        format: &ResponseFormat,
        row: &mut Row,
    ) -> Result<bool, Broken> {
        let now = now_ns();
        row.end_ns = now;
        let n = match came {
            Came::Discarded(n @ 1..) => {
                row.bytes_in += n as u64;
                self.response.skip(n as u64).map_err(Broken::Wire)?;
                return Ok(false);
            }
            Came::Read(0) | Came::Discarded(_) => {
                self.response.eof().map_err(Broken::Wire)?;
                return Ok(true);
            }
            Came::Read(n) => n,
        };
        if self.awaits_answer {
            row.first_byte_ns = now;
        }
        self.awaits_answer = false;
        row.bytes_in += n as u64;
        let filled = self.begun.len() + n;
        let response = &mut self.response;
        let mut at = 0;
        while at < filled && !response.done() {
            let taken = response
                .feed(&buffer[at..filled], &mut |bytes| reader.body(bytes, now, format, row))
                .map_err(Broken::Wire)?;
            if taken == 0 {
                break;
            }
            at += taken;
            if !reader.has_begun()
                && let Some(head) = response.head()
            {
                row.status = head.status;
                *reusable = head.keep_alive;
                reader.begin(format, head);
            }
        }
        if reader.is_full() {
            return Err(Broken::NoRoom);
        }
        if response.done() {
            // Bytes after the answer were not asked for: nothing that follows on this connection can be trusted.
            *reusable &= at == filled;
            self.wake_at(stream, 1);
            return Ok(true);
        }
        self.begun.clear();
        self.begun.extend_from_slice(&buffer[at..filled]);
        if at > 0 && self.response.head().is_none() {
            // What came so far announced the answer; of that itself the first byte may have come behind it.
            self.awaits_answer = self.begun.is_empty();
            row.first_byte_ns = now;
        }
        Ok(false)
    }

    #[inline]
    fn wake_at(&mut self, stream: &Stream, bytes: usize) {
        if self.low_water != bytes {
            self.low_water = bytes;
            stream.set_low_water(bytes);
        }
    }
}
