"""Generic bodies that are forms, and the workflows behind the NeMo Agent Toolkit."""

import email.policy
from email.parser import BytesParser
from urllib.parse import parse_qsl

import pytest

from gpusize.base.errors import DatasetError, UsageError
from gpusize.targets.apis import ApiOptions, create_api, render
from gpusize.targets.apis.message_forms import BOUNDARY
from gpusize.workload.dataset import Dataset
from tests.inputs.reading import read

FORM = "application/x-www-form-urlencoded"
MULTIPART = "multipart/form-data"


def sent(row, key=None, content_type=FORM, **options):
    api = create_api("generic", ApiOptions(content_type=content_type, **options))
    return render(api, Dataset.from_rows([row], key=key)[0])


def parts(data):
    """The parts of a multipart body, read by the standard library's parser of mail."""
    head = f"Content-Type: {MULTIPART}; boundary={BOUNDARY}\r\n\r\n".encode()
    message = BytesParser(policy=email.policy.HTTP).parsebytes(head + data)
    assert not message.defects
    return {
        part.get_param("name", header="content-disposition"): (
            part.get_filename(),
            part["content-type"],
            part.get_payload(decode=True),
        )
        for part in message.iter_parts()
    }


def test_a_form_from_the_rows_object():
    row = {"q": "a b&c=ü", "n": 3, "on": True, "tags": ["x", "y"], "none": None, "deep": {"a": 1}}
    assert parse_qsl(sent(row, key=".").decode()) == [
        ("q", "a b&c=ü"),
        ("n", "3"),
        ("on", "true"),
        ("tags", "x"),
        ("tags", "y"),
        ("deep", '{"a":1}'),
    ]
    assert sent("hi", model="m") == b"prompt=hi&model=m"


def test_a_form_from_a_template(tmp_path):
    row = {"q": "a b&c", "n": 3}
    assert sent(row, key=".", body_template="q=${q}&n=${n}") == b"q=a+b%26c&n=3"
    (tmp_path / "form=1").write_text("x=${q}")
    assert sent(row, key=".", body_template=str(tmp_path / "form=1")) == b"x=a+b%26c"


def test_a_multipart_form(tmp_path):
    (tmp_path / 'sp"eech.wav').write_bytes(b"RIFF\r\n--\0")
    row = {
        "file": {"file": str(tmp_path / 'sp"eech.wav')},
        "image": {"base64": "AAEC", "filename": "a.bin", "content_type": "image/x"},
        "raw": b"\xff\r\n\x00",
        "model": "whisper",
        "n": 2,
        "meta": {"file": 1, "other": 2},
    }
    data = sent(row, key=".", content_type=MULTIPART, max_tokens=7)
    made = parts(data)
    filename, kind, content = made["file"]
    assert (filename.replace("%22", '"'), content) == ('sp"eech.wav', b"RIFF\r\n--\0")
    assert kind in {"audio/wav", "audio/x-wav", "audio/vnd.wave"}
    assert made["image"] == ("a.bin", "image/x", b"\x00\x01\x02")
    assert made["raw"] == ("raw", "application/octet-stream", b"\xff\r\n\x00")
    assert {name: made[name][2] for name in ("model", "n", "max_tokens")} == {
        "model": b"whisper",
        "n": b"2",
        "max_tokens": b"7",
    }
    assert made["meta"][2] == b'{"file":1,"other":2}'
    headers = create_api("generic", ApiOptions(content_type=MULTIPART)).headers()
    assert headers[0] == ("Content-Type", f"{MULTIPART}; boundary={BOUNDARY}")


@pytest.mark.parametrize(
    "value,what",
    [
        ({"file": "/nowhere/at/all"}, "cannot be sent: there is no such file: /nowhere/at/all"),
        ({"base64": "no!"}, "is not a form"),
        (f"x{BOUNDARY}x", "contains the boundary"),
        (object(), "is not a form"),
    ],
)
def test_what_is_no_multipart_form(value, what):
    with pytest.raises(DatasetError, match=what):
        sent({"a": value}, key=".", content_type=MULTIPART)


def test_a_multipart_form_has_no_template():
    with pytest.raises(UsageError, match="made from the row's fields"):
        create_api("generic", ApiOptions(content_type=MULTIPART, body_template="{}"))


def test_a_success_rule_of_the_users():
    api = create_api("generic", ApiOptions(response={"success_if": {"at": "/status", "is": ["ok"]}}))
    assert read(api.response(), [{"status": "ok"}]).satisfied
    assert not read(api.response(), [{"status": "busy"}]).satisfied


def test_a_workflow_that_failed_in_its_stream_is_no_success():
    response = create_api("nat").response()
    assert response["calls"]["field"] == "intermediate_data"
    good = read(response, [{"value": "42"}])
    assert (good.content, good.satisfied, good.error) == (["42"], True, None)
    bad = read(response, [{"code": "workflow_error", "message": "no such tool", "details": "ValueError"}])
    assert (bad.satisfied, bad.error) == (False, "no such tool")


def test_chats_of_a_workflow():
    streamed, whole = (create_api("nat-chat", ApiOptions(stream=stream)) for stream in (True, False))
    assert (streamed.default_path, whole.default_path) == ("/chat/stream", "/chat")
    row = Dataset.from_prompt("hi")[0]
    assert render(streamed, row) == b'{"stream":true,"messages":[{"role":"user","content":"hi"}]}'
    events = [{"choices": [{"delta": {"role": "assistant"}}]}, {"choices": [{"delta": {"content": "42"}}]}]
    reading = read(streamed.response(), events)
    assert (reading.content, reading.satisfied) == (["42"], True)
    assert streamed.response()["end"] is None
    assert not read(whole.response(), [{"message": "boom", "code": "x"}]).satisfied
