"""Lines of prose break at 120 characters; what is no prose stays as it is."""

from __future__ import annotations

from scripts.prose import WIDTH, wrapped

LONG = "word " * 60


def test_a_paragraph_and_an_item_are_broken_and_keep_their_words() -> None:
    text = f"# Title\n\n{LONG.strip()}\n\n- {LONG.strip()}\n- short\n"
    made = wrapped(text)
    assert max(map(len, made.split("\n"))) <= WIDTH
    assert made.split() == text.split()
    assert "\n  word" in made, "an item goes on under its own text"
    assert wrapped(made) == made


def test_code_tables_headings_and_short_lines_stay() -> None:
    text = f"# {LONG}\n\n```sh\n{LONG}\n```\n\n| a |\n|---|\n| {LONG} |\n\n    {LONG}\n\none\ntwo\n"
    assert wrapped(text) == text


def test_no_line_begins_with_what_markdown_takes_for_a_mark() -> None:
    for fill in range(100, 120):
        made = wrapped(f"{'x' * fill} - 1. # {'y ' * 40}z `{'code ' * 12}end`")
        assert not [line for line in made.split("\n")[1:] if line.startswith(("- ", "1. ", "# "))]
        assert f"`{'code ' * 12}end`" in made.split("\n")[-1], "code is not broken"
