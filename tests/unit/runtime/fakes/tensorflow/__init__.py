"""A fake TensorFlow: the few names that tfctl_runtime uses, with the behaviour that it relies on.

A server listens on its task's port. A second multi-worker strategy is an error. A dataset is a tree of its inputs.
Files are read from this machine and from BUCKETS. Python 3.6 reads this file: annotations that it lacks are strings.
"""

import enum
import json
import os
import signal
import socket
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import NoReturn

__version__ = "2.15.1"

#: The machine's devices; a test fills in the GPUs.
GPUS: "list[str]" = []
CPUS = ["/device:CPU:0"]


class InputContext:
    def __init__(self, num_input_pipelines: int = 1, input_pipeline_id: int = 0, num_replicas_in_sync: int = 1) -> None:
        self.num_input_pipelines, self.input_pipeline_id = num_input_pipelines, input_pipeline_id
        self.num_replicas_in_sync = num_replicas_in_sync


class Strategy:
    num_replicas_in_sync = 1

    def __init__(self, *words: object, **named: object) -> None:
        self.asked = words, named

    def distribute_datasets_from_function(self, make: "Callable[[InputContext], object]") -> object:
        return make(InputContext())


class MirroredStrategy(Strategy):
    num_replicas_in_sync = 4

    def distribute_datasets_from_function(self, make: "Callable[[InputContext], object]") -> object:
        return "distributed", make(InputContext(num_replicas_in_sync=self.num_replicas_in_sync))


class MultiWorkerMirroredStrategy(Strategy):
    made = 0

    def __init__(self, **named: object) -> None:
        type(self).made += 1
        if self.made > 1:
            raise RuntimeError("Collective ops must be configured at program startup")
        super().__init__(**named)
        config = json.loads(os.environ["TF_CONFIG"])
        self.index = config["task"]["index"]
        self.workers = sum(len(config["cluster"].get(role, ())) for role in ("chief", "worker"))

    def distribute_datasets_from_function(self, make: "Callable[[InputContext], object]") -> object:
        """Call ``make`` once in each worker, which deals the batches to its devices in turn."""
        replicas = self.workers * len(GPUS or CPUS)
        return "distributed", make(InputContext(self.workers, self.index, replicas))


class ParameterServerStrategy(Strategy):
    pass


class TFConfigClusterResolver:
    def __init__(self) -> None:
        self.cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]


class UnknownError(Exception):
    pass


class Server:
    """Listens on its task's port until the process ends."""

    def __init__(self, cluster: "dict[str, list[str]]", job_name: str, task_index: int) -> None:
        host, _, port = cluster[job_name][task_index].rpartition(":")
        self.socket = socket.socket()
        try:
            self.socket.bind((host, int(port)))
        except OSError:
            raise UnknownError("Could not start gRPC server") from None
        self.socket.listen(5)
        self.target = f"grpc://{host}:{port}"

    def join(self) -> NoReturn:
        while True:
            signal.pause()


class CommunicationImplementation(enum.Enum):
    AUTO, RING, NCCL = "AUTO", "RING", "NCCL"


globals()["bool"] = "bool"  # a type of tensors, under a name that is Python's own here
default = Strategy()
distribute = SimpleNamespace(
    InputContext=InputContext,
    MirroredStrategy=MirroredStrategy,
    MultiWorkerMirroredStrategy=MultiWorkerMirroredStrategy,
    ParameterServerStrategy=ParameterServerStrategy,
    Server=Server,
    cluster_resolver=SimpleNamespace(TFConfigClusterResolver=TFConfigClusterResolver),
    experimental=SimpleNamespace(
        CommunicationImplementation=CommunicationImplementation,
        CommunicationOptions=lambda implementation: implementation,
    ),
    get_strategy=lambda: default,
)
train = SimpleNamespace(ClusterSpec=dict)
config = SimpleNamespace(
    get_visible_devices=lambda kind: GPUS if kind == "GPU" else CPUS,
    list_physical_devices=lambda kind: GPUS if kind == "GPU" else CPUS,
    set_visible_devices=lambda device, kind: GPUS.__setitem__(slice(None), [device]) if kind == "GPU" else None,
    list_logical_devices=lambda kind: [SimpleNamespace(name=name) for name in (GPUS if kind == "GPU" else CPUS)],
)


class AutoShardPolicy(enum.Enum):
    AUTO, FILE, DATA, OFF = 0, 1, 2, -1


class Options:
    def __init__(self) -> None:
        self.experimental_distribute = SimpleNamespace(auto_shard_policy=None)


class Dataset:
    """A dataset with its input datasets. ``count`` is what cardinality() returns: -1 is endless, -2 unknown."""

    def __init__(self, *inputs: "Dataset", count: int = -2, spec: "SimpleNamespace | None" = None) -> None:
        self.inputs, self.count, self.element_spec = inputs, count, spec
        self.policy: str | None = None
        self.share: tuple[int, int] | None = None
        self.function: Callable[[object], object] = lambda batch: batch
        self._input_dataset = inputs[0] if len(inputs) == 1 else None
        self._batch_size: int | None = None

    def _inputs(self) -> "list[Dataset]":
        return list(self.inputs)

    def cardinality(self) -> int:
        return self.count

    def shard(self, count: int, index: int) -> "Dataset":
        result = Dataset(self, count=self.count, spec=self.element_spec)
        result.share = (count, index)
        return result

    def map(self, function: "Callable[[object], object]") -> "Dataset":
        result = Dataset(self, count=self.count, spec=self.element_spec)
        result.function = function
        return result

    def prefetch(self, _count: int) -> "Dataset":
        return self

    def take(self) -> None:
        """Let a batch pass through the function of `map`."""
        self.function("batch")

    def batch(self, size: int) -> "Dataset":
        result = Dataset(self, count=self.count, spec=self.element_spec)
        result._batch_size = size
        return result

    def with_options(self, options: Options) -> "Dataset":
        result = Dataset(self, count=self.count, spec=self.element_spec)
        result.policy = options.experimental_distribute.auto_shard_policy.name
        return result


def numpy_function(function: "Callable[[], object]", _inputs: "list[object]", _type: object) -> object:
    return function()


def text(count: int) -> Dataset:
    """Return a dataset of ``count`` file names."""
    return Dataset(
        count=count, spec=SimpleNamespace(shape=SimpleNamespace(rank=0), dtype=SimpleNamespace(name="string"))
    )


data = SimpleNamespace(Options=Options, Dataset=Dataset, experimental=SimpleNamespace(AutoShardPolicy=AutoShardPolicy))


#: The files in cloud storage, by their paths, such as gs://bucket/file. A test fills it in.
BUCKETS: "dict[str, bytes]" = {}


def walk(top: str) -> "Iterator[tuple[str, list[str], list[str]]]":
    """As os.walk, which leaves out a directory that does not exist; in cloud storage, names of directories end in /."""
    if "://" not in top:
        yield from os.walk(top)
        return
    root = top.rstrip("/") + "/"
    inside = [path[len(root) :] for path in BUCKETS if path.startswith(root)]
    folders = sorted({path.partition("/")[0] + "/" for path in inside if "/" in path})
    if inside:
        yield top, folders, [path for path in inside if "/" not in path]
    for each in folders:
        yield from walk(root + each)


def read_file(path: str, mode: str) -> BytesIO:
    assert mode == "rb"
    return BytesIO(BUCKETS[path] if "://" in path else Path(path).read_bytes())


io = SimpleNamespace(gfile=SimpleNamespace(walk=walk, GFile=read_file))


class Callback:
    def __init__(self) -> None:
        self.params: dict[str, object] = {}
        self.model: object = None
        self._supports_tf_logs = False

    def on_train_batch_begin(self, batch: int, logs: object = None) -> None:
        pass

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:
        pass

    def _implements_train_batch_hooks(self) -> object:
        own, default = type(self), Callback
        return (own.on_train_batch_begin, own.on_train_batch_end) != (
            default.on_train_batch_begin,
            default.on_train_batch_end,
        )


class BackupAndRestore:
    def __init__(self, backup_dir: str, save_freq: "str | int" = "epoch") -> None:
        self.backup_dir, self.save_freq = backup_dir, save_freq


class ModelCheckpoint:
    def __init__(self, filepath: str, save_weights_only: bool = False) -> None:
        self.filepath, self.save_weights_only = filepath, save_weights_only


class TensorBoard:
    def __init__(self, log_dir: str) -> None:
        self.log_dir = log_dir


keras = SimpleNamespace(
    callbacks=SimpleNamespace(
        Callback=Callback, BackupAndRestore=BackupAndRestore, ModelCheckpoint=ModelCheckpoint, TensorBoard=TensorBoard
    )
)
