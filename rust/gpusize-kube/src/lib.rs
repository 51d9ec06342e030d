//! What the objects of a Kubernetes cluster say of their moments: from the bytes of watches and lists to columns.
//!
//! - [`chunks`]: the chunks of an HTTP body, cut anywhere.
//! - [`shapes`]: the parts of objects that matter, borrowed from the bytes they came in ([`text`]); [`object`]: an object of
//!   any kind, out of a line or a list; [`managed`]: what is cut out of a pod's line before.
//! - [`words`]: one source's word on one moment of one object, and what each shape of object says in them.
//! - [`moments`]: which moments conditions and Events speak of.
//! - [`times`]: times as an API server writes them.
//! - [`book`]: what has been said already, by whom; new words become rows ([`rows`]), each once.
//! - [`lines`]: the lines of a watch, into the book; [`listing`]: a list, held against it. [`there`]: which objects there are.
//!
//! It knows no network and no clock: whoever reads says when bytes came.

pub mod book;
pub mod chunks;
pub mod lines;
pub mod listing;
pub mod managed;
pub mod moments;
pub mod object;
pub mod rows;
pub mod shapes;
pub mod text;
pub mod there;
pub mod times;
pub mod words;
