"""Test one host: CUDA starts, and TensorFlow imports, computes and sees every GPU. Names the libraries it lacks."""

import ctypes
import importlib.util
import os
import platform
import sys
from pathlib import Path

from gpus import uuids
from result import ProofFailed, report

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

NODES = "a device node is missing or not open to jobs: tfctl provision INVENTORY --tags job_host,nvidia_driver"
#: Errors of cuInit → remedy. NVIDIA's documentation of the CUDA driver API describes them.
REMEDIES = {
    "CUDA_ERROR_NO_DEVICE": NODES,
    "CUDA_ERROR_NOT_PERMITTED": NODES,
    "CUDA_ERROR_OPERATING_SYSTEM": NODES,
    "CUDA_ERROR_UNKNOWN": NODES,
    "CUDA_ERROR_SYSTEM_NOT_READY": "the fabric manager does not work: systemctl status nvidia-fabricmanager",
    "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH": "the loaded driver is not the installed one: restart the host",
    "CUDA_ERROR_ECC_UNCORRECTABLE": "nvidia-smi -q -d ECC names the GPU: restart the host",
}


def main():
    gpus = driver_gpus()
    if gpus:
        start_cuda(len(gpus))
    return {"software": software(gpus)}


def counted(gpus):
    return f"{gpus} GPU" if gpus == 1 else f"{gpus} GPUs"


def start_cuda(gpus, load=ctypes.CDLL):
    """Call cuInit, as every program with CUDA does. Raise ProofFailed with the name of its error."""
    try:
        driver = load("libcuda.so.1")
    except OSError as fault:
        raise ProofFailed(f"the driver shows {counted(gpus)}, and its library cannot be loaded: {fault}") from None
    code, name = driver.cuInit(0), ctypes.c_char_p()
    if code:
        driver.cuGetErrorName(code, ctypes.byref(name))
        error = name.value.decode() if name.value else f"error {code}"
        remedy = REMEDIES.get(error, "see dmesg on the host; restart the host")
        raise ProofFailed(f"the driver shows {counted(gpus)}, and CUDA does not start (cuInit): {error}", remedy=remedy)


def software(driver):
    """Return the versions and devices of the stack. ``driver``: the UUIDs of the driver's GPUs."""
    import tensorflow as tf

    if not hasattr(tf, "__version__"):
        raise ProofFailed("`tensorflow` is an empty package: the environment is broken")
    found = {"python": platform.python_version(), "tensorflow": tf.__version__, "devices": devices(tf)}
    gpus = [name for name in found["devices"] if name.startswith("GPU")]
    if len(gpus) < len(driver):
        missing = missing_libraries(tf)
        why = "it cannot load " + ", ".join(missing) if missing else "all libraries it needs load: see its log"
        raise ProofFailed(
            f"the driver shows {counted(len(driver))}, TensorFlow sees {len(gpus)}; {why}", software=found
        )
    wrong = [device for device in ["CPU:0", *gpus] if not computes(tf, device)]
    if wrong:
        raise ProofFailed(f"matrices are multiplied wrongly on {', '.join(wrong)}", software=found)
    return dict(found, **horovod(found))


def horovod(found):
    """Return the version of the stack's Horovod and what it was built with; {} without Horovod."""
    if importlib.util.find_spec("horovod") is None:
        return {}
    try:
        import horovod
        import horovod.tensorflow as hvd
    except Exception as fault:
        raise ProofFailed(f"Horovod cannot be loaded: {fault}", software=found) from None
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
    return [] if os.environ.get("CUDA_VISIBLE_DEVICES") == "-1" else uuids()


def missing_libraries(tf):
    """Return the sonames of the CUDA libraries that cannot be loaded here."""
    info = tf.sysconfig.get_build_info() if hasattr(tf.sysconfig, "get_build_info") else {}
    cuda = str(info.get("cuda_version", "")).split(".")[0]
    cudnn = str(info.get("cudnn_version", ""))
    missing = []
    for name, version in LIBRARIES.items():
        number = {"cuda": cuda, "cudnn": cudnn}.get(version) if isinstance(version, str) else version.get(cuda)
        soname = name + "." + number if number else name
        if not loads(soname, [Path(each) for each in sys.path]):
            missing.append(soname)
    return missing


def loads(soname, folders):
    """Return whether the loader finds a library, or a wheel of NVIDIA in these folders contains it.

    TensorFlow finds the libraries of wheels by its own run path, which this program does not have.
    """
    for place in [soname, *(str(path) for folder in folders for path in folder.glob("nvidia/*/lib/" + soname))]:
        try:
            ctypes.CDLL(place)
        except OSError:
            continue
        return True
    return False


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
    sys.exit(report(main))
