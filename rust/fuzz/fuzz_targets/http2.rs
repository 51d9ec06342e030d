//! See the function of this name in the library.
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|input: &[u8]| gpusize_fuzz::http2(input));

#[cfg(not(fuzzing))]
fn main() {
    gpusize_fuzz::replay(gpusize_fuzz::http2);
}
