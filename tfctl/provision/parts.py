"""The parts of provisioning."""

#: The roles in the order of the playbook. Their names are the tags that --tags takes.
PARTS = (
    "preflight",
    "proxy",
    "time_sync",
    "firewall",
    "shared_storage",
    "job_host",
    "py_spy",
    "python_env",
    "toolchain",
    "nvidia_repo",
    "cuda",
    "cudnn",
    "nccl",
    "nvidia_driver",
    "tensorflow",
    "requirements",
    "openmpi",
    "horovod",
    "dataset",
    "ssh_mesh",
)
