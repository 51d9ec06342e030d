//! The elements of tensors: as JSON, as typed lists, and raw: little-endian, row by row, texts behind their lengths.

use bytes::{BufMut, Bytes, BytesMut};
use serde_json::{Number, Value};

use super::super::super::{Datatype, TensorSpec};
use gpusize_kserve::messages::InferTensorContents;

/// Elements of JSON, in lists of any depth, as raw bytes.
pub(super) fn raw_of_json(datatype: Datatype, data: &Value) -> Result<Bytes, String> {
    let mut raw = BytesMut::new();
    put_json(datatype, data, &mut raw)?;
    Ok(raw.freeze())
}

fn put_json(datatype: Datatype, value: &Value, raw: &mut BytesMut) -> Result<(), String> {
    if let Value::Array(list) = value {
        return list.iter().try_for_each(|element| put_json(datatype, element, raw));
    }
    let wrong = || format!("{value} is no {}", datatype.name());
    let unsigned = |most: u64| value.as_u64().filter(|&number| number <= most).ok_or_else(wrong);
    let signed =
        |least: i64, most: i64| value.as_i64().filter(|number| (least..=most).contains(number)).ok_or_else(wrong);
    match datatype {
        Datatype::Bool => match value {
            Value::Bool(bit) => raw.put_u8(u8::from(*bit)),
            _ => raw.put_u8(unsigned(1)? as u8),
        },
        Datatype::Uint8 => raw.put_u8(unsigned(u8::MAX.into())? as u8),
        Datatype::Uint16 => raw.put_u16_le(unsigned(u16::MAX.into())? as u16),
        Datatype::Uint32 => raw.put_u32_le(unsigned(u32::MAX.into())? as u32),
        Datatype::Uint64 => raw.put_u64_le(unsigned(u64::MAX)?),
        Datatype::Int8 => raw.put_i8(signed(i8::MIN.into(), i8::MAX.into())? as i8),
        Datatype::Int16 => raw.put_i16_le(signed(i16::MIN.into(), i16::MAX.into())? as i16),
        Datatype::Int32 => raw.put_i32_le(signed(i32::MIN.into(), i32::MAX.into())? as i32),
        Datatype::Int64 => raw.put_i64_le(signed(i64::MIN, i64::MAX)?),
        Datatype::Fp32 => raw.put_f32_le(value.as_f64().ok_or_else(wrong)? as f32),
        Datatype::Fp64 => raw.put_f64_le(value.as_f64().ok_or_else(wrong)?),
        Datatype::Bytes => put_text(value.as_str().ok_or_else(wrong)?.as_bytes(), raw),
        Datatype::Fp16 | Datatype::Bf16 => {
            return Err(format!("{} is sent in binary only", datatype.name()));
        }
    }
    Ok(())
}

fn put_text(text: &[u8], raw: &mut BytesMut) {
    raw.put_u32_le(text.len() as u32);
    raw.put_slice(text);
}

/// Typed lists as raw bytes.
pub(super) fn raw_of_contents(datatype: Datatype, contents: &InferTensorContents) -> Result<Bytes, String> {
    let mut raw = BytesMut::new();
    match datatype {
        Datatype::Bool => contents.bool_contents.iter().for_each(|&bit| raw.put_u8(u8::from(bit))),
        Datatype::Uint8 => contents.uint_contents.iter().for_each(|&number| raw.put_u8(number as u8)),
        Datatype::Uint16 => contents.uint_contents.iter().for_each(|&number| raw.put_u16_le(number as u16)),
        Datatype::Uint32 => contents.uint_contents.iter().for_each(|&number| raw.put_u32_le(number)),
        Datatype::Uint64 => contents.uint64_contents.iter().for_each(|&number| raw.put_u64_le(number)),
        Datatype::Int8 => contents.int_contents.iter().for_each(|&number| raw.put_i8(number as i8)),
        Datatype::Int16 => contents.int_contents.iter().for_each(|&number| raw.put_i16_le(number as i16)),
        Datatype::Int32 => contents.int_contents.iter().for_each(|&number| raw.put_i32_le(number)),
        Datatype::Int64 => contents.int64_contents.iter().for_each(|&number| raw.put_i64_le(number)),
        Datatype::Fp32 => contents.fp32_contents.iter().for_each(|&number| raw.put_f32_le(number)),
        Datatype::Fp64 => contents.fp64_contents.iter().for_each(|&number| raw.put_f64_le(number)),
        Datatype::Bytes => contents.bytes_contents.iter().for_each(|text| put_text(text, &mut raw)),
        Datatype::Fp16 | Datatype::Bf16 => return Err(format!("{} is sent raw only", datatype.name())),
    }
    Ok(raw.freeze())
}

/// Raw bytes as a flat list of JSON; none for what has no JSON.
pub(super) fn json_of_raw(datatype: Datatype, raw: &[u8]) -> Option<Vec<Value>> {
    if datatype == Datatype::Bytes {
        return Some(texts(raw)?.into_iter().map(|text| Value::from(String::from_utf8_lossy(text))).collect());
    }
    let size = datatype.element_bytes()?;
    raw.chunks_exact(size).map(|element| json_of_element(datatype, element)).collect()
}

fn json_of_element(datatype: Datatype, element: &[u8]) -> Option<Value> {
    let mut bytes = [0; 8];
    bytes[..element.len()].copy_from_slice(element);
    let bits = u64::from_le_bytes(bytes);
    let float = |number: f64| Number::from_f64(number).map_or(Value::Null, Value::Number);
    Some(match datatype {
        Datatype::Bool => Value::from(bits != 0),
        Datatype::Uint8 | Datatype::Uint16 | Datatype::Uint32 | Datatype::Uint64 => Value::from(bits),
        Datatype::Int8 => Value::from(bits as i8),
        Datatype::Int16 => Value::from(bits as i16),
        Datatype::Int32 => Value::from(bits as i32),
        Datatype::Int64 => Value::from(bits as i64),
        Datatype::Fp32 => float(f64::from(f32::from_bits(bits as u32))),
        Datatype::Fp64 => float(f64::from_bits(bits)),
        Datatype::Fp16 | Datatype::Bf16 | Datatype::Bytes => return None,
    })
}

/// The texts of a raw BYTES tensor; none when lengths and bytes do not agree.
fn texts(mut raw: &[u8]) -> Option<Vec<&[u8]>> {
    let mut texts = Vec::new();
    while !raw.is_empty() {
        let (length, rest) = raw.split_first_chunk::<4>()?;
        let (text, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        texts.push(text);
        raw = rest;
    }
    Some(texts)
}

/// Elements in a tensor of this shape; none for a size below 0 or a product beyond all memory.
pub(super) fn elements(shape: &[i64]) -> Option<usize> {
    let mut sizes = shape.iter().map(|&size| usize::try_from(size).ok());
    sizes.try_fold(1_usize, |product, size| product.checked_mul(size?))
}

/// What is wrong with the length of `raw` for so many elements, as Triton says it; nothing is.
pub(super) fn check_length(spec: &TensorSpec, model: &str, elements: usize, raw: &[u8]) -> Result<(), String> {
    let name = &spec.name;
    if let Some(size) = spec.datatype.element_bytes() {
        let expected = size.saturating_mul(elements);
        if raw.len() == expected {
            return Ok(());
        }
        let got = raw.len();
        return Err(format!(
            "input byte size mismatch for input '{name}' for model '{model}'. Expected {expected}, got {got}"
        ));
    }
    match texts(raw) {
        Some(texts) if texts.len() == elements => Ok(()),
        Some(texts) => {
            let got = texts.len();
            Err(format!(
                "expected {elements} string elements for inference input '{name}' for model '{model}', got {got}"
            ))
        }
        None => Err(format!("incomplete string data for inference input '{name}' for model '{model}'")),
    }
}

/// Twice every element; whole numbers wrap.
pub(super) fn doubled(datatype: Datatype, raw: &Bytes) -> Bytes {
    macro_rules! twice {
        ($kind:ty, $twice:expr) => {
            raw.chunks_exact(size_of::<$kind>())
                .flat_map(|element| {
                    let mut bytes = [0; size_of::<$kind>()];
                    bytes.copy_from_slice(element);
                    let twice: fn($kind) -> $kind = $twice;
                    twice(<$kind>::from_le_bytes(bytes)).to_le_bytes()
                })
                .collect::<Vec<u8>>()
                .into()
        };
    }
    match datatype {
        // Twice in two's complement is the same for signed numbers.
        Datatype::Uint8 | Datatype::Int8 => twice!(u8, |number| number.wrapping_mul(2)),
        Datatype::Uint16 | Datatype::Int16 => twice!(u16, |number| number.wrapping_mul(2)),
        Datatype::Uint32 | Datatype::Int32 => twice!(u32, |number| number.wrapping_mul(2)),
        Datatype::Uint64 | Datatype::Int64 => twice!(u64, |number| number.wrapping_mul(2)),
        Datatype::Fp32 => twice!(f32, |number| number * 2.0),
        Datatype::Fp64 => twice!(f64, |number| number * 2.0),
        Datatype::Bool | Datatype::Fp16 | Datatype::Bf16 | Datatype::Bytes => raw.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn json_and_raw_go_there_and_back() {
        for (datatype, data) in [
            (Datatype::Bool, json!([true, false])),
            (Datatype::Uint8, json!([0, 255])),
            (Datatype::Uint16, json!([0, 65535])),
            (Datatype::Uint32, json!([0, u32::MAX])),
            (Datatype::Uint64, json!([0, u64::MAX])),
            (Datatype::Int8, json!([-128, 127])),
            (Datatype::Int16, json!([-32768, 1])),
            (Datatype::Int32, json!([i32::MIN, 1])),
            (Datatype::Int64, json!([i64::MIN, 1])),
            (Datatype::Fp32, json!([0.5, -2.0])),
            (Datatype::Fp64, json!([0.1, 1e300])),
            (Datatype::Bytes, json!(["é", ""])),
        ] {
            let raw = raw_of_json(datatype, &data).expect("fits");
            assert_eq!(json_of_raw(datatype, &raw).map(Value::from), Some(data), "{datatype:?}");
        }
        let nested = raw_of_json(Datatype::Int8, &json!([[1, 2], [3, 4]])).expect("fits");
        assert_eq!(nested, Bytes::from_static(&[1, 2, 3, 4]));
        assert_eq!(raw_of_json(Datatype::Fp32, &json!([1])).expect("a whole number"), 1_f32.to_le_bytes()[..]);
        for (datatype, data) in [
            (Datatype::Uint8, json!([256])),
            (Datatype::Int8, json!([1.5])),
            (Datatype::Fp32, json!(["1"])),
            (Datatype::Bytes, json!([1])),
            (Datatype::Fp16, json!([1.0])),
        ] {
            assert!(raw_of_json(datatype, &data).is_err(), "{datatype:?} {data}");
        }
    }

    #[test]
    fn twice_is_twice() {
        for (datatype, data, twice) in [
            (Datatype::Int8, json!([-3, 100]), json!([-6, -56])),
            (Datatype::Uint16, json!([7]), json!([14])),
            (Datatype::Fp32, json!([1.25]), json!([2.5])),
            (Datatype::Fp64, json!([-1.25]), json!([-2.5])),
        ] {
            let raw = doubled(datatype, &raw_of_json(datatype, &data).expect("fits"));
            assert_eq!(json_of_raw(datatype, &raw).map(Value::from), Some(twice));
        }
    }

    #[test]
    fn broken_texts_and_shapes_are_seen() {
        assert_eq!(texts(&[1, 0, 0, 0, b'a', 0, 0, 0, 0]), Some(vec![&b"a"[..], &b""[..]]));
        assert_eq!((texts(&[9, 0, 0, 0, b'a']), texts(&[1, 0])), (None, None));
        assert_eq!((elements(&[2, 3]), elements(&[]), elements(&[-1])), (Some(6), Some(1), None));
        assert_eq!(elements(&[i64::MAX, i64::MAX]), None);
    }
}
