//! The sampler on a machine with cgroup v2: what the test that boots one runs inside it (`tests/resources/test_cgroup2.py`).
//!
//! Without arguments it makes groups, runs itself in them as children that use what they say, samples them, and prints one
//! line of JSON. As a child: `work CPU_MS MIB` waits for a line, uses so much CPU time and memory, and prints what it used.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type};
use arrow_array::{Array, RecordBatch};
use gpusize_base::clock::thread_cpu_ns;
use gpusize_sampler::{Plan, Sampler};
use serde_json::{Value, json};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const TOP: &str = "/sys/fs/cgroup";
const MIB: usize = 1 << 20;

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().collect();
    match words.get(1).map(String::as_str) {
        Some("work") => work(words[2].parse()?, words[3].parse()?),
        _ => measure(),
    }
}

/// One thread, so that its own CPU clock is the truth.
fn work(cpu_ms: i64, mib: usize) -> Result<()> {
    println!("up");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line)?;
    let before_ns = thread_cpu_ns();
    let mut memory = vec![0_u8; mib * MIB];
    for page in memory.chunks_mut(4096) {
        page[0] = 1;
    }
    let mut x = 1_u64;
    while thread_cpu_ns() - before_ns < cpu_ms * 1_000_000 {
        for _ in 0..10_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
    }
    std::hint::black_box(&memory);
    println!("{}", thread_cpu_ns() - before_ns);
    Ok(())
}

fn write(path: impl AsRef<Path>, text: &str) -> Result<()> {
    let path = path.as_ref();
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()).into())
}

/// A group with limits: memory in MiB, CPU in percent of one.
fn group(path: &str, mib: usize, cpu_percent: usize) -> Result<()> {
    let dir = format!("{TOP}{path}");
    fs::create_dir_all(&dir)?;
    write(format!("{dir}/memory.max"), &(mib * MIB).to_string())?;
    write(format!("{dir}/cpu.max"), &format!("{} 100000", cpu_percent * 1000))
}

/// A child in a group, which waits.
fn child(path: &str, cpu_ms: u32, mib: usize) -> Result<Child> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["work", &cpu_ms.to_string(), &mib.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut up = [0_u8; 3];
    std::io::Read::read_exact(child.stdout.as_mut().ok_or("no output")?, &mut up)?;
    write(format!("{TOP}{path}/cgroup.procs"), &child.id().to_string())?;
    Ok(child)
}

/// Let it go on; the CPU time that it says it used, and how it ended.
fn finish(mut child: Child) -> Result<(Option<i64>, String)> {
    child.stdin.take().ok_or("no input")?.write_all(b"\n")?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
    let status = child.wait()?;
    Ok((line.trim().parse().ok(), status.to_string()))
}

/// CPU time of all children that were waited for, from their starts to their very ends, in steps of 10 ms.
fn waited_for_ns() -> Result<i64> {
    let stat = fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(") ").ok_or("no name in stat")?.1;
    // The first word after the name is the state, the third of all.
    let ticks =
        |field: usize| -> Result<i64> { Ok(after_name.split(' ').nth(field - 3).ok_or("a short stat")?.parse()?) };
    Ok((ticks(16)? + ticks(17)?) * 10_000_000)
}

fn until(sampler: &Sampler, condition: impl Fn(&Value) -> bool) {
    while !condition(&sampler.facts()["sources"]["stage"]) {
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

fn measure() -> Result<()> {
    let own = format!("{TOP}/run");
    fs::create_dir_all(&own)?;
    for dir in [TOP, own.as_str()] {
        write(format!("{dir}/cgroup.subtree_control"), "+cpu +memory +pids +io")?;
    }
    group("/run/stage", 128, 50)?;
    let first = child("/run/stage", 600, 48)?;
    let plan = json!({"sources": [
        {"name": "stage", "kind": "cgroup", "pid": first.id(), "parent": "/run"},
        {"name": "tree", "kind": "process", "pid": first.id(), "pss": true},
        {"name": "host", "kind": "host"},
    ]});
    let sampler = Sampler::start(serde_json::from_value::<Plan>(plan)?)?;
    sampler.mark("begun");
    let (used_ns, first_end) = finish(first)?;
    let waited_ns = waited_for_ns()?;
    // A process leaves its group a moment before its end is told.
    until(&sampler, |stage| !stage["emptied_ns"].is_null() && !stage["exited_ns"].is_null());
    let emptied = sampler.facts();
    // The first of the two begins a new high-water mark, the second reads it.
    sampler.mark("ended");
    sampler.mark("read again");
    fs::remove_dir(format!("{TOP}/run/stage"))?;
    until(&sampler, |stage| stage["gone"] == true);
    let gone = sampler.facts();

    // Limits above, which the group's own counters do not tell of.
    write(format!("{own}/memory.high"), &(30 * MIB).to_string())?;
    write(format!("{own}/cpu.max"), "5000 100000")?;
    group("/run/stage", 32, 100)?;
    until(&sampler, |stage| stage["restarts"] == 1);
    let (_, second_end) = finish(child("/run/stage", 1, 96)?)?;
    until(&sampler, |stage| !stage["emptied_ns"].is_null());
    let facts = sampler.stop();
    let batches = sampler.drain();
    let stage = batches.iter().find(|(name, _)| name == "stage").ok_or("no readings")?;
    println!(
        "RESULT {}",
        json!({
            "release": fs::read_to_string("/proc/sys/kernel/osrelease")?.trim(), "used_ns": used_ns, "waited_ns": waited_ns, "touched_bytes": 48 * MIB, "first_end": first_end, "second_end": second_end,
            "emptied": emptied, "gone": gone, "facts": facts, "stage": columns(&stage.1),
        })
    );
    Ok(())
}

/// A batch as lists, nulls included.
fn columns(batch: &RecordBatch) -> Value {
    let mut lists = serde_json::Map::new();
    for (field, array) in batch.schema().fields().iter().zip(batch.columns()) {
        let list: Vec<Option<i64>> = match array.as_primitive_opt::<Int64Type>() {
            Some(values) => values.iter().collect(),
            None => array.as_primitive::<Int32Type>().iter().map(|value| value.map(i64::from)).collect(),
        };
        if array.null_count() < array.len() {
            lists.insert(field.name().clone(), json!(list));
        }
    }
    Value::Object(lists)
}
