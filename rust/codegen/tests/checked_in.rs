//! What is checked in is what the `.proto` says.

#[test]
fn writing_the_messages_again_changes_nothing() {
    let checked_in = std::fs::read_to_string(codegen::messages_path()).expect("the messages");
    let written = codegen::messages().expect("the .proto compiles");
    assert!(checked_in == written, "run `cargo run -p codegen` and check in what it writes");
}
