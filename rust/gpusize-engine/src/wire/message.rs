//! The message of a failed answer, for people.

use sonic_rs::JsonValueTrait;

use super::places::too_deep;

/// Longest error text kept of an answer.
pub const MAX_MESSAGE: usize = 2_048;

/// The message that an error document carries, or its text; bounded.
pub fn message_of(body: &[u8]) -> String {
    stated_message(body).unwrap_or_else(|| bounded(&String::from_utf8_lossy(&body[..body.len().min(MAX_MESSAGE * 2)])))
}

/// The message that an error document carries where such documents carry it; bounded.
pub fn stated_message(body: &[u8]) -> Option<String> {
    if too_deep(body) {
        return None;
    }
    for path in [&["error", "message"][..], &["message"], &["error"], &["detail"]] {
        if let Ok(value) = sonic_rs::get(body, path)
            && let Some(text) = value.as_str()
        {
            return Some(bounded(text));
        }
    }
    None
}

/// At most `MAX_MESSAGE` characters, none of which moves a cursor.
pub fn bounded(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_MESSAGE).collect();
    clean.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_bounded_and_plain() {
        assert_eq!(message_of(b"{\"detail\":\"no \\u001b[31mmodel\"}"), "no  [31mmodel");
        assert_eq!(message_of(&[b'x'; 9000]).len(), MAX_MESSAGE);
        assert_eq!(stated_message(b"{\"a\":1}"), None);
    }
}
