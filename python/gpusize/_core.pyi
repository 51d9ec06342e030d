"""The compiled half of gpusize. Private: the public names are in `gpusize`."""

from collections.abc import Sequence
from typing import Final, final

BUILD_PROFILE: Final[str]
"""The cargo profile that built this extension: ``debug`` or ``release``."""

def monotonic_ns() -> int:
    """The engine's clock (CLOCK_MONOTONIC), in nanoseconds."""

def synthetic_rows(rows: int) -> RecordBatches:
    """Records of a made-up level, for benchmarks of the hand-over to Polars."""

def clock_pair() -> tuple[int, int, int]:
    """One reading of both clocks: (monotonic ns, wall ns since 1970, uncertainty ns)."""

@final
class Session:
    """Workers and connections to one target; they live across levels.

    ``target`` is the JSON of a TargetSpec (see docs/reference/engine.md), ``segments`` the JSON list of body segments;
    ``rows`` holds for each dataset row the bytes of each of its fields. ``mix`` is the JSON of a Mix: requests of
    several kinds, and the conversation and turn of each row; it replaces the path and the segments.

    Raises GpusizeError subclasses: TargetError for an unknown host, a bad CA file and the like.
    """

    def __new__(
        cls, target: str, segments: str, rows: list[list[bytes]], *, workers: int = 1, mix: str | None = None
    ) -> Session: ...
    def level(
        self,
        plan: str,
        *,
        due: bytes | None = None,
        rows: bytes | None = None,
        targets: bytes | None = None,
        streams: bytes | None = None,
    ) -> Level:
        """Queue one level (JSON of a LevelPlan). It starts when the one before has closed; the call returns at once.

        The arrays belong to streams by plan, as in `schedule`.

        Raises UsageError for an invalid plan, and arrays that do not fit it, the dataset or the addresses.
        """
    def probe(self) -> str:
        """Send the first row once, outside every level.

        JSON with ``outcome``, ``status`` (of a failure), ``message`` and ``service_ns``.
        """
    def close(self) -> None: ...

@final
class Level:
    """One queued, running or finished visit of a level."""

    def poll(self) -> str:
        """JSON of a Progress (see docs/reference/engine.md); cheap, 10 Hz is fine."""
    def stop(self, drain_ns: int, reason: str = "stopped") -> None:
        """No new request from now on; those in flight have ``drain_ns`` and are then cancelled and recorded.

        ``reason`` (``stopped``, ``slo``, ``saturation`` or ``errors``) is what the outcome calls it. Raises UsageError
        for another word.
        """
    def prepared(self, timeout_s: float) -> bool:
        """Wait until the level's connections have been tried, or it has begun or is over. False: the time ran out.

        Checks for signals as ``wait`` does.
        """
    def start_at(self, start_ns: int) -> None:
        """Start a level that is held at ``start_ns`` of ``monotonic_ns()``.

        Raises UsageError for a start less than 2 ms ahead, upon which the level is still held, and for a level that is
        not held, not prepared, or has been told its start.
        """
    def set_close_at(self, close_at_ns: int) -> None:
        """Move the end of a level whose plan has a ``close_at_ns``, as when a clock is known better by now.

        Raises UsageError for an end less than 0.1 s ahead, for one that moves by more than a thousandth of the
        duration once the level has begun, for a level that the next one has been told to follow or that is over, and
        for one that ends by its duration.
        """
    def seconds(self, after: int) -> str:
        """JSON list of the complete seconds of the level from number ``after`` on (see docs/reference/engine.md).

        Those of the last 600 s are kept, or as many as have room in 512 KiB; of the last 60 s in any case.
        """
    def wait(self, timeout_s: float) -> bool:
        """Wait until every request of the level has its record and every part is on disk. False when the time ran out.

        Checks for signals every 100 ms, so that Ctrl-C raises KeyboardInterrupt here.
        """
    def outcome(self) -> str:
        """JSON of the LevelOutcome: counts, times, errors, CPU, histograms. Only after ``wait`` returned True."""
    def rows(self) -> RecordBatches | None:
        """The records still in memory, or None when they outgrew ``keep_bytes`` and are on disk only."""
    def spans(self) -> RecordBatches | None:
        """The calls inside the requests (see docs/reference/calls.md), in memory as long as the records are."""

@final
class RecordBatches:
    """Records as Arrow batches, handed over without a copy."""

    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class ScheduleItems:
    """A walk over the arrivals of a schedule: index, stream, seq, due_ns, row, target, priority."""

    def __iter__(self) -> ScheduleItems: ...
    def __next__(self) -> tuple[int, int, int, int, int, int | None, int]: ...

@final
class ScheduleBatches:
    """The arrivals of a schedule, made as they are read; each reading begins anew and takes the memory of one batch.

    Columns: ``index`` (position in the schedule), ``stream``, ``seq`` (position within the stream), ``due_ns`` (after
    the level's start), ``row``, ``target`` (null: the balance rule decides), ``priority``.
    """

    def __iter__(self) -> ScheduleItems:
        """The same one by one."""
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

def schedule(
    plan: str,
    dataset_rows: int,
    *,
    limit: int | None = None,
    due: bytes | None = None,
    rows: bytes | None = None,
    targets: bytes | None = None,
    streams: bytes | None = None,
    sessions: Sequence[int] | None = None,
    turns: Sequence[int] | None = None,
    worker: int = 0,
    workers: int = 1,
) -> ScheduleBatches:
    """Every arrival of an open loop (JSON of a LevelPlan) until its count, its duration, ``limit`` or its end.

    For streams by plan ``due`` holds 64-bit due times in nanoseconds after the level's start, ascending; ``rows``
    (32 bits), ``targets`` and ``streams`` (16 bits, ids of streams) have as many entries. All are little-endian.
    ``sessions`` and ``turns`` are the mix's, for arrivals that are conversations. With ``workers`` only what the
    ``worker``-th of so many sends.

    Raises UsageError for a closed loop, an invalid plan, and arrays that do not fit.
    """

def schedule_count(
    plan: str,
    dataset_rows: int,
    *,
    limit: int | None = None,
    due: bytes | None = None,
    rows: bytes | None = None,
    targets: bytes | None = None,
    streams: bytes | None = None,
    sessions: Sequence[int] | None = None,
    turns: Sequence[int] | None = None,
) -> int:
    """How many arrivals `schedule` has: at once where gaps are even, else some 30 ns per arrival.

    Raises UsageError as `schedule` does.
    """

def think_ns(plan: str, stream: int, first: int, count: int) -> list[int]:
    """Pauses before the requests ``first`` to ``first + count - 1`` of a stream (0 in a closed loop), in nanoseconds.

    Where the dataset decides (``recorded``) all are 0.

    Raises UsageError for an invalid plan.
    """

@final
class SimServer:
    """The simulated cluster as a server on its own thread: HTTP on ``port``, gRPC on ``grpc_port``; 0 for any free one.

    ``config`` is the JSON of a ClusterConfig.
    """

    def __new__(cls, config: str, host: str, port: int, *, grpc_port: int = 0) -> SimServer: ...
    @property
    def port(self) -> int: ...
    @property
    def grpc_port(self) -> int: ...
    def stats(self) -> str:
        """JSON: requests served, iterations, own lateness quantiles."""
    def stop(self) -> None: ...

@final
class NullServer:
    """Answers every HTTP/1.1 request at once with the same few bytes, on ``threads`` threads of its own; port 0: any.

    Raises EnvironmentLacks when the port cannot be had.
    """

    def __new__(cls, host: str, port: int, *, threads: int = 1) -> NullServer: ...
    @property
    def port(self) -> int: ...
    @property
    def requests(self) -> int:
        """Requests answered so far."""
    def stop(self) -> None:
        """Close every connection and end the threads; safe to call twice."""

@final
class ResourceSampler:
    """Samples cgroups, process trees and the host on a thread of its own, from now until it is stopped or dropped.

    ``plan`` is JSON; docs/reference/sampler.md has its keys, the columns of the readings, and the facts. Times are the
    engine's. Raises UsageError for an invalid plan, EnvironmentLacks for a source that cannot be read.
    """

    def __new__(cls, plan: str) -> ResourceSampler: ...
    def drain(self) -> list[tuple[str, RecordBatches]]:
        """The readings since the last call: each source's name and its rows, one per reading."""
    def facts(self) -> str:
        """JSON: what is known about the sampler and each source."""
    def mark(self, name: str) -> str:
        """Read everything now and begin new high-water marks where the kernel can.

        JSON: ``name``, ``t_ns``, and in ``peak_reset`` the sources whose ``mem_peak_bytes`` begins anew.
        """
    def stop(self) -> str:
        """Read everything once more and end; JSON of the facts. Safe to call twice.

        ``drain`` still has what was not fetched.
        """

def cgroup_mounts(root: str = "/") -> str:
    """JSON: ``mode`` (``v1``, ``v2``, ``hybrid``) and ``mounts``, of each ``point``, ``group`` and ``controllers``.

    ``group`` is the part of the hierarchy that is mounted there, ``controllers`` is null for v2. ``root`` is the
    directory that stands for ``/``. Raises EnvironmentLacks where no cgroups are mounted.
    """

def cgroup_of(asked: int | str, root: str = "/") -> str:
    """JSON: ``layout`` and ``limits`` of a cgroup, as in the facts of a sampler, and ``primary``.

    ``asked`` is a process in it, or its path in the hierarchies or directory. ``primary`` is the controller that it
    stands and falls with, null where none can be read. Raises EnvironmentLacks where there is no such process.
    """

def simulate(
    config: str,
    load: str,
    *,
    due: bytes | None = None,
    prompt_tokens: bytes | None = None,
    output_tokens: bytes | None = None,
    cached_tokens: bytes | None = None,
    cost_factors: bytes | None = None,
    resample: bool = False,
    judge: str | None = None,
    autoscaler: str | None = None,
    rows: bool = True,
) -> tuple[RecordBatches, str]:
    """Run the simulated cluster in virtual time: one row per request, and the JSON of a summary.

    With arrivals ``"plan"``, ``due`` has the due times as little-endian i64 (ns from the start, ascending), and the
    token counts of each request may follow as little-endian u32. Without ``due``, or with ``resample``, the token
    counts and ``cost_factors`` (little-endian f64) are a table, one row per measured request, from which rows are
    drawn with replacement: a function of the seed and the request's number. ``cached_tokens`` (little-endian u32, fewer
    than those of their prompts) are a further column of it: they cost no prefill.

    ``judge`` is the JSON of bounds, ``{"bounds": [{"metric": "runtime", "bound_s": 2.0}], "every_s": 1.0}``; what
    becomes of them is ``judged`` in the summary. ``autoscaler`` is the JSON of a policy and its signals, which scales
    the cluster; what it did is ``scaling`` in the summary. Without ``rows`` memory does not grow with the requests:
    no row comes back, and the quantiles of the summary are exact to a thousandth.

    Raises UsageError for an invalid configuration, load, arrays or bounds.
    """

def simulate_flow(
    config: str,
    load: str,
    sizes: bytes,
    *,
    tasks: tuple[bytes, bytes, bytes] | None = None,
    due: bytes | None = None,
    judge: str | None = None,
    autoscaler: str | None = None,
    rows: bool = True,
) -> tuple[RecordBatches, str]:
    """Run processor-sharing servers of load-dependent rates in virtual time: one row per request, and a JSON summary.

    ``config`` is the JSON of a FlowConfig: ``rates`` (work per second with 1, 2, ... active requests), and ``gpus``,
    ``max_active``, ``router``, ``seed``, ``replicas``, ``start_delay_s``. ``sizes`` are little-endian f64 in units of
    work, drawn with replacement by the request's number. ``load``, ``due``, ``judge``, ``autoscaler`` and ``rows`` as
    for simulate.

    Columns: index, user, warmup, gpu, due_ns, sent_ns, start_ns (became active), end_ns, size (place in ``sizes``),
    active_at_arrival (active and waiting on its server, itself included), outcome (code).

    Raises UsageError for an invalid configuration, load, arrays or bounds.
    """

def hpa_decisions(policy: str, replicas: int, seen: str) -> str:
    """What a HorizontalPodAutoscaler decides, by the rules of Kubernetes 1.37: a JSON list, one decision per sync.

    ``policy`` is the JSON of the HPA, ``seen`` a JSON list of what the controller sees at each sync: the time, pods and
    a reading of each metric; ``replicas`` is how many there are to be at first. Each decision is carried out before the
    next. Raises UsageError for an invalid policy or course.
    """

def keda_course(scaled_object: str, events: str, *, replicas: int = 0) -> str:
    """What KEDA does by the rules of 2.20: a JSON list of one outcome per event, a poll or a question of the HPA.

    ``scaled_object`` is the JSON of what KEDA goes by; ``events`` a JSON list with the time, ready pods, what the query
    of each trigger came to, and which metric is asked for; ``replicas`` is how many there are to be at first. Polls are
    carried out. Raises UsageError for an object that KEDA would refuse, or events that do not go with it.
    """

def keda_formula(formula: str, names: list[str], values: list[float | None]) -> float | None:
    """What a formula of scalingModifiers comes to with these values of its triggers; None is nil.

    Raises UsageError for a formula that is not understood, or that comes to no number, with the place in it.
    """

@final
class WatchBook:
    """What the objects of a Kubernetes cluster have said of their moments; what is new becomes rows of ``stamps``.

    ``news`` says whether those are asked for. Objects are JSON in bytes, of the kind that is named with them.
    """

    def __new__(cls, *, news: bool = False) -> WatchBook: ...
    def lines(
        self, kind: str, lines: bytes, received_ns: int, *, initial: bool = False, late: bool = False
    ) -> tuple[int, str | None, bool, tuple[int, str, str] | str | None]:
        """Take the lines of a watch, until one that ends it.

        ``received_ns`` is when they were read, by our clock; ``initial`` whether they are those that a watch list
        begins with, ``late`` whether they come later than they might have.

        Returns how many lines were taken; the version of the last; whether the next one is still ``initial``; and what
        ended the watch: an error's code, reason and message, or what is wrong with a line that is no object.
        """
    def objects(self, kind: str) -> int:
        """How many objects of a kind there are, as far as told."""
    def differs(self, listing: ObjectList) -> bool:
        """Whether a list has anything that was not told, or lacks anything that was."""
    def compare(self, listing: ObjectList, at_ns: int) -> tuple[list[str], int, list[str]]:
        """Take what a list has and nobody had told, as of ``at_ns`` by our clock; what it lacks is gone.

        Returns names of objects that nobody had told, how many have another version, and names of those that are gone.
        """
    def remember(self, rows: Sequence[tuple[str, str, str | None, str, int]]) -> None:
        """What an earlier command has written: uid, moment, part, source and time of each row."""
    def met(
        self,
    ) -> list[tuple[str, str, str | None, str, dict[str, str], str | None, str | None, list[str]]]:
        """The objects that came for the first time since the last call.

        Of each its kind, uid, namespace, name, labels, the uid of its owner, what it calls its workload itself, and the
        claims that it mounts.
        """
    def news(self) -> list[tuple[str, str, str, str]]:
        """New moments since the last call: kind, uid and name of the object, and which moment."""
    def forget_events(self, before_ns: int) -> None:
        """Forget Events that came before then and whose object has not come: nobody watches it."""
    def rows(self) -> RecordBatches:
        """The rows since the last call: columns of ``stamps``, without the workload."""
    def __len__(self) -> int:
        """How many rows wait to be taken."""

@final
class ObjectList:
    """A list of a kind's objects, page by page."""

    def __new__(cls, kind: str) -> ObjectList: ...
    def add_page(self, body: bytes) -> str | None:
        """Add a page; what to ask for the next one with, None after the last.

        Raises ValueError for what is no list of the kind.
        """
    @property
    def version(self) -> str:
        """The list's version."""
    def __len__(self) -> int:
        """How many objects it has."""

@final
class ChunkedBody:
    """The chunks of an HTTP body, however they were cut."""

    def __new__(cls) -> ChunkedBody: ...
    def feed(self, data: bytes) -> bytes:
        """The bytes of the body in ``data``. Raises ValueError for what is no chunk."""
    @property
    def ended(self) -> bool:
        """Whether the body has come to its end."""

def kube_time(text: str) -> tuple[int, int] | None:
    """A time as an API server writes it, as ns since 1970 and its resolution in ns; None for what is no time."""

def closed_form_runtime_s(config: str, concurrency: int, prompt_tokens: int, output_tokens: int) -> float | None:
    """Runtime in seconds in a closed loop on one GPU with fixed token counts; None where the formula does not hold."""

def grpc_call(target: str, method: str, request: bytes, timeout_ns: int) -> tuple[int, str, bytes]:
    """Call a unary gRPC method ("/package.Service/Method") once: status code (0 is OK), its text, the reply's message.

    ``target`` is the JSON of a TargetSpec, of which address, TLS, headers (as metadata) and limits count. Blocks for
    ``timeout_ns`` at most; Ctrl-C raises KeyboardInterrupt here. Raises TargetError when no gRPC answer comes.
    """

def kserve_encode(method: str, request_json: str, raw: list[bytes]) -> bytes:
    """The bytes of a request to ``method`` (``ModelInfer``, ``ModelMetadata`` and the others of the service).

    The JSON has the field names of the protocol, numbers for 64-bit integers and base64 for bytes; ``raw`` becomes
    ``raw_input_contents``, one per input.

    Raises UsageError for an unknown method or field, or raw tensors that do not fit the inputs.
    """

def kserve_decode(method: str, response: bytes) -> str:
    """The JSON of a response from ``method``; ``raw_output_contents`` as a list of lengths in bytes.

    Raises TargetError for bytes that are no such response.
    """

def kserve_raw_outputs(response: bytes) -> list[bytes]:
    """The raw tensors of a ModelInfer response, in the order of its outputs.

    Raises TargetError for bytes that are no such response.
    """
