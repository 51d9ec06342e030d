//! One exchange over a connection of HTTP/1.1: write the request, read and stamp its answer.

use std::future::poll_fn;
use std::io;
use std::task::Poll;

use tokio::io::ReadBuf;

use super::answer::{Reader, Reading};
use super::failure::{self, Failure};
use super::slot::{Abort, Slot};
use super::stream::Stream;
use super::unsent::Unsent;
use super::worker::Worker;
use crate::clock::now_ns;
use crate::record::Row;
use crate::wire::WireError;
use crate::wire::http1::Response;

/// Room for one read; larger answers take several.
const READ_BYTES: usize = 16_384;
/// Room for one read of an answer whose length nobody announced.
const FULL_READ_BYTES: usize = 256 << 10;
/// Room for one read of an answer that is known to be large.
const LARGE_READ_BYTES: usize = 1 << 20;
/// At most so much waits in the system until a reader wakes: each wake-up costs as much as half a small request.
const LARGEST_LOW_WATER: usize = 4 << 20;
/// An answer of which this much is still to come is large.
const LARGE: u64 = 128 << 10;

/// What a slot keeps for its exchanges.
#[derive(Debug)]
pub struct Exchange {
    buffer: Vec<u8>,
    /// Bytes in `buffer` that wait for more.
    filled: usize,
    response: Response,
    /// As the stream was told.
    low_water: usize,
}

/// Why reading stopped.
enum Broken {
    Aborted(Abort),
    Io(io::Error),
    Wire(WireError),
}

impl Exchange {
    pub fn new(worker: &Worker) -> Self {
        let target = &worker.context.target;
        Self {
            buffer: vec![0; READ_BYTES],
            filled: 0,
            response: Response::new(target.method == "HEAD", target.max_header_bytes, target.max_body_bytes),
            low_water: 1,
        }
    }

    /// Send the rest of a message and read the answer; `reusable` says afterwards whether the stream may carry another request.
    ///
    /// One future and one wait: each further one that awaits another costs every request.
    #[allow(clippy::too_many_arguments)] // the parts of a line, borrowed apart, and what the stamps need
    pub async fn run(
        &mut self,
        stream: &mut Stream,
        reusable: &mut bool,
        mut unsent: Unsent<'_>,
        slot: &Slot,
        reader: &mut Reader,
        worker: &Worker,
        row: &mut Row,
    ) -> Result<(), Failure> {
        self.response.reset();
        self.filled = 0;
        self.low_water = 1;
        row.bytes_out = unsent.length as u64;
        // Nearly every request fits the socket's buffer.
        let sends = unsent.flushes;
        let read = loop {
            let n = poll_fn(|cx| {
                if let Some(abort) = slot.abort.get() {
                    return Poll::Ready(Err(Broken::Aborted(abort)));
                }
                // A write that fails is remembered; what the server has said by then may still be read.
                if sends && let Poll::Ready(Err(e)) = unsent.poll_send(stream, cx) {
                    unsent.error = Some(e);
                    unsent.flushes = false;
                }
                let mut room = ReadBuf::new(&mut self.buffer[self.filled..]);
                stream.poll_read(cx, &mut room).map(|read| read.map(|()| room.filled().len()).map_err(Broken::Io))
            })
            .await;
            match n.and_then(|n| self.take(n, stream, reusable, reader, &worker.context.reading, row)) {
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
        // A server may answer and close before it has read everything: what it said is worth more than the broken pipe.
        match (read, unsent.error) {
            (Ok(()), _) => Ok(()),
            (Err(Broken::Aborted(a)), _) => Err(Failure::given_up(a, &|| worker.context.late())),
            (Err(_), Some(e)) => Err(failure::ended(format!("the connection broke while sending: {e}"))),
            (Err(Broken::Io(e)), None) => Err(failure::ended(format!("the connection broke: {e}"))),
            (Err(Broken::Wire(e)), None) => Err(e.into()),
        }
    }

    /// `n` more bytes have come; says whether they complete the answer.
    #[allow(clippy::too_many_arguments)] // as above
    #[inline]
    fn take(
        &mut self,
        n: usize,
        stream: &Stream,
        reusable: &mut bool,
        reader: &mut Reader,
        reading: &Reading,
        row: &mut Row,
    ) -> Result<bool, Broken> {
        let Self { buffer, filled, response, low_water } = self;
        let now = now_ns();
        row.end_ns = now;
        if n == 0 {
            response.eof().map_err(Broken::Wire)?;
            return Ok(true);
        }
        if row.bytes_in == 0 {
            row.first_byte_ns = now;
        }
        row.bytes_in += n as u64;
        *filled += n;
        let mut at = 0;
        while at < *filled && !response.done() {
            let taken = response
                .feed(&buffer[at..*filled], &mut |bytes| reader.body(bytes, now, reading, row))
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
                reader.begin(reading, head);
            }
        }
        if response.done() {
            // Bytes after the answer were not asked for: nothing that follows on this connection can be trusted.
            *reusable &= at == *filled;
            wake_at(stream, 1, low_water);
            return Ok(true);
        }
        let was_full = *filled == buffer.len();
        buffer.copy_within(at..*filled, 0);
        *filled -= at;
        expect(stream, buffer, response.length_left(), low_water);
        if was_full && (*filled > 0 || buffer.len() < FULL_READ_BYTES) {
            buffer.resize(buffer.len() * 2, 0);
        }
        Ok(false)
    }
}

/// A known length is still to come: wake once it is there, and read it in few large pieces. Never wait for more than
/// what is left, so that the reader wakes as its last byte arrives.
fn expect(stream: &Stream, buffer: &mut Vec<u8>, left: u64, low_water: &mut usize) {
    if left >= LARGE && buffer.len() < LARGE_READ_BYTES {
        buffer.resize(LARGE_READ_BYTES, 0);
    }
    if left >= LARGE || *low_water > 1 {
        wake_at(stream, usize::try_from(left).unwrap_or(usize::MAX).clamp(1, LARGEST_LOW_WATER), low_water);
    }
}

fn wake_at(stream: &Stream, bytes: usize, low_water: &mut usize) {
    if *low_water != bytes {
        *low_water = bytes;
        stream.set_low_water(bytes);
    }
}
