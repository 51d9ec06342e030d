"""Synthetic prompts: lengths, shared prefixes, reproducibility, and what a server reports beside what was asked."""

import json
import math
from itertools import pairwise
from statistics import fmean, median

import polars as pl
import pytest

from gpusize.base.errors import DatasetError, EnvironmentLacks, UsageError
from gpusize.workload.dataset import Dataset, Synthetic, corrected, length_report


def lengths(text: str, name: str = "input_tokens") -> list[int]:
    return [row[name] for row in Dataset.from_synthetic(text).rows]


def test_fixed_lengths_are_exact_by_the_estimate():
    dataset = Dataset.from_synthetic("input=7 output=fixed(3) rows=4")
    assert [len(row.value.split()) for row in dataset] == [7] * 4
    assert [len(row.value) for row in dataset] == [4 * 7 - 1] * 4
    assert [row["output_tokens"] for row in dataset.rows] == [3] * 4
    assert len({row.value for row in dataset}) == 4
    assert dataset.key == "prompt"
    assert dataset.counted_by == "the estimate of 4 characters per token"
    assert "4 characters per token" in dataset.notes[0]


def test_distributions_have_their_moments():
    normal = lengths("input=normal(500,50) rows=4000")
    assert fmean(normal) == pytest.approx(500, abs=4)
    assert math.sqrt(fmean((x - 500) ** 2 for x in normal)) == pytest.approx(50, rel=0.05)
    skewed = lengths("input=1 output=lognormal(128,0.5) rows=4000", "output_tokens")
    assert median(skewed) == pytest.approx(128, rel=0.05)
    assert fmean(skewed) == pytest.approx(128 * math.exp(0.125), rel=0.05)
    flat = lengths("input=uniform(3,6) rows=4000")
    assert [flat.count(value) / 4000 for value in (3, 4, 5, 6)] == pytest.approx([0.25] * 4, abs=0.03)
    assert min(lengths("input=normal(2,50) rows=100")) == 1


def test_lengths_from_a_file(tmp_path):
    file = tmp_path / "lengths.txt"
    file.write_text("# of yesterday\n10\n\n20  # the other\n")
    found = lengths(f"input=empirical({file}) rows=500")
    assert set(found) == {10, 20}
    assert found.count(10) / 500 == pytest.approx(0.5, abs=0.1)
    first = Dataset.from_synthetic(f"input=empirical({file}) rows=5").sha256
    file.write_text("10\n30\n")
    assert Dataset.from_synthetic(f"input=empirical({file}) rows=5").sha256 != first
    file.write_text("10\nten\n")
    with pytest.raises(DatasetError) as caught:
        lengths(f"input=empirical({file}) rows=5")
    assert caught.value.where == f"{file}:2"
    file.write_text("#\n")
    with pytest.raises(DatasetError, match="no lengths"):
        lengths(f"input=empirical({file}) rows=5")


def test_the_same_description_gives_the_same_rows_and_more_rows_leave_the_first_as_they_are():
    few = Dataset.from_synthetic("input=normal(50,9) output=9 rows=5 prefix=0.2 seed=3")
    assert few == Dataset.from_synthetic("input=normal(50,9) output=9 rows=5 prefix=0.2 seed=3")
    many = Dataset.from_synthetic("input=normal(50,9) output=9 rows=50 prefix=0.2 seed=3")
    assert [dict(row) for row in many.rows[:5]] == [dict(row) for row in few.rows]
    other = Dataset.from_synthetic("input=normal(50,9) output=9 rows=5 prefix=0.2 seed=4")
    assert other.sha256 != few.sha256
    assert other.rows[0]["prompt"] != few.rows[0]["prompt"]


def test_the_words_are_those_of_the_first_release():
    # A seed means the same prompts in every version: this text must never change.
    assert Dataset.from_synthetic("input=6 rows=1 seed=1")[0].value == "oil the hub tea rot bed"


def shared_words(first: str, second: str) -> int:
    pairs = zip(first.split(), second.split(), strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), len(first.split()))


def test_prefixes_are_shared_within_their_group():
    dataset = Dataset.from_synthetic("input=100 rows=6 prefix=0.4 groups=2")
    prompts = [row.value for row in dataset]
    for first, second in pairwise(prompts[::2] + prompts[:1]):
        assert first == second or 40 <= shared_words(first, second) < 44
    assert shared_words(prompts[0], prompts[1]) < 5
    assert len({row.value for row in Dataset.from_synthetic("input=100 rows=6 prefix=1")}) == 1


def test_a_table_and_a_text_mean_the_same():
    table = {"input": "normal(50,9)", "output": 128, "rows": 20, "prefix": 0.5, "groups": 2, "seed": 7}
    text = "input=normal(50, 9) output=128, rows=20 prefix=0.5 groups=2 seed=7"
    assert Dataset.from_synthetic(table).rows == Dataset.from_synthetic(text).rows
    what = Synthetic.parse(table)
    assert Synthetic.parse(what.text()) == what
    assert Dataset.from_synthetic(table).options() == {"synthetic": what.text()}


@pytest.mark.parametrize(
    "text,where,what",
    [
        ("input=5 rows", "synthetic, column 9", '"rows" is not name=value'),
        ("input=5 size=3", "synthetic, column 9", 'there is no "size"'),
        ("input=5 input=6", "synthetic, column 9", '"input" is given twice'),
        ("input=gamma(2,3)", "synthetic, column 1", '"gamma(2,3)" is not a distribution of lengths'),
        ("input=normal(2)", "synthetic, column 1", '"normal(2)" is not a distribution of lengths'),
        ("input=0", "synthetic, column 1", '"0" is out of range'),
        ("input=uniform(5,2)", "synthetic, column 1", '"uniform(5,2)" is out of range'),
        ("input=5 rows=two", "synthetic, column 9", "rows is two, not a number"),
        ("input=5 rows=2.5", "synthetic, column 9", "rows is 2.5, not a whole number"),
        ("input=5 rows=0", "synthetic", "rows = 0 is out of range"),
        ("input=5 prefix=1.5", "synthetic", "prefix = 1.5 is out of range"),
        ("input=nan", "synthetic, column 1", '"nan" is not a distribution of lengths'),
    ],
)
def test_descriptions_that_cannot_be_meant(text, where, what):
    with pytest.raises(UsageError) as caught:
        Dataset.from_synthetic(text)
    assert (caught.value.where, caught.value.what) == (where, what)


def test_too_much_text_is_refused_before_it_is_made():
    with pytest.raises(DatasetError, match=r"8\.0 GB"):
        Dataset.from_synthetic("input=20000 rows=100000")


def test_asked_and_reported_lengths_side_by_side():
    dataset = Dataset.from_synthetic("input=100 output=10 rows=2")
    records = pl.DataFrame(
        {
            "row": [0, 1, 0, 1],
            "tokens_in": [103, 103, 103, None],
            "tokens_out": [10, 10, 10, 10],
            "outcome": ["ok", "ok", "ok", "ok"],
        },
        schema_overrides={"row": pl.UInt32},
    )
    failed = records.head(1).with_columns(tokens_in=pl.lit(9000, pl.Int64), outcome=pl.lit("timeout"))
    prompts, answers = length_report(pl.concat([records, failed]), dataset)
    assert (prompts.requests, prompts.asked_mean, prompts.reported_mean) == (3, 100, 103)
    assert prompts.flagged
    assert not answers.flagged
    assert "off by more than 2%" in str(prompts)
    assert "4 characters per token" in str(prompts)
    kept = pl.DataFrame({"id": ["0", "1"], "input_tokens": [102, 102]})
    [prompts] = length_report(records.lazy(), kept)
    assert not prompts.flagged
    assert length_report(records, Dataset.from_rows(["a", "b"])) == []


def test_a_correction_makes_the_server_report_what_was_asked():
    def reported(dataset: Dataset) -> float:
        return fmean(len(row.value.split()) * 1.25 for row in dataset)

    asked = Dataset.from_synthetic("input=normal(400,40) rows=50")
    mean = fmean(row["input_tokens"] for row in asked.rows)
    better = corrected(asked, mean, reported(asked))
    assert [row["input_tokens"] for row in better.rows] == [row["input_tokens"] for row in asked.rows]
    assert reported(better) == pytest.approx(mean, rel=0.002)
    assert Dataset.from_synthetic(better.options()["synthetic"]).rows == better.rows
    with pytest.raises(UsageError, match="only synthetic"):
        corrected(Dataset.from_prompt("x"), 1, 2)
    with pytest.raises(UsageError, match="mean lengths must be positive"):
        corrected(asked, 0, 2)


@pytest.fixture
def tokenizer_file(tmp_path):
    """Makes a tokenizer of a kind and hands back its file and a way to count with it."""
    tokenizers = pytest.importorskip("tokenizers")

    def make(kind: str):
        corpus = [row.value for row in Dataset.from_synthetic("input=400 rows=40 seed=9")]
        if kind == "words":
            made = tokenizers.Tokenizer(tokenizers.models.BPE())
            made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
            trainer = tokenizers.trainers.BpeTrainer(
                vocab_size=3000,
                initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
                show_progress=False,
            )
            made.train_from_iterator(corpus, trainer)
            made.post_processor = tokenizers.processors.TemplateProcessing("$A", special_tokens=[])
        else:
            made = tokenizers.Tokenizer(tokenizers.models.BPE())
            trainer = tokenizers.trainers.BpeTrainer(vocab_size=90, show_progress=False)
            made.train_from_iterator(corpus, trainer)
        path = tmp_path / f"{kind}.json"
        made.save(str(path))
        return path, lambda text: len(made.encode(text, add_special_tokens=False))

    return make


@pytest.mark.parametrize("kind", ["words", "across words"])
def test_lengths_are_exact_by_a_tokenizer(tokenizer_file, kind):
    path, count = tokenizer_file(kind)
    dataset = Dataset.from_synthetic("input=uniform(1,90) rows=30 prefix=0.5", tokenizer=path)
    assert [count(row.value) for row in dataset] == [row["input_tokens"] for row in dataset.rows]
    assert dataset.counted_by == f"tokenizer {path}"
    assert dataset.options()["tokenizer"] == str(path)
    assert "what a chat template adds is not in them" in dataset.notes[0]


def test_a_tokenizer_counts_traces_and_answers(tokenizer_file, tmp_path):
    path, count = tokenizer_file("words")
    trace = tmp_path / "trace.jsonl"
    trace.write_text(json.dumps({"timestamp": 0, "input_length": 700, "output_length": 3, "hash_ids": [1, 2]}))
    dataset = Dataset.read(trace, tokenizer=path)
    assert count(dataset[0].value) == 700
    talk = tmp_path / "talk.json"
    answer = "the old man and the sea"
    said = [{"from": "human", "value": "hi"}, {"from": "gpt", "value": answer}]
    talk.write_text(json.dumps([{"conversations": said}]))
    assert Dataset.read(talk, tokenizer=path).rows[0]["output_tokens"] == count(answer)


def test_a_file_that_is_no_tokenizer(tmp_path):
    pytest.importorskip("tokenizers")
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")
    with pytest.raises(DatasetError, match="this is not a tokenizer"):
        Dataset.from_synthetic("input=5", tokenizer=file)


def test_a_tokenizer_without_its_package(tmp_path, monkeypatch):
    file = tmp_path / "tokenizer.json"
    file.write_text("{}")
    monkeypatch.setitem(__import__("sys").modules, "tokenizers", None)
    with pytest.raises(EnvironmentLacks) as caught:
        Dataset.from_synthetic("input=5", tokenizer=file)
    assert caught.value.todo == 'install "gpusize[tokens]"'
    with pytest.raises(DatasetError, match="no such file"):
        Dataset.from_synthetic("input=5", tokenizer=tmp_path / "none.json")
