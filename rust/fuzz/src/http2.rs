//! Connections of HTTP/2, beside the h2 crate.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use gpusize_engine::wire::http2::End;
use h2::client::{Builder, ResponseFuture};
use http::{HeaderMap, Request};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::input::Input;
use crate::readers::http2::{BODY, HEADER_BYTES, Heard, METHODS, Said, hear};

/// Polls of one connection: far more than a short input needs.
const TURNS: usize = 64;

/// What a server says is heard alike whole and in pieces. An answer that is complete is so for the h2 crate too, and says
/// the same there; one that is complete for the crate is so here.
pub fn http2(bytes: &[u8]) {
    let Some(input) = Input::new(bytes) else { return };
    let whole = hear(&input.whole());
    assert_eq!(hear(&input.pieces()), whole, "in pieces, and whole");
    let second = by_h2(input.message);
    for (ours, theirs) in whole.said.iter().zip(&second) {
        compare(ours, theirs.as_ref(), &whole);
    }
}

fn compare(ours: &Said, theirs: Option<&Said>, whole: &Heard) {
    let is_complete = ours.end == Some(End::Complete);
    match theirs {
        Some(theirs) if is_complete => {
            assert_eq!((ours.status, sorted(&ours.fields)), (theirs.status, sorted(&theirs.fields)));
            assert_eq!(
                (&ours.body, ours.trailers.as_deref().map(sorted)),
                (&theirs.body, theirs.trailers.as_deref().map(sorted))
            );
        }
        // The crate may know more of what breaks a connection later on, or less; it is not our judge in that.
        Some(theirs) => assert!(whole.fatal.is_some() || ours.end.is_some(), "{theirs:?}, and here {ours:?}"),
        None => {}
    }
}

fn sorted(fields: &[(String, Vec<u8>)]) -> Vec<(String, Vec<u8>)> {
    let mut fields = fields.to_vec();
    fields.sort();
    fields
}

/// A peer that has said all it says, and reads everything.
struct Peer {
    says: Rc<RefCell<Vec<u8>>>,
}

impl AsyncRead for Peer {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let mut says = self.says.borrow_mut();
        if says.is_empty() {
            return Poll::Pending;
        }
        let n = says.len().min(buf.remaining());
        buf.put_slice(&says[..n]);
        says.drain(..n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Peer {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The complete answers as the h2 crate reads them.
fn by_h2(bytes: &[u8]) -> [Option<Said>; 3] {
    let mut cx = Context::from_waker(Waker::noop());
    let says = Rc::new(RefCell::new(Vec::new()));
    let mut builder = Builder::new();
    builder
        .initial_window_size(1 << 24)
        .initial_connection_window_size(1 << 30)
        .max_frame_size(1 << 20)
        .max_header_list_size(HEADER_BYTES as u32)
        .enable_push(false);
    let mut shaking = pin!(builder.handshake::<_, Bytes>(Peer { says: says.clone() }));
    let Poll::Ready(Ok((mut send, mut connection))) = shaking.as_mut().poll(&mut cx) else { return [None, None, None] };
    let mut ask = |method: &str| -> Option<ResponseFuture> {
        let request = Request::builder().method(method).uri("http://h/").body(()).ok()?;
        let is_empty = method != "POST";
        let (response, mut stream) = send.send_request(request, is_empty).ok()?;
        if !is_empty {
            stream.send_data(Bytes::from_static(BODY), true).ok()?;
        }
        Some(response)
    };
    let asked = METHODS.map(&mut ask);
    let _sent = Pin::new(&mut connection).poll(&mut cx);
    says.borrow_mut().extend_from_slice(bytes);
    let mut reading = asked.map(|response| Box::pin(async move { read(response?).await }));
    let mut said = [None, None, None];
    for _ in 0..TURNS {
        let _ended = Pin::new(&mut connection).poll(&mut cx);
        for (one, said) in reading.iter_mut().zip(&mut said) {
            if said.is_none()
                && let Poll::Ready(read) = one.as_mut().poll(&mut cx)
            {
                *said = Some(read);
            }
        }
    }
    said.map(Option::flatten)
}

async fn read(response: ResponseFuture) -> Option<Said> {
    let (head, mut stream) = response.await.ok()?.into_parts();
    let mut said = Said { status: head.status.as_u16(), fields: list(&head.headers), ..Said::default() };
    while let Some(bytes) = stream.data().await {
        let bytes = bytes.ok()?;
        stream.flow_control().release_capacity(bytes.len()).ok()?;
        said.body.extend_from_slice(&bytes);
    }
    said.trailers = stream.trailers().await.ok()?.as_ref().map(list);
    said.end = Some(End::Complete);
    Some(said)
}

fn list(fields: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    fields.iter().map(|(name, value)| (name.to_string(), value.as_bytes().to_vec())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
        [&[0, 0, payload.len() as u8, kind, flags, 0, 0, 0, stream], payload].concat()
    }

    #[test]
    fn the_judge_reads_answers_and_is_asked_about_them() {
        let wire = [
            frame(4, 0, 0, &[]),
            frame(1, 4, 1, &[0x88]),
            frame(0, 1, 1, b"one"),
            frame(1, 4, 3, &[0x8d]),
            frame(0, 0, 3, b"two"),
            frame(1, 5, 3, b"\0\x01x\x01y"),
            frame(1, 4, 5, &[0x88]),
        ]
        .concat();
        let [first, second, third] = by_h2(&wire);
        assert_eq!(first.map(|said| (said.status, said.body)), Some((200, b"one".to_vec())));
        let second = second.map(|said| (said.status, said.body, said.trailers.map(|fields| fields.len())));
        assert_eq!(second, Some((404, b"two".to_vec(), Some(1))));
        assert_eq!(third, None);
        http2(&[&[0, 0, 7, 63, 63 | 2 << 6][..], &wire].concat());
        let ours = Said { end: Some(End::Complete), ..Said::default() };
        let theirs = Said { body: b"other".to_vec(), ..ours.clone() };
        assert!(std::panic::catch_unwind(|| compare(&ours, Some(&theirs), &Heard::default())).is_err());
        assert!(std::panic::catch_unwind(|| compare(&Said::default(), Some(&theirs), &Heard::default())).is_err());
    }
}
