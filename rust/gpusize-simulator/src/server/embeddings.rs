//! The embeddings API: each input is prefilled, and one iteration gives all vectors.

use std::rc::Rc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::Answer;
use super::connection::Fate;
use super::error::ApiError;
use super::routes::{Reply, admitted};
use super::state::{Shared, Wish};
use super::text::{Extent, digest_of};
use gpusize_base::draw::Draw;

const MOST_INPUTS: usize = 2048;
const DIMENSIONS: u32 = 64;
const MOST_DIMENSIONS: u32 = 65_536;

#[derive(Debug, Deserialize)]
struct Request {
    model: Option<String>,
    input: Option<Input>,
    #[serde(default)]
    encoding_format: Encoding,
    dimensions: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Encoding {
    #[default]
    Float,
    Base64,
}

/// Answer one request.
pub(super) async fn answer(shared: &Rc<Shared>, fate: &Fate, body: &[u8]) -> Result<Reply, ApiError> {
    let request: Request = serde_json::from_slice(body).map_err(|error| ApiError::json(&error))?;
    let Some(input) = &request.input else {
        return Err(ApiError::invalid("the field input is missing", Some("input")));
    };
    let dimensions = request.dimensions.unwrap_or(DIMENSIONS);
    if !(1..=MOST_DIMENSIONS).contains(&dimensions) {
        let message = format!("dimensions must be between 1 and {MOST_DIMENSIONS}, not {dimensions}");
        return Err(ApiError::invalid(message, Some("dimensions")));
    }
    let extents = input.extents();
    if !(1..=MOST_INPUTS).contains(&extents.len()) || extents.iter().any(|e| e.characters + e.tokens == 0) {
        let message = format!("input must have 1 to {MOST_INPUTS} texts or lists of tokens, none of them empty");
        return Err(ApiError::invalid(message, Some("input")));
    }
    let tokens = extents.iter().map(|&extent| u64::from(shared.prompt_tokens(extent))).sum::<u64>();
    let prompt_tokens = u32::try_from(tokens).unwrap_or(u32::MAX);
    let submitted = shared.submit(Wish { prompt_tokens, max_tokens: Some(1), ignore_eos: true, ..Wish::default() });
    shared.thaw().await;
    let ticket = admitted(&submitted)?;
    ticket.finished().await;
    shared.note_write(ticket.end_ns());
    let embedding = |(index, extent): (usize, &Extent)| json!({"object": "embedding", "index": index, "embedding": shown(extent.digest, dimensions, request.encoding_format)});
    let answer = json!({
        "object": "list",
        "data": extents.iter().enumerate().map(embedding).collect::<Vec<_>>(),
        "model": request.model.as_deref().unwrap_or(&shared.config.model),
        "usage": {"prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens},
    });
    let fault = submitted.service.fault;
    Ok(Reply::json(Answer::whole(Bytes::from(answer.to_string()), fault, fate), fault))
}

impl Input {
    fn extents(&self) -> Vec<Extent> {
        let of_tokens =
            |tokens: &Vec<u32>| Extent { characters: 0, tokens: tokens.len(), parts: 1, digest: digest_of(tokens) };
        match self {
            Self::Text(text) => vec![Extent::of_text(text)],
            Self::Texts(texts) => texts.iter().map(|text| Extent::of_text(text)).collect(),
            Self::Tokens(tokens) => vec![of_tokens(tokens)],
            Self::TokenLists(lists) => lists.iter().map(of_tokens).collect(),
        }
    }
}

/// A vector of length 1 that the input alone decides, as the API writes it.
fn shown(digest: u64, dimensions: u32, encoding: Encoding) -> Value {
    let draw = Draw::new(digest, 0, 0);
    let numbers: Vec<f64> = (0..dimensions).map(|axis| draw.normal(axis.into())).collect();
    let length = numbers.iter().map(|number| number * number).sum::<f64>().sqrt();
    let vector = numbers.iter().map(|number| (number / length) as f32);
    match encoding {
        Encoding::Float => vector.map(Value::from).collect(),
        Encoding::Base64 => Value::from(STANDARD.encode(vector.flat_map(f32::to_le_bytes).collect::<Vec<u8>>())),
    }
}
