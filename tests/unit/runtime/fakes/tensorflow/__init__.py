"""A fake TensorFlow: the few names that tfctl_runtime asks for, with what it relies on.

A server listens on its task's port. A second multi-worker strategy is an error. A dataset is a tree of its inputs.
"""

import enum
import json
import os
import signal
import socket
from types import SimpleNamespace

__version__ = "2.15.1"

#: What the machine has; a test says so.
GPUS = []
CPUS = ["/device:CPU:0"]


class Strategy:
    def __init__(self, *words, **named):
        self.asked = words, named


class MirroredStrategy(Strategy):
    pass


class MultiWorkerMirroredStrategy(Strategy):
    made = 0

    def __init__(self, **named):
        type(self).made += 1
        if self.made > 1:
            raise RuntimeError("Collective ops must be configured at program startup")
        super().__init__(**named)


class ParameterServerStrategy(Strategy):
    pass


class TFConfigClusterResolver:
    def __init__(self):
        self.cluster = json.loads(os.environ["TF_CONFIG"])["cluster"]


class UnknownError(Exception):
    pass


class Server:
    """Listens where its task is to listen, as long as the process lives."""

    def __init__(self, cluster, job_name, task_index):
        host, _, port = cluster[job_name][task_index].rpartition(":")
        self.socket = socket.socket()
        try:
            self.socket.bind((host, int(port)))
        except OSError:
            raise UnknownError("Could not start gRPC server") from None
        self.socket.listen(5)
        self.target = f"grpc://{host}:{port}"

    def join(self):
        while True:
            signal.pause()


class CommunicationImplementation(enum.Enum):
    AUTO, RING, NCCL = "AUTO", "RING", "NCCL"


default = Strategy()
distribute = SimpleNamespace(
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
    list_logical_devices=lambda kind: [SimpleNamespace(name=name) for name in (GPUS if kind == "GPU" else CPUS)],
)


class AutoShardPolicy(enum.Enum):
    AUTO, FILE, DATA, OFF = 0, 1, 2, -1


class Options:
    def __init__(self):
        self.experimental_distribute = SimpleNamespace(auto_shard_policy=None)


class Dataset:
    """``count`` as cardinality() says it: -1 endless, -2 unknown."""

    def __init__(self, *inputs, count=-2, spec=None):
        self.inputs, self.count, self.element_spec = inputs, count, spec
        self.policy = None

    def _inputs(self):
        return list(self.inputs)

    def cardinality(self):
        return self.count

    def with_options(self, options):
        made = Dataset(self, count=self.count, spec=self.element_spec)
        made.policy = options.experimental_distribute.auto_shard_policy.name
        return made


def text(count):
    """A dataset of so many names of files."""
    return Dataset(
        count=count, spec=SimpleNamespace(shape=SimpleNamespace(rank=0), dtype=SimpleNamespace(name="string"))
    )


data = SimpleNamespace(Options=Options, Dataset=Dataset, experimental=SimpleNamespace(AutoShardPolicy=AutoShardPolicy))


class BackupAndRestore:
    def __init__(self, backup_dir, save_freq="epoch"):
        self.backup_dir, self.save_freq = backup_dir, save_freq


class ModelCheckpoint:
    def __init__(self, filepath, save_weights_only=False):
        self.filepath, self.save_weights_only = filepath, save_weights_only


class TensorBoard:
    def __init__(self, log_dir):
        self.log_dir = log_dir


keras = SimpleNamespace(
    callbacks=SimpleNamespace(
        BackupAndRestore=BackupAndRestore, ModelCheckpoint=ModelCheckpoint, TensorBoard=TensorBoard
    )
)
