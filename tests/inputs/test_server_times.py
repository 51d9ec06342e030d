"""Where servers say how long a request waited and was served: as an API says it, and as a user writes it."""

import pytest

from gpusize.base.errors import UsageError
from gpusize.targets.apis import ApiOptions, ResponseSpec, create_api, response_from_texts
from gpusize.targets.apis.server_times import OF_LANGUAGE_MODELS, time_places, times_from_text, within

QUEUE = {"at": "/metrics/queue_time_ms", "unit": "ms"}


def test_a_specification_has_times_only_where_they_are_said():
    assert not {"server_queue", "server_service"} & ResponseSpec().to_dict().keys()
    made = ResponseSpec(server_queue=QUEUE, server_service=[{"at": ("/a", "/b"), "unit": "s"}])
    assert made.to_dict()["server_queue"] == [QUEUE]
    assert made.to_dict()["server_service"] == [{"at": ["/a", "/b"], "unit": "s"}]
    assert "server_queue" not in made.changed({"server_queue": None}).to_dict()


def test_texts_become_times():
    texts = ["server_queue=/usage/queue_time:s,x-queue-time:ms", "server_service=/t/prompt_ms + /t/predicted_ms:ms"]
    found = response_from_texts(texts)
    assert found == {
        "server_queue": [{"at": "/usage/queue_time", "unit": "s"}, {"header": "x-queue-time", "unit": "ms"}],
        "server_service": [{"at": ["/t/prompt_ms", "/t/predicted_ms"], "unit": "ms"}],
    }
    assert ResponseSpec().changed(found).to_dict()["server_service"] == found["server_service"]
    assert response_from_texts(["server_queue="]) == {"server_queue": None}
    with pytest.raises(UsageError, match="has no unit"):
        times_from_text("/queue", "response server_queue")


@pytest.mark.parametrize(
    "wrong, why",
    [
        ("/a", "not a time"),
        ({"at": "/a"}, "not a time"),
        ({"at": "/a", "header": "x", "unit": "ms"}, "not a time"),
        ({"at": "a", "unit": "ms"}, "not a JSON pointer"),
        ({"at": [], "unit": "ms"}, "a sum of no times"),
        ({"at": "/a", "unit": "h"}, "not a unit of time"),
        ({"header": "x time", "unit": "ms"}, "not the name of a header"),
    ],
)
def test_what_is_no_time_is_refused(wrong, why):
    with pytest.raises(UsageError, match=why):
        time_places(wrong, "response server_queue")


def test_streams_of_responses_have_them_a_level_deeper():
    assert within("response", (QUEUE, {"header": "x", "unit": "s"})) == (
        {"at": "/response/metrics/queue_time_ms", "unit": "ms"},
        QUEUE,
        {"header": "x", "unit": "s"},
    )


@pytest.mark.parametrize("name", ["openai-chat", "openai-completions", "openai-responses", "openai-embeddings"])
def test_apis_of_models_say_where_times_are(name):
    response = create_api(name, ApiOptions(model="m")).response()
    heads = [each["header"] for each in response["server_queue"] if "header" in each]
    assert heads == ["x-queue-time"]
    documents = [each for each in response["server_queue"] if "at" in each]
    assert bool(documents) == (name != "openai-embeddings")
    assert all(each["unit"] == "ms" for each in OF_LANGUAGE_MODELS["server_service"])


@pytest.mark.parametrize("name", ["generic", "nat", "nat-chat", "kserve", "kserve-grpc"])
def test_other_apis_look_for_none(name):
    assert not {"server_queue", "server_service"} & create_api(name, ApiOptions()).response().keys()
