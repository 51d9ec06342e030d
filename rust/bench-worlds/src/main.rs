//! `bench-worlds`: one JSON request per line of standard input; for each, one JSON line and the columns of its rows on standard output.
//!
//! The line is `{"rows": N}` or `{"error": "..."}`. After the former come, little-endian and without anything between them, `due_ns`,
//! `start_ns`, `first_token_ns` and `end_ns` (i64), `prompt_tokens`, `tokens_out`, `gpu` and `user` (u32), each N long. It ends with its input.

use std::io::{self, BufRead, Write};

use bench_worlds::driver::{Rows, run};
use bench_worlds::spec::Request;

fn main() -> io::Result<()> {
    let mut out = io::BufWriter::with_capacity(1 << 20, io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let answer = serde_json::from_str::<Request>(&line?)
            .map_err(|error| error.to_string())
            .and_then(|request| run(&request));
        match answer {
            Ok(rows) => write_rows(&mut out, &rows)?,
            Err(error) => writeln!(out, "{}", serde_json::json!({ "error": error }))?,
        }
        out.flush()?;
    }
    Ok(())
}

fn write_rows(out: &mut impl Write, rows: &Rows) -> io::Result<()> {
    writeln!(out, "{}", serde_json::json!({ "rows": rows.due_ns.len() }))?;
    for times in [&rows.due_ns, &rows.start_ns, &rows.first_token_ns, &rows.end_ns] {
        let bytes: Vec<u8> = times.iter().flat_map(|time| time.to_le_bytes()).collect();
        out.write_all(&bytes)?;
    }
    for counts in [&rows.prompt_tokens, &rows.tokens_out, &rows.gpu, &rows.user] {
        let bytes: Vec<u8> = counts.iter().flat_map(|count| count.to_le_bytes()).collect();
        out.write_all(&bytes)?;
    }
    Ok(())
}
