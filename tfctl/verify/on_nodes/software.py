"""Test one host: TensorFlow imports, computes and sees every GPU of the driver. Names the libraries it lacks."""

import ctypes
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys

from result import Failed, report

#: Soname → the key of its version in tf.sysconfig.get_build_info(), or its version by CUDA's major version.
LIBRARIES = {
    "libcudart.so": "cuda",
    "libcublas.so": "cuda",
    "libcublasLt.so": "cuda",
    "libcufft.so": {"10": "10", "11": "10", "12": "11"},
    "libcurand.so": {"10": "10", "11": "10", "12": "10"},
    "libcusolver.so": {"10": "10", "11": "11", "12": "11"},
    "libcusparse.so": {"10": "10", "11": "11", "12": "12"},
    "libcudnn.so": "cudnn",
    "libnccl.so": {"10": "2", "11": "2", "12": "2"},
}
#: The sides of the matrices that each device multiplies.
SIDE = 256


def prove():
    import tensorflow as tf

    if not hasattr(tf, "__version__"):
        raise Failed("`tensorflow` is an empty package: the environment is broken")
    found = {"python": platform.python_version(), "tensorflow": tf.__version__, "devices": devices(tf)}
    driver, gpus = driver_gpus(), [name for name in found["devices"] if name.startswith("GPU")]
    if len(gpus) < len(driver):
        missing = missing_libraries(tf)
        why = "it cannot load " + ", ".join(missing) if missing else "all libraries it needs load: see its log"
        raise Failed(f"the driver shows {len(driver)} GPUs, TensorFlow sees {len(gpus)}; {why}", software=found)
    wrong = [device for device in ["CPU:0", *gpus] if not computes(tf, device)]
    if wrong:
        raise Failed(f"matrices are multiplied wrongly on {', '.join(wrong)}", software=found)
    return {"software": dict(found, **horovod(found))}


def horovod(found):
    """Return the version of the stack's Horovod and what it was built with; {} without Horovod."""
    if importlib.util.find_spec("horovod") is None:
        return {}
    try:
        import horovod
        import horovod.tensorflow as hvd
    except Exception as fault:
        raise Failed(f"Horovod cannot be loaded: {fault}", software=found) from None
    gloo = hasattr(hvd, "gloo_built") and hvd.gloo_built()
    mpi = not hasattr(hvd, "mpi_built") or hvd.mpi_built()  # early versions supported only MPI
    return {
        "horovod": horovod.__version__,
        "horovod_has": [name for name, there in (("gloo", gloo), ("mpi", mpi)) if there],
    }


def devices(tf):
    """Return the devices' names: CPU:0, GPU:0 and so on."""
    seen = getattr(tf.config, "list_physical_devices", None) or tf.config.experimental.list_physical_devices
    return [device.name.partition("physical_device:")[2] for device in seen()]


def driver_gpus():
    program = shutil.which("nvidia-smi")
    if program is None or os.environ.get("CUDA_VISIBLE_DEVICES") == "-1":
        return []
    said = subprocess.run([program, "-L"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    return re.findall(rb"UUID: (GPU-[0-9a-f-]+)", said.stdout)


def missing_libraries(tf):
    """Return the sonames of the CUDA libraries that cannot be loaded here."""
    info = tf.sysconfig.get_build_info() if hasattr(tf.sysconfig, "get_build_info") else {}
    cuda = str(info.get("cuda_version", "")).split(".")[0]
    cudnn = str(info.get("cudnn_version", ""))
    missing = []
    for name, version in LIBRARIES.items():
        number = {"cuda": cuda, "cudnn": cudnn}.get(version) if isinstance(version, str) else version.get(cuda)
        soname = name + "." + number if number else name
        try:
            ctypes.CDLL(soname)
        except OSError:
            missing.append(soname)
    return missing


def computes(tf, device):
    """Return whether the device multiplies two matrices of ones correctly."""
    with tf.device("/" + device):
        ones = tf.ones([SIDE, SIDE])
        product = tf.matmul(ones, ones)
    if hasattr(product, "numpy"):
        return bool((product.numpy() == SIDE).all())
    with tf.compat.v1.Session() as session:
        return bool((session.run(product) == SIDE).all())


if __name__ == "__main__":
    sys.exit(report(prove))
